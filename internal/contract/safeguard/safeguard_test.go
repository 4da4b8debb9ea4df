package safeguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"
)

// TestSafeguards checks that the product has each safeguard where it is switched off, also if all
// are at once.
func TestSafeguards(t *testing.T) {
	if _, err := without("../../..", All); err != nil {
		t.Error(err)
	}
}

// TestOverlay writes the overlay of one safeguard, which replaces one file.
func TestOverlay(t *testing.T) {
	s, err := Named("the result of a statement is remembered")
	if err != nil {
		t.Fatal(err)
	}
	name, err := Overlay("../../..", t.TempDir(), []Safeguard{s})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil {
		t.Fatal(err)
	}
	for original, changed := range overlay.Replace {
		before, err1 := os.ReadFile(original)
		after, err2 := os.ReadFile(changed)
		if err := errors.Join(err1, err2); err != nil || bytes.Equal(before, after) {
			t.Errorf("%s is replaced by %s: %v", original, changed, err)
		}
	}
	if len(overlay.Replace) != 1 {
		t.Errorf("%d files are replaced", len(overlay.Replace))
	}
	if _, err := Named("nothing"); err == nil {
		t.Error("there is a safeguard called nothing")
	}
}
