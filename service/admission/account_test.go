package admission_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"
)

// TestHandOver checks that bytes that are handed over are charged once, to their new holder, also
// if the holder before has returned them already.
func TestHandOver(t *testing.T) {
	for _, row := range []struct {
		name             string
		holds, handed    int64
		reserves         int64
		to               string
		closed, closedTo bool
		wantFrom, wantTo int64
	}{
		{name: "a part", holds: 300, handed: 100, to: "c", wantFrom: 200, wantTo: 100},
		{name: "to another principal", holds: 300, handed: 300, to: "d", wantTo: 300},
		{name: "more than is held", holds: 100, handed: 300, to: "d", wantTo: 300},
		{
			name: "beside what is reserved", holds: 100, reserves: 200, handed: 300, to: "d",
			wantFrom: 200, wantTo: 300,
		},
		{name: "of a call that has ended", holds: 300, handed: 200, to: "c", closed: true, wantTo: 200},
		{
			name: "to a holder that has ended", holds: 300, handed: 200, to: "d", closedTo: true,
			wantFrom: 100,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 1000})
			var from, to admission.Account
			a.Open(&from, named("c"))
			a.Open(&to, named(row.to))
			if err := from.Grow(t.Context(), row.holds); err != nil {
				t.Fatal(err)
			}
			if err := from.Reserve(t.Context(), row.reserves); err != nil {
				t.Fatal(err)
			}
			if row.closed {
				from.Close()
			}
			if row.closedTo {
				to.Close()
			}
			from.HandOver(&to, row.handed)
			if from.Held() != row.wantFrom || to.Held() != row.wantTo {
				t.Errorf("from holds %d, to %d; want %d and %d",
					from.Held(), to.Held(), row.wantFrom, row.wantTo)
			}
			if got := a.Bytes().Held; got != row.wantFrom+row.wantTo {
				t.Errorf("%d bytes are charged, want %d", got, row.wantFrom+row.wantTo)
			}
			from.Close()
			if got := a.Bytes().Held; got != row.wantTo {
				t.Errorf("%d bytes are charged after the first has ended, want %d", got, row.wantTo)
			}
			to.Close()
			to.Close()
			if got := a.Bytes().Held; got != 0 {
				t.Errorf("%d bytes are charged at the end", got)
			}
		})
	}
}

// TestHandOverWithoutAccount checks that nothing is charged where nothing is limited.
func TestHandOverWithoutAccount(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1000})
	var none, c admission.Account
	a.Open(&c, named("c"))
	none.HandOver(&c, 100)
	(*admission.Account)(nil).HandOver(&c, 100)
	if c.Held() != 200 {
		t.Errorf("%d bytes are charged, want 200 that nobody has charged", c.Held())
	}
	c.HandOver(&none, 50)
	if c.Held() != 150 || a.Bytes().Held != 150 {
		t.Errorf("%d bytes are charged, want 150", c.Held())
	}
}

// TestReserve checks that a reply uses what is reserved for it, and that the rest is returned.
func TestReserve(t *testing.T) {
	for _, row := range []struct {
		name                 string
		reserved, reply      int64
		held, reading, taken int64 // before, while the reply is read, and after it
	}{
		{"smaller", 500, 300, 500, 500, 300},
		{"as large", 500, 500, 500, 500, 500},
		{"larger", 300, 700, 300, 700, 700},
		{"none", 500, 0, 500, 500, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 1000})
			var c admission.Account
			a.Open(&c, named("c"))
			if err := c.Reserve(t.Context(), row.reserved); err != nil {
				t.Fatal(err)
			}
			if got := a.Bytes().Held; got != row.held {
				t.Errorf("%d bytes are charged before, want %d", got, row.held)
			}
			if row.reply > 0 {
				done, err := a.AdmitReply(within(t.Context(), &c), int(row.reply))
				if err != nil {
					t.Fatal(err)
				}
				if got := a.Bytes().Held; got != row.reading {
					t.Errorf("%d bytes are charged while it is read, want %d", got, row.reading)
				}
				done()
			}
			if got := c.TakeReplies(); got != row.taken {
				t.Errorf("TakeReplies() = %d, want %d", got, row.taken)
			}
			if got := a.Bytes().Held; got != row.taken {
				t.Errorf("%d bytes are charged after it, want %d", got, row.taken)
			}
			c.Close()
			if got := a.Bytes().Held; got != 0 {
				t.Errorf("%d bytes are charged at the end", got)
			}
		})
	}
}

// TestReserveWaits checks that a reservation waits for room, and is refused without it.
func TestReserveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
		var c, d admission.Account
		a.Open(&c, named("c"))
		a.Open(&d, named("d"))
		c.Force(800)
		if e := refusal(t, d.Reserve(t.Context(), 500)); e.Cause != admission.Full {
			t.Errorf("Reserve = %v, want that the process has no room", e)
		}
		reserved := make(chan error)
		go func() { reserved <- d.Reserve(t.Context(), 500) }()
		synctest.Wait()
		c.Close()
		if err := <-reserved; err != nil {
			t.Errorf("Reserve = %v after there is room", err)
		}
		d.Close()
	})
}

// TestReservedReplyOutlivesCall checks that a reply is charged until it is read although the call
// that has reserved for it has ended.
func TestReservedReplyOutlivesCall(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1000})
	var c admission.Account
	a.Open(&c, named("c"))
	if err := c.Reserve(t.Context(), 500); err != nil {
		t.Fatal(err)
	}
	done, err := a.AdmitReply(within(t.Context(), &c), 400)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got := a.Bytes().Held; got != 400 {
		t.Errorf("%d bytes are charged while the reply is read, want 400", got)
	}
	done()
	if got := a.Bytes().Held; got != 0 {
		t.Errorf("%d bytes are charged at the end", got)
	}
}

// TestBalance checks on random steps that the parts of a balance are within it, and that what is
// added is removed once.
func TestBalance(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var b admission.Balance
		var in, out int64
		for range 1 + r.IntN(30) {
			n := int64(r.IntN(100))
			var kept bool
			var removed int64
			switch r.IntN(7) {
			case 0:
				b, kept = b.Add(n)
			case 1:
				b, kept = b.AddReserved(n)
			case 2:
				b, kept = b.AddReply(n)
			case 3:
				b, removed = b.Remove(n)
			case 4:
				b, removed = b.Draw(n)
			case 5:
				b, _, removed = b.TakeReplies()
			case 6:
				if r.IntN(5) == 0 {
					b, removed = b.Close()
				}
			}
			if kept {
				in += n
			}
			out += removed
			held, parts := b.Held(), b.Parts()
			if removed < 0 || held != in-out || held < 0 || parts < 0 || parts > held {
				t.Fatalf("seed %d: %+v after %d in and %d out", seed, b, in, out)
			}
		}
		if b, removed := b.Close(); in-out != removed || b.Held() != 0 {
			t.Fatalf("seed %d: Close frees %d, want %d", seed, removed, in-out)
		}
	}
}

// TestGoOn checks that what an open call asks for is not refused: it waits until it fits, or goes
// beyond the budget, one call at a time.
func TestGoOn(t *testing.T) {
	type ask func(context.Context, *admission.Admission, *admission.Account) (func(), error)
	reply := func(size int) ask {
		return func(
			ctx context.Context, a *admission.Admission, c *admission.Account,
		) (done func(), err error) {
			return a.AdmitReply(within(ctx, c), size)
		}
	}
	text := func(size int64) ask {
		return func(
			ctx context.Context, _ *admission.Admission, c *admission.Account,
		) (done func(), err error) {
			return func() {}, c.GrowLast(ctx, size)
		}
	}
	for _, row := range []struct {
		name string
		ask  ask
	}{
		{"reply", reply(600)},
		{"text", text(600)},
		{"reply that can never fit", reply(2000)},
		{"text that can never fit", text(2000)},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
				var full, c, d admission.Account
				a.Open(&full, named("full"))
				a.Open(&c, named("c"))
				a.Open(&d, named("d"))
				full.Force(900)
				c.OnRefusal(func(err error) { t.Errorf("an open call ends with %v", err) })
				c.GoOn()
				d.GoOn()
				done, err := row.ask(t.Context(), a, &c)
				if err != nil {
					t.Fatalf("an open call: %v", err)
				}
				done()
				second := make(chan error)
				go func() {
					done, err := row.ask(t.Context(), a, &d)
					done()
					second <- err
				}()
				time.Sleep(time.Hour) //nolint:forbidigo // time is fake
				select {
				case err := <-second:
					t.Fatalf("two calls go beyond the budget: %v", err)
				default:
				}
				c.Close()
				full.Close()
				if err := <-second; err != nil {
					t.Errorf("the second open call: %v", err)
				}
				d.Close()
				if got := a.Bytes().Held; got != 0 {
					t.Errorf("%d bytes are charged at the end", got)
				}
				var e admission.Account // the overdraft is there again
				a.Open(&e, named("e"))
				e.GoOn()
				if err := e.GrowLast(t.Context(), 2000); err != nil {
					t.Errorf("GrowLast = %v", err)
				}
				e.Close()
			})
		})
	}
}
