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
				done(true)
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
	done(true)
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

// TestClosedAccount checks that an account that is used after its end, as by a response whose call
// was canceled, keeps nothing, whether or not its principal holds anything.
func TestClosedAccount(t *testing.T) {
	for name, use := range map[string]func(*admission.Admission, *admission.Account) error{
		"Grow":     func(_ *admission.Admission, c *admission.Account) error { return c.Grow(t.Context(), 10) },
		"GrowLast": func(_ *admission.Admission, c *admission.Account) error { return c.GrowLast(t.Context(), 10) },
		"Reserve":  func(_ *admission.Admission, c *admission.Account) error { return c.Reserve(t.Context(), 10) },
		"Force":    func(_ *admission.Admission, c *admission.Account) error { c.Force(10); return nil },
		"Shrink":   func(_ *admission.Admission, c *admission.Account) error { c.Shrink(10); return nil },
		"Close":    func(_ *admission.Admission, c *admission.Account) error { c.Close(); return nil },
		"TakeReplies": func(_ *admission.Admission, c *admission.Account) error {
			c.Shrink(c.TakeReplies())
			return nil
		},
		"AdmitReply": func(a *admission.Admission, c *admission.Account) error {
			done, err := a.AdmitReply(within(t.Context(), c), 10)
			if err == nil {
				done(true)
			}
			return err
		},
		"HandOver": func(a *admission.Admission, c *admission.Account) error {
			var to admission.Account
			a.Open(&to, named("to"))
			c.HandOver(&to, 10)
			to.Close()
			return nil
		},
	} {
		for _, reserved := range []int64{0, 5} {
			a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
			var c admission.Account
			a.Open(&c, named("c"))
			if err := c.Reserve(t.Context(), reserved); err != nil {
				t.Fatal(err)
			}
			c.Close()
			if err := use(a, &c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if used := a.Bytes().Held; used != 0 || c.Held() != 0 {
				t.Errorf("%s keeps %d bytes of the budget, and %d of the account", name, used,
					c.Held())
			}
		}
	}
}

// TestGoOn checks that what an open call asks for is not refused: it waits until it fits, or goes
// beyond the budget, one call at a time.
func TestGoOn(t *testing.T) {
	type ask func(context.Context, *admission.Admission, *admission.Account) (func(bool), error)
	reply := func(size int) ask {
		return func(
			ctx context.Context, a *admission.Admission, c *admission.Account,
		) (done func(bool), err error) {
			return a.AdmitReply(within(ctx, c), size)
		}
	}
	text := func(size int64) ask {
		return func(
			ctx context.Context, _ *admission.Admission, c *admission.Account,
		) (done func(bool), err error) {
			return func(bool) {}, c.GrowLast(ctx, size)
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
				c.OnRefusal(ender(func(err error) { t.Errorf("an open call ends with %v", err) }))
				c.GoOn()
				d.GoOn()
				done, err := row.ask(t.Context(), a, &c)
				if err != nil {
					t.Fatalf("an open call: %v", err)
				}
				done(true)
				second := make(chan error)
				go func() {
					done, err := row.ask(t.Context(), a, &d)
					done(true)
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

// TestRoomIsMadeAgain checks that what waits gets the room of something that can be missed only
// later, such as a stream whose client does not read.
func TestRoomIsMadeAgain(t *testing.T) {
	const unread = 30 * time.Second
	for _, size := range []int64{600, 2000} { // 2000 never fit: they wait for the overdraft
		synctest.Test(t, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
			var stuck, c admission.Account
			a.Open(&stuck, named("stuck"))
			a.Open(&c, named("c"))
			stuck.GoOn()
			if err := stuck.GrowLast(t.Context(), 2000); err != nil { // it has the overdraft
				t.Fatal(err)
			}
			begun, cuts := time.Now(), 0
			a.AddReclaim(func(int64, *admission.Principal) {
				if time.Since(begun) >= unread {
					cuts++
					stuck.Close()
				}
			})
			c.GoOn()
			if err := c.GrowLast(t.Context(), size); err != nil {
				t.Errorf("GrowLast(%d) = %v", size, err)
			}
			if waited := time.Since(begun); waited > unread+10*time.Second || cuts != 1 {
				t.Errorf("GrowLast(%d) waited %v, and %d were cut, want 1", size, waited, cuts)
			}
			c.Close()
		})
	}
}

// TestSmallCallsPassUploads checks that a small call of a client does not wait behind its uploads,
// of which one waits for memory.
func TestSmallCallsPassUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 512 << 20, Patience: 5 * time.Second})
		p := admission.Principal{Name: "a service"}
		var upload, second, small admission.Account
		for _, c := range []*admission.Account{&upload, &second, &small} {
			a.Open(c, p)
			defer c.Close()
		}
		if err := upload.Grow(t.Context(), 300<<20); err != nil {
			t.Fatal(err)
		}
		go func() { _ = second.Grow(t.Context(), 128<<20) }()
		synctest.Wait()
		begin := time.Now()
		if err := small.Grow(t.Context(), 64<<10); err != nil || time.Since(begin) > 0 {
			t.Errorf("Grow = %v after %v, want none at once", err, time.Since(begin))
		}
		synctest.Wait()
		if n := a.Bytes().Waiting; n != 1 {
			t.Errorf("%d demands wait, want the second upload", n)
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // fake time
		synctest.Wait()
	})
}
