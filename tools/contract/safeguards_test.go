package main

import "testing"

// TestSafeguards checks that the product has each safeguard where it is switched off.
func TestSafeguards(t *testing.T) {
	for _, s := range safeguards {
		if _, err := s.without("../.."); err != nil {
			t.Error(err)
		}
	}
}
