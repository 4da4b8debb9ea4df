package main

import "testing"

// TestSafeguards checks that the product has each safeguard where it is switched off, also if all
// are at once.
func TestSafeguards(t *testing.T) {
	if _, err := without("../..", safeguards); err != nil {
		t.Error(err)
	}
}
