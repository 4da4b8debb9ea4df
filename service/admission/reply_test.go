package admission_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"
)

// within returns a context with an account.
func within(ctx context.Context, c *admission.Account) context.Context {
	return context.WithValue(ctx, admission.AccountKey{}, c)
}

func TestAdmitReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
		if done, err := a.AdmitReply(t.Context(), 5000); err != nil {
			t.Errorf("without an account: %v", err)
		} else {
			done(true)
		}
		var c admission.Account
		a.Open(&c, named("c"))
		ctx := within(t.Context(), &c)
		for _, size := range []int{300, 200} {
			done, err := a.AdmitReply(ctx, size)
			if err != nil {
				t.Fatal(err)
			}
			done(true)
		}
		if c.Held() != 500 || c.TakeReplies() != 500 || c.TakeReplies() != 0 {
			t.Errorf("%d bytes are held, want 500 for replies", c.Held())
		}
		c.Close()
	})
}

// TestReplyOutlivesCall checks that a reply is charged until it is read, also if its call ends
// before, or has ended.
func TestReplyOutlivesCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
		var c admission.Account
		a.Open(&c, named("c"))
		ctx := within(t.Context(), &c)
		first, err := a.AdmitReply(ctx, 300)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		second, err := a.AdmitReply(ctx, 200)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct {
			done func(bool)
			held int64
		}{{func(bool) {}, 500}, {first, 200}, {second, 0}} {
			row.done(true)
			if got := a.Bytes().Held; got != row.held {
				t.Errorf("%d bytes are charged, want %d", got, row.held)
			}
		}
		if c.Held() != 0 || c.TakeReplies() != 0 {
			t.Errorf("the closed account holds %d bytes", c.Held())
		}
	})
}

// ender implements admission.Ender.
type ender func(error)

func (e ender) End(cause error) { e(cause) }

// TestRefusedReply checks that a reply without room ends its call, and is not read.
func TestRefusedReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
		var c admission.Account
		a.Open(&c, named("c"))
		ctx, cancel := context.WithCancelCause(t.Context())
		c.OnRefusal(ender(cancel))
		_, err := a.AdmitReply(within(ctx, &c), 2000)
		if e := refusal(t, err); e.Cause != admission.TooMuch {
			t.Errorf("AdmitReply = %v", err)
		}
		cause := context.Cause(ctx)
		if e := refusal(t, cause); e.Cause != admission.TooMuch ||
			!errors.Is(cause, context.Canceled) {
			t.Errorf("the call ends with %v, want the refusal as a cancellation", cause)
		}
		if c.Held() != 0 {
			t.Errorf("%d bytes are held", c.Held())
		}
	})
}

// TestOverdraft checks that replies without room, of what goes on without its client, are read one
// after the other.
func TestOverdraft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1000})
		var c, d admission.Account
		a.Open(&c, named("c"))
		a.Open(&d, named("d"))
		for range 2 { // the account keeps the overdraft
			done, err := a.AdmitReply(within(t.Context(), &c), 2000)
			if err != nil {
				t.Fatal(err)
			}
			done(true)
		}
		if got := a.Bytes().Held; got != 4000 {
			t.Errorf("%d bytes are held, want those of both replies", got)
		}
		admitted := make(chan func(bool))
		go func() {
			done, err := a.AdmitReply(within(t.Context(), &d), 2000)
			if err != nil {
				t.Error(err)
			}
			admitted <- done
		}()
		synctest.Wait()
		select {
		case <-admitted:
			t.Error("two calls have the overdraft")
		default:
		}
		d.Close() // its client has gone, and what goes on does so
		c.Close()
		c.Close() // returns the overdraft, which d has now, once
		(<-admitted)(true)
		if got := a.Bytes().Held; got != 0 {
			t.Errorf("%d bytes are held at the end", got)
		}

		gone, cancel := context.WithCancelCause(t.Context())
		var e, f admission.Account
		a.Open(&e, named("e"))
		a.Open(&f, named("f"))
		if _, err := a.AdmitReply(within(t.Context(), &e), 2000); err != nil {
			t.Fatal(err)
		}
		failed := make(chan error)
		go func() {
			_, err := a.AdmitReply(within(gone, &f), 2000)
			failed <- err
		}()
		synctest.Wait()
		end := errors.New("the end")
		cancel(end)
		if err := <-failed; !errors.Is(err, end) {
			t.Errorf("AdmitReply = %v, want the cause", err)
		}
		e.Close()
	})
}

// TestOverdraftOfTwo checks that two goroutines of a call do not wait for each other when one of
// them has got the overdraft.
func TestOverdraftOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1000})
		var other, c admission.Account
		a.Open(&other, named("other"))
		a.Open(&c, named("c"))
		done, err := a.AdmitReply(within(t.Context(), &other), 2000)
		if err != nil {
			t.Fatal(err)
		}
		done(true)
		c.GoOn()
		ended := make(chan error)
		for range 2 {
			go func() {
				done, err := a.AdmitReply(within(t.Context(), &c), 2000)
				done(true)
				ended <- err
			}()
			go func() { ended <- c.GrowLast(t.Context(), 2000) }()
		}
		synctest.Wait()
		other.Close()
		for range 4 {
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Hour):
				t.Fatal("a goroutine waits for the overdraft that its own call has")
			}
		}
		if got := a.Bytes().Held; got != 8000 {
			t.Errorf("%d bytes are held, want 8000", got)
		}
		c.Close()
		if got := a.Bytes().Held; got != 0 {
			t.Errorf("%d bytes are held at the end", got)
		}
	})
}

// TestOverdraftIsPaid checks that an account that goes on returns the overdraft as soon as it has
// given back, or handed over, as many bytes as it has overdrawn.
func TestOverdraftIsPaid(t *testing.T) {
	const before, reply = 300, 2000
	for name, row := range map[string]struct {
		pay  func(c, other *admission.Account)
		paid bool
	}{
		"all": {func(c, _ *admission.Account) { c.Shrink(c.TakeReplies()) }, true},
		"all in two parts": {func(c, _ *admission.Account) {
			c.Shrink(1)
			c.Shrink(reply - 1)
		}, true},
		"handed over": {func(c, other *admission.Account) {
			c.HandOver(other, reply)
			other.Close()
		}, true},
		"a part":  {func(c, _ *admission.Account) { c.Shrink(reply - 1) }, false},
		"nothing": {func(c, _ *admission.Account) { c.TakeReplies() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := admission.New(admission.Config{Bytes: 1000})
				var c, d, other admission.Account
				for _, each := range []*admission.Account{&c, &d, &other} {
					a.Open(each, named("one of all"))
					defer each.Close()
				}
				if err := c.Grow(t.Context(), before); err != nil {
					t.Fatal(err)
				}
				c.GoOn()
				d.GoOn()
				done, err := a.AdmitReply(within(t.Context(), &c), reply)
				if err != nil {
					t.Fatal(err)
				}
				done(true)
				row.pay(&c, &other)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := d.GrowLast(ctx, reply); (err == nil) != row.paid {
					t.Errorf("another account that goes on: %v; the overdraft is back: %t", err,
						row.paid)
				}
			})
		})
	}
}

// TestOverdraftComesBack uses an account in any order, and closes it before or after its reply is
// read and its message sent: at the end the overdraft is there.
func TestOverdraftComesBack(t *testing.T) {
	for seed := range uint64(2000) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			a := admission.New(admission.Config{Bytes: 1000})
			var c, other, next admission.Account
			for _, each := range []*admission.Account{&c, &other, &next} {
				a.Open(each, named("one of all"))
				each.GoOn()
			}
			var later []func()
			fail := func(err error) {
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			for range 1 + r.IntN(20) {
				n := int64(1 + r.IntN(1500))
				switch r.IntN(9) {
				case 0:
					fail(c.GrowLast(t.Context(), n))
				case 1:
					done, err := a.AdmitReply(within(t.Context(), &c), int(n))
					fail(err)
					kept := r.IntN(2) == 0
					later = append(later, func() { done(kept) })
				case 2:
					done, err := a.AdmitMessage(within(t.Context(), &c), int(n))
					fail(err)
					later = append(later, done)
				case 3:
					c.ReserveSpare(n)
				case 4:
					c.Shrink(n)
				case 5:
					c.HandOver(&other, n)
				case 6:
					c.Vacate(n)
				case 7:
					c.Shrink(c.TakeReplies())
				case 8:
					if r.IntN(4) == 0 {
						c.Close()
					}
				}
				if len(later) > 0 && r.IntN(2) == 0 {
					later[0]()
					later = later[1:]
				}
			}
			for _, done := range later {
				done()
			}
			c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := next.GrowLast(ctx, 2000); err != nil {
				t.Fatalf("seed %d: the overdraft is lost: %v", seed, err)
			}
		})
	}
}

// TestOverdraftOutlivesCall checks that a reply without room has the overdraft, and is charged,
// until it is read, also if its call has ended.
func TestOverdraftOutlivesCall(t *testing.T) {
	for _, endsBefore := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 1000})
			var c, d admission.Account
			a.Open(&c, named("c"))
			a.Open(&d, named("d"))
			if endsBefore {
				c.Close()
			}
			read, err := a.AdmitReply(within(t.Context(), &c), 2000)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			admitted := make(chan func(bool))
			go func() {
				done, err := a.AdmitReply(within(t.Context(), &d), 3000)
				if err != nil {
					t.Error(err)
				}
				admitted <- done
			}()
			synctest.Wait()
			select {
			case <-admitted:
				t.Error("two replies are read with the overdraft")
			default:
			}
			if got := a.Bytes().Held; got != 2000 {
				t.Errorf("%d bytes are charged while the reply is read, want 2000", got)
			}
			read(true)
			next := <-admitted
			if got := a.Bytes().Held; got != 3000 {
				t.Errorf("%d bytes are charged while the next is read, want 3000", got)
			}
			next(true)
			d.Close()
			if got := a.Bytes().Held; got != 0 {
				t.Errorf("%d bytes are charged at the end", got)
			}
			var e admission.Account // the overdraft is there again
			a.Open(&e, named("e"))
			last, err := a.AdmitReply(within(t.Context(), &e), 2000)
			if err != nil {
				t.Fatal(err)
			}
			last(true)
			e.Close()
		})
	}
}

// TestReclaim checks that what can be missed gives way to calls.
func TestReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
		var pages, c, d admission.Account
		a.Open(&pages, named("pages"))
		pages.Force(900)
		var whose *admission.Principal
		a.AddReclaim(func(bytes int64, only *admission.Principal) {
			pages.Shrink(bytes)
			whose = only
		})
		a.Open(&c, named("c"))
		if err := c.Grow(t.Context(), 400); err != nil {
			t.Errorf("Grow = %v", err)
		}
		if got := pages.Held(); got != 500 || whose != nil {
			t.Errorf("the pages hold %d bytes, want 500, of any principal: %v", got, whose)
		}
		if err := c.Grow(t.Context(), 500); err == nil || whose == nil || *whose != named("c") {
			t.Errorf("Grow = %v, asks for bytes of %v; want that its own share is used", err, whose)
		}
		c.OpenFor(&d)
		if d.Principal() != c.Principal() {
			t.Errorf("another account is of %v", d.Principal())
		}
	})
}

// TestCallerOf checks whose an operation is.
func TestCallerOf(t *testing.T) {
	if got := admission.CallerOf(t.Context()); got != nil {
		t.Errorf("without an account: %v", got)
	}
	var c admission.Account
	admission.New(admission.Config{}).Open(&c, named("p"))
	ctx := context.WithValue(t.Context(), admission.AccountKey{}, &c)
	if got := admission.CallerOf(ctx); got != named("p") {
		t.Errorf("CallerOf() = %v", got)
	}
}

// TestRepliesThatAreNotKept reserves for a reply and its response. The reply comes compressed: what
// was reserved is there again when that has been read.
func TestRepliesThatAreNotKept(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 2000})
	var c admission.Account
	a.Open(&c, admission.Principal{Name: "p"})
	defer c.Close()
	const reply, response, compressed, beyond = 500, 300, 200, 700
	if err := c.Reserve(t.Context(), reply+response); err != nil {
		t.Fatal(err)
	}
	ctx := within(t.Context(), &c)
	packed, err := a.AdmitReply(ctx, compressed)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := a.AdmitReply(ctx, reply)
	if err != nil {
		t.Fatal(err)
	}
	whole(true)
	packed(false)
	if n := c.Held(); n != reply+response {
		t.Errorf("%d bytes are held, want %d", n, reply+response)
	}
	if err := c.GrowLast(t.Context(), response); err != nil || c.Held() != reply+response {
		t.Errorf("the response: %v, %d bytes are held", err, c.Held())
	}
	if n := c.TakeReplies(); n != reply {
		t.Errorf("the replies have %d bytes, want %d", n, reply)
	}
	large, err := a.AdmitReply(ctx, beyond)
	if err != nil {
		t.Fatal(err)
	}
	held := c.Held()
	if large(false); c.Held() != held {
		t.Errorf("%d bytes are held after a reply that is not kept, want %d", c.Held(), held)
	}
}
