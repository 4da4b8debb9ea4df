package admission_test

import (
	"testing"

	"github.com/mooringdb/mooring/service/admission"
)

// TestCount opens and ends things of two principals, and checks what fits beside them.
func TestCount(t *testing.T) {
	c := admission.NewCount("open cursors", admission.Limits{Total: 10, Each: 6})
	a, b := named("a"), named("b")
	ask := func(when string, p admission.Principal, ending int64, want string) {
		t.Helper()
		got := "it fits"
		if refusal := c.Refusal(p, ending); refusal != nil {
			got = refusal.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	const own, full = "the client has used its share of the gateway's open cursors",
		"the gateway has no open cursors left"
	for range 6 {
		ask("below its limit", a, 0, "it fits")
		if !c.Take(a) {
			t.Error("Take refuses what fits")
		}
	}
	ask("at its limit", a, 0, own)
	if c.Take(a) {
		t.Error("Take takes what does not fit")
	}
	ask("at its limit, and one ends", a, 1, "it fits")
	ask("another", b, 0, "it fits")
	for range 4 {
		c.Add(b)
	}
	ask("nothing is left", b, 0, full)
	ask("nothing is left, and one of its own ends", b, 1, "it fits")
	ask("nothing is left, for a third", named("c"), 0, full)
	c.Add(a) // whether or not it fits
	ask("beyond its limit, and one ends", a, 1, own)
	ask("beyond all, and one ends", b, 1, full)
	ask("beyond all, and two end", b, 2, "it fits")
	if n := c.Held(a); n != 7 {
		t.Errorf("a has %d, want 7", n)
	}
	c.Refused(admission.Full)
	c.Refused(admission.OwnShare)
	c.Refused(admission.OwnShare)
	want := admission.Usage{Held: 11, Limit: 10, Refused: [3]uint64{2, 1, 0}}
	if got := c.Usage(); got != want {
		t.Errorf("Usage() = %+v, want %+v", got, want)
	}
	for range 7 {
		c.Remove(a)
	}
	for range 4 {
		c.Remove(b)
	}
	if n, held := c.Held(a), c.Usage().Held; n != 0 || held != 0 {
		t.Errorf("at the end a has %d, and all have %d", n, held)
	}
	ask("after all have ended", a, 0, "it fits")
	for _, some := range []struct {
		of   admission.Principal
		n    int64
		want bool
	}{{a, 12, true}, {a, 1, false}, {b, 3, true}, {b, 1, false}} {
		if c.TakeSome(some.of, some.n) != some.want {
			t.Errorf("TakeSome(%v, %d) is not %t", some.of, some.n, some.want)
		}
	}
	c.AddSome(b, 2)
	c.RemoveSome(a, 12)
	if !c.TakeSome(b, 1) {
		t.Error("TakeSome refuses what fits")
	}
	c.RemoveSome(b, 6)
	if n := c.Usage().Held; n != 0 {
		t.Errorf("%d are left", n)
	}
}
