//go:build poison

package buffer

import "testing"

// TestPoison checks that a use after the last Release shows, and that it is counted what is lent.
func TestPoison(t *testing.T) {
	before := Lent()
	b, kept := Get(least), Get(Most)
	bytes, documents := b.Bytes(), b.Documents(2)
	documents[1] = bytes[10:20]
	document := documents[1]
	if got := Lent() - before; got != 2 {
		t.Errorf("Lent() is %d, want 2", got)
	}
	b.Release()
	kept.Keep()
	if got := Lent() - before; got != 0 {
		t.Errorf("Lent() is %d after all, want 0", got)
	}
	if document[0] != Poison || bytes[least-1] != Poison || documents[1].Validate() == nil {
		t.Errorf("after the last Release a document reads %x", document)
	}
	if !panics(b.Retain) {
		t.Error("Retain after the last Release passes")
	}
	if other := Get(least); &other.Bytes()[0] == &bytes[0] {
		t.Error("memory is lent again")
	}
}
