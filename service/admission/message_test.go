package admission_test

import (
	"context"
	"errors"
	"testing"

	"github.com/mooringdb/mooring/service/admission"
)

// opened returns the account of a call, and its context.
func opened(t *testing.T, a *admission.Admission) (*admission.Account, context.Context) {
	t.Helper()
	c := &admission.Account{}
	a.Open(c, named("c"))
	return c, context.WithValue(t.Context(), admission.AccountKey{}, c)
}

// TestMessages checks that a message uses what is vacant in the account of its call, and is charged
// with what is missing, until it is not used any more, also if the call ends before.
func TestMessages(t *testing.T) {
	for _, row := range []struct {
		name                           string
		holds, vacates, shrinks, size  int64
		wantSent, wantDone, wantClosed int64
	}{
		{"nothing is vacant", 300, 0, 0, 100, 400, 300, 100},
		{"all is vacant", 300, 150, 0, 100, 300, 300, 100},
		{"a part is vacant", 300, 60, 0, 100, 340, 300, 100},
		{"more is vacant than is held", 50, 500, 0, 100, 100, 50, 100},
		{"what is vacant was returned", 300, 100, 250, 100, 100, 50, 100},
		{"it is not vacant any more", 300, -100, 0, 100, 400, 300, 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 1000})
			for _, closes := range []bool{false, true} {
				c, ctx := opened(t, a)
				if err := c.Grow(ctx, row.holds); err != nil {
					t.Fatal(err)
				}
				c.Vacate(max(row.vacates, 0))
				if row.vacates < 0 {
					c.Vacate(-row.vacates)
					c.Vacate(row.vacates)
				}
				c.Shrink(row.shrinks)
				for range 2 { // the second message is as the first
					done, err := a.AdmitMessage(ctx, int(row.size))
					if err != nil || a.Bytes().Held != row.wantSent {
						t.Errorf("%v: %d are charged, want %d", err, a.Bytes().Held, row.wantSent)
					}
					if closes {
						c.Close()
						if got := a.Bytes().Held; got != row.wantClosed {
							t.Errorf("%d are charged at the end of the call, want %d", got,
								row.wantClosed)
						}
						done()
						break
					}
					done()
					if got := a.Bytes().Held; got != row.wantDone {
						t.Errorf("%d are charged afterwards, want %d", got, row.wantDone)
					}
				}
				c.Close()
				if got := a.Bytes().Held; got != 0 {
					t.Errorf("%d are charged at the end", got)
				}
			}
		})
	}
}

// TestNoRoomForMessages checks that a message that does not fit is refused, and changes nothing;
// and that what a call can do without neither waits nor is refused with an error.
func TestNoRoomForMessages(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1000})
	c, ctx := opened(t, a)
	defer c.Close()
	if err := c.Grow(ctx, 500); err != nil {
		t.Fatal(err)
	}
	c.Vacate(100)
	done, ok := a.SpareFor(ctx, 200)
	if !ok || a.Bytes().Held != 700 {
		t.Errorf("spare: %t, %d are charged", ok, a.Bytes().Held)
	}
	_, err := a.AdmitMessage(ctx, 1000)
	if _, refused := errors.AsType[*admission.Error](err); !refused || a.Bytes().Held != 700 {
		t.Errorf("AdmitMessage = %v, %d are charged", err, a.Bytes().Held)
	}
	if _, ok := a.SpareFor(ctx, 400); ok || a.Bytes().Held != 700 {
		t.Errorf("spare beyond the budget: %t, %d are charged", ok, a.Bytes().Held)
	}
	done()
	sent, err := a.AdmitMessage(ctx, 300) // what was vacant still is
	if err != nil || a.Bytes().Held != 700 {
		t.Errorf("AdmitMessage = %v, %d are charged", err, a.Bytes().Held)
	}
	sent()
	if _, err := a.AdmitMessage(context.Background(), 1<<40); err != nil {
		t.Errorf("without an account: %v", err)
	}
}

// TestShrinkTo checks that what a call held at a time is as little vacant after ShrinkTo as it was
// then: a message does not take the place of what is still used.
func TestShrinkTo(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1000})
	c, ctx := opened(t, a)
	defer c.Close()
	grow := func(n int64) {
		if err := c.Grow(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	grow(100)
	before := c.Mark()
	for range 2 {
		grow(200)
		c.Vacate(150)
		c.ShrinkTo(before)
		done, err := a.AdmitMessage(ctx, 100)
		if err != nil || a.Bytes().Held != 200 {
			t.Errorf("%v: %d are charged with a message of 100, want 200", err, a.Bytes().Held)
		}
		done()
	}
	if c.ShrinkTo(before); a.Bytes().Held != 100 {
		t.Errorf("%d are charged, want 100", a.Bytes().Held)
	}
}
