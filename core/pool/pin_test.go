package pool_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/pool"
)

// LB-030: the pool counts what connections are in use for; the counts follow the purpose.
func TestPin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MaxPinned, c.MinSize = 2, 1 })
		want := func(when string, inUse, cursors, transactions int) {
			t.Helper()
			if s := r.Stats(); s.InUse != inUse || s.Cursors != cursors ||
				s.Transactions != transactions {
				t.Errorf("Stats() %s = %+v, want %d in use, %d by cursors, %d by transactions",
					when, s, inUse, cursors, transactions)
			}
		}
		pin := func(c *pool.Conn[*fake], why pool.Purpose) {
			t.Helper()
			if err := r.Pin(c, why); err != nil {
				t.Errorf("Pin(%v) = %v", why, err)
			}
		}
		a, b, c := r.checkOut(), r.checkOut(), r.checkOut()
		want("without pins", 3, 0, 0)
		pin(a, pool.PurposeCursor)
		pin(b, pool.PurposeCursor)
		want("with two pinned", 3, 2, 0)
		err := r.Pin(c, pool.PurposeTransaction)
		if e, ok := errors.AsType[*pool.PinLimitError](err); !ok ||
			*e != (pool.PinLimitError{Address: "a:1", Max: 2, Cursors: 2}) {
			t.Errorf("Pin beyond the limit = %v", err)
		}
		const text = "pin a connection to a:1: 2 of at most 2 connections are pinned: 2 by " +
			"cursors, 0 by transactions"
		if err.Error() != text {
			t.Errorf("error = %q, want %q", err, text)
		}
		pin(c, pool.PurposeOther) // is always possible
		want("after the refusal", 3, 2, 0)
		pin(b, pool.PurposeTransaction) // it is pinned already
		pin(b, pool.PurposeTransaction)
		want("with one for a transaction", 3, 1, 1)
		pin(a, pool.PurposeOther)
		pin(c, pool.PurposeTransaction)
		want("after one was unpinned", 3, 0, 2)
		r.CheckIn(b)
		want("after a check-in", 2, 0, 1)
		pin(a, pool.PurposeCursor)
		c.Resource().Interrupt(errors.New("broken"))
		r.CheckIn(c)
		want("after a broken one came back", 1, 1, 0)
		b = r.checkOut()
		want("after a pinned one was used again", 2, 1, 0)
		r.Close()
		pin(b, pool.PurposeCursor)
		r.CheckIn(a)
		r.CheckIn(b)
		want("at the end", 0, 0, 0)
		if s := r.Stats(); s.MaxPinned != 2 || s.MinSize != 1 || s.MaxSize != pool.DefaultMaxSize {
			t.Errorf("Stats() = %+v, want the configuration", s)
		}
		panics(t, "a pin after check-in", func() { _ = r.Pin(a, pool.PurposeCursor) })
		panics(t, "a pin in another pool", func() { _ = newRig(t, nil).Pin(a, pool.PurposeCursor) })
	})
}

func TestPinWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		for range 3 {
			c := r.checkOut()
			defer r.CheckIn(c)
			if err := r.Pin(c, pool.PurposeCursor); err != nil {
				t.Errorf("Pin() = %v", err)
			}
		}
	})
}

func TestPurposeString(t *testing.T) {
	for purpose, want := range map[pool.Purpose]string{
		pool.PurposeOther: "other", pool.PurposeCursor: "cursor", pool.PurposeTransaction: "transaction",
	} {
		if got := purpose.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}
