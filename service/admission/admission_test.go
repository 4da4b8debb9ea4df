package admission_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"
)

func refusal(t *testing.T, err error) *admission.Error {
	t.Helper()
	e, ok := errors.AsType[*admission.Error](err)
	if !ok {
		t.Fatalf("the error is %v, want an *admission.Error", err)
	}
	return e
}

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{
			Calls: admission.Limits{Total: 5}, Patience: 2 * time.Second,
		})
		ctx := t.Context()
		flood, other := named("flood"), named("other")
		for range 4 {
			if err := a.EnterCall(ctx, flood); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		e := refusal(t, a.EnterCall(ctx, flood))
		if e.Cause != admission.OwnShare || time.Since(start) != 2*time.Second {
			t.Errorf("refused after %v: %+v", time.Since(start), e)
		}
		if err := a.EnterCall(ctx, other); err != nil {
			t.Errorf("the other principal: %v", err)
		}
		if e := refusal(t, a.EnterCall(ctx, other)); e.Cause != admission.Full {
			t.Errorf("beside a full house: %+v", e)
		}
		if got := a.Calls(); got.Held != 5 || got.Waiting != 0 {
			t.Errorf("Calls() = %+v", got)
		}

		granted := make(chan error)
		go func() { granted <- a.EnterCall(ctx, other) }()
		synctest.Wait()
		if got := a.Calls().Waiting; got != 1 {
			t.Errorf("%d calls wait, want 1", got)
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		a.LeaveCall(flood)
		a.LeaveCall(flood)
		if err := <-granted; err != nil {
			t.Errorf("after two left: %v", err)
		}
		a.LeaveCall(other)
		a.LeaveCall(other)
		a.LeaveCall(flood)
		a.LeaveCall(flood)
		if got := a.Calls(); got.Held != 0 {
			t.Errorf("Calls() at the end = %+v", got)
		}
	})
}

func TestCanceledWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{
			Calls: admission.Limits{Each: 1}, Patience: time.Minute,
		})
		if err := a.EnterCall(t.Context(), named("a")); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error)
		go func() { result <- a.EnterCall(ctx, named("a")) }()
		synctest.Wait()
		cancel(gone)
		if err := <-result; !errors.Is(err, gone) {
			t.Errorf("EnterCall = %v, want the cause", err)
		}
		if got := a.Calls(); got.Held != 1 || got.Waiting != 0 {
			t.Errorf("Calls() = %+v", got)
		}
	})
}

func TestStreams(t *testing.T) {
	a := admission.New(admission.Config{Streams: admission.Limits{Each: 2}, Patience: time.Hour})
	p := named("p")
	for range 2 {
		if err := a.EnterStream(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if e := refusal(t, a.EnterStream(t.Context(), p)); e.Cause != admission.OwnShare {
		t.Errorf("one more: %+v", e)
	}
	if err := a.EnterStream(t.Context(), named("q")); err != nil {
		t.Errorf("of another: %v", err)
	}
	a.LeaveStream(p)
	if err := a.EnterStream(t.Context(), p); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	if got := a.Streams().Held; got != 3 {
		t.Errorf("%d streams, want 3", got)
	}
}

// TestStreamsInAll checks that all principals together have so many streams, and that one of them
// leaves some to the next.
func TestStreamsInAll(t *testing.T) {
	a := admission.New(admission.Config{
		Streams: admission.Limits{Total: 10, Each: 9}, Patience: time.Hour,
	})
	open := func(name string) (n int, e *admission.Error) {
		for {
			if err := a.EnterStream(t.Context(), named(name)); err != nil {
				return n, refusal(t, err)
			}
			n++
		}
	}
	if n, e := open("p"); n != 8 || e.Cause != admission.OwnShare {
		t.Errorf("one alone has %d streams, then %+v", n, e)
	}
	if n, e := open("q"); n != 2 || e.Cause != admission.Full {
		t.Errorf("the next one has %d streams, then %+v", n, e)
	}
	if got := a.Streams(); got.Held != 10 || got.Limit != 10 {
		t.Errorf("Streams() = %+v", got)
	}
}

func TestBucket(t *testing.T) {
	start := time.Unix(1000, 0)
	type step struct {
		at   time.Duration
		want time.Duration // to wait
	}
	for _, test := range []struct {
		name  string
		rate  float64
		steps []step
	}{
		{"one a second", 1, []step{
			{0, 0},
			{0, time.Second},
			{500 * time.Millisecond, 500 * time.Millisecond},
			{1500 * time.Millisecond, 0},
		}},
		{"three at once", 3, []step{
			{0, 0},
			{0, 0},
			{0, 0},
			{0, time.Second / 3},
			{time.Hour, 0},
			{time.Hour, 0},
			{time.Hour, 0},
			{time.Hour, time.Second / 3},
		}},
		{"one in ten seconds", 0.1, []step{{0, 0}, {5 * time.Second, 5 * time.Second}}},
		{"a fraction that the arithmetic may lose", 1, []step{{0, 0}, {time.Second - 1, 0}}},
		{"a clock that goes back", 1, []step{{time.Second, 0}, {0, time.Second}}},
	} {
		var b admission.Bucket
		for i, s := range test.steps {
			var wait time.Duration
			b, wait = b.Take(test.rate, start.Add(s.at))
			d := wait - s.want
			if d < -time.Microsecond || d > time.Microsecond || (wait == 0) != (s.want == 0) {
				t.Errorf("%s, step %d: wait %v, want %v", test.name, i, wait, s.want)
			}
		}
	}
}

// TestRetryAfterIsTrue checks that a call is admitted once the time that its refusal named is over.
func TestRetryAfterIsTrue(t *testing.T) {
	for rate := range 2000 {
		var b admission.Bucket
		var wait time.Duration
		now := time.Unix(1000, 0)
		for rounds := 0; rounds < 5; {
			if b, wait = b.Take(float64(rate+1), now); wait == 0 {
				continue
			}
			rounds++
			now = now.Add(wait)
			if b, wait = b.Take(float64(rate+1), now); wait != 0 {
				t.Fatalf("%d a second: refused for %v more after Retry-After", rate+1, wait)
			}
		}
	}
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Rate: 3, RateEach: 2})
		ctx := t.Context()
		for range 2 {
			if err := a.EnterCall(ctx, named("a")); err != nil {
				t.Fatal(err)
			}
		}
		e := refusal(t, a.EnterCall(ctx, named("a")))
		if e.Cause != admission.OwnShare || e.RetryAfter != time.Second/2 {
			t.Errorf("the third of one principal: %+v", e)
		}
		if err := a.EnterStream(ctx, named("b")); err != nil {
			t.Fatal(err)
		}
		if e := refusal(t, a.EnterStream(ctx, named("c"))); e.Cause != admission.Full {
			t.Errorf("the fourth of all: %+v", e)
		}
		time.Sleep(e.RetryAfter) //nolint:forbidigo // fake time
		if err := a.EnterCall(ctx, named("a")); err != nil {
			t.Errorf("after RetryAfter: %v", err)
		}
	})
}

// TestRetryAfterBothRates checks that a call which one of the rates refuses takes nothing from the
// other one, and that both admit it after RetryAfter.
func TestRetryAfterBothRates(t *testing.T) {
	for name, row := range map[string]struct {
		rate, each float64
		before     []string // the principals of the calls that are admitted
		cause      admission.Cause
		wait       time.Duration
	}{
		"of all": {
			10, 1, strings.Fields("c d e f g h i j k l"), admission.Full, 100 * time.Millisecond,
		},
		"of the principal": {10, 1, []string{"b"}, admission.OwnShare, time.Second},
		"both, of all the later": {
			0.5, 1, []string{"b"}, admission.OwnShare, 2 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := admission.New(admission.Config{Rate: row.rate, RateEach: row.each})
				for _, p := range row.before {
					if err := a.EnterCall(t.Context(), named(p)); err != nil {
						t.Fatal(err)
					}
				}
				e := refusal(t, a.EnterCall(t.Context(), named("b")))
				if e.Cause != row.cause || e.RetryAfter != row.wait {
					t.Errorf("%+v, want to wait %v", e, row.wait)
				}
				time.Sleep(e.RetryAfter) //nolint:forbidigo // fake time
				if err := a.EnterCall(t.Context(), named("b")); err != nil {
					t.Errorf("after RetryAfter: %v", err)
				}
			})
		})
	}
}

func TestAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
		ctx := t.Context()
		var c, d admission.Account
		a.Open(&c, named("c"))
		a.Open(&d, named("d"))
		grow := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		grow(c.Grow(ctx, 800))
		if e := refusal(t, c.Grow(ctx, 1)); e.Cause != admission.OwnShare {
			t.Errorf("over the share: %+v", e)
		}
		grow(c.GrowLast(ctx, 100))
		if e := refusal(t, d.Grow(ctx, 90)); e.Cause != admission.Full {
			t.Errorf("of another: %+v", e)
		}
		if e := refusal(t, d.Grow(ctx, 1001)); e.Cause != admission.TooMuch {
			t.Errorf("more than all: %+v", e)
		}
		d.Force(300)
		if got := a.Bytes(); got.Held != 1200 || got.Limit != 1000 {
			t.Errorf("Bytes() = %+v", got)
		}
		c.Shrink(400)
		if got := c.Held(); got != 500 {
			t.Errorf("Held() = %d, want 500", got)
		}
		c.Close()
		grow(c.Grow(ctx, 10)) // is returned at once
		d.Shrink(1000)        // less is charged
		d.Close()
		d.Close()
		if got := a.Bytes().Held; got != 0 {
			t.Errorf("%d bytes are held at the end", got)
		}
	})
}

// TestNoAccount checks that calls without an account are not limited.
func TestNoAccount(t *testing.T) {
	var none *admission.Account
	var closed admission.Account
	for _, c := range []*admission.Account{none, &closed} {
		if err := c.Grow(t.Context(), 1<<50); err != nil {
			t.Error(err)
		}
		c.Force(1 << 50)
		c.Shrink(1)
		c.Close()
		if c.Held() != 0 {
			t.Errorf("Held() = %d", c.Held())
		}
	}
}

func BenchmarkEnterCall(b *testing.B) {
	for name, row := range map[string]struct{ rate, principals int }{
		"no rate": {0, 1}, "rates": {1e9, 1}, "rates of 20,000": {1e9, 20_000},
	} {
		b.Run(name, func(b *testing.B) {
			a := admission.New(admission.Config{
				Calls: admission.Limits{Total: 100}, Patience: time.Second,
				Rate: float64(row.rate), RateEach: float64(row.rate),
			})
			principals := make([]admission.Principal, row.principals)
			for i := range principals {
				principals[i] = named(fmt.Sprint("key:", i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p := principals[i%len(principals)]
				if err := a.EnterCall(b.Context(), p); err != nil {
					b.Fatal(err)
				}
				a.LeaveCall(p)
			}
		})
	}
}

func BenchmarkAccount(b *testing.B) {
	a := admission.New(admission.Config{Bytes: 1 << 20, Patience: time.Second})
	p := named("key:somebody")
	b.ReportAllocs()
	for b.Loop() {
		var c admission.Account
		a.Open(&c, p)
		if err := c.Grow(b.Context(), 1000); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

// TestRefusalsAreCounted checks the counts of refusals by resource and cause.
func TestRefusalsAreCounted(t *testing.T) {
	a := admission.New(admission.Config{
		Bytes: 100, Calls: admission.Limits{Each: 1}, Streams: admission.Limits{Each: 1},
		Rate: 1000, RateEach: 4,
	})
	p := named("p")
	for range 2 {
		_ = a.EnterCall(t.Context(), p)
		_ = a.EnterStream(t.Context(), p)
	}
	_ = a.EnterStream(t.Context(), p) // the fifth in one second
	var account admission.Account
	a.Open(&account, p)
	_ = account.Grow(t.Context(), 101)
	for name, row := range map[string]struct {
		got  admission.Usage
		want [3]uint64
	}{
		"calls": {a.Calls(), [3]uint64{1, 0, 0}}, "streams": {a.Streams(), [3]uint64{1, 0, 0}},
		"rate": {a.Rates(), [3]uint64{1, 0, 0}}, "memory": {a.Bytes(), [3]uint64{0, 0, 1}},
		"no rate": {admission.New(admission.Config{}).Rates(), [3]uint64{}},
	} {
		if row.got.Refused != row.want {
			t.Errorf("%s: refused %v, want %v", name, row.got.Refused, row.want)
		}
	}
	if limit := a.Rates().Limit; limit != 1000 {
		t.Errorf("Rates().Limit = %d", limit)
	}
}

// TestSetLimits changes the limits while a call waits: a higher limit admits it, a lower one lets
// what is in flight go on.
func TestSetLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := func(calls int64, rate float64) admission.Config {
			return admission.Config{
				Calls: admission.Limits{Total: calls}, Rate: rate,
				Streams: admission.Limits{Each: calls}, Patience: time.Minute,
			}
		}
		a := admission.New(limits(1, 0))
		ctx := t.Context()
		if err := a.EnterCall(ctx, named("a")); err != nil {
			t.Fatal(err)
		}
		granted := make(chan error)
		go func() { granted <- a.EnterCall(ctx, named("b")) }()
		synctest.Wait()
		a.SetLimits(limits(2, 0))
		if err := <-granted; err != nil {
			t.Errorf("with room for two: %v", err)
		}
		if err := a.EnterStream(ctx, named("a")); err != nil {
			t.Fatal(err)
		}
		a.SetLimits(admission.Config{
			Calls: admission.Limits{Total: 1}, Streams: admission.Limits{Each: 1}, Rate: 1,
		})
		if got := a.Calls(); got.Held != 2 || got.Limit != 1 {
			t.Errorf("Calls() = %+v, want 2 of 1", got)
		}
		if e := refusal(t, a.EnterStream(ctx, named("a"))); e.Cause != admission.OwnShare {
			t.Errorf("a second stream: %+v", e)
		}
		begun := time.Now()
		a.SetLimits(admission.Config{
			Calls: admission.Limits{Total: 1}, Streams: admission.Limits{Each: 1}, Rate: 1,
		})
		if e := refusal(t, a.EnterCall(ctx, named("c"))); e.RetryAfter == 0 ||
			time.Since(begun) != 0 {
			t.Errorf("the same rate again, after %v: %+v", time.Since(begun), e)
		}
		for _, rate := range []float64{2, 0} { // what was refused stays counted
			if a.SetLimits(limits(0, rate)); a.Rates().Refused != [3]uint64{admission.Full: 1} {
				t.Errorf("a rate of %v: %+v", rate, a.Rates())
			}
		}
		if err := a.EnterCall(ctx, named("c")); err != nil {
			t.Errorf("without limits: %v", err)
		}
		if err := a.EnterStream(ctx, named("a")); err != nil {
			t.Errorf("a second stream without limits: %v", err)
		}
	})
}

// TestSetLimitsOfEach changes each limit alone, down and up again: what is admitted afterwards
// obeys the new one.
func TestSetLimitsOfEach(t *testing.T) {
	many := admission.Config{
		Calls:                  admission.Limits{Total: 100, Each: 100},
		Streams:                admission.Limits{Total: 100, Each: 100},
		ChangeStreams:          admission.Limits{Total: 100, Each: 100},
		ChangeStreamsPerTicket: 100, Rate: 100, RateEach: 100,
	}
	call := func(ctx context.Context, a *admission.Admission) error {
		return a.EnterCall(ctx, named("a"))
	}
	stream := func(ctx context.Context, a *admission.Admission) error {
		return a.EnterStream(ctx, named("a"))
	}
	change := func(ctx context.Context, a *admission.Admission) error {
		var c admission.Account
		a.Open(&c, named("a"))
		return c.EnterChangeStream(ctx, "a ticket")
	}
	type config = admission.Config
	for name, test := range map[string]struct {
		limit func(c *config, n int64)
		enter func(context.Context, *admission.Admission) error
		cause admission.Cause
	}{
		"calls":         {limit: func(c *config, n int64) { c.Calls.Total = n }, enter: call},
		"calls of each": {limit: func(c *config, n int64) { c.Calls.Each = n }, enter: call},
		"rate": {
			func(c *config, n int64) { c.Rate = float64(n) }, call, admission.Full,
		},
		"rate of each": {
			limit: func(c *config, n int64) { c.RateEach = float64(n) }, enter: call,
		},
		"streams": {
			limit: func(c *config, n int64) { c.Streams.Total = n }, enter: stream,
		},
		"streams of each": {limit: func(c *config, n int64) { c.Streams.Each = n }, enter: stream},
		"change streams": {
			limit: func(c *config, n int64) { c.ChangeStreams.Total = n }, enter: change,
		},
		"change streams of each": {
			limit: func(c *config, n int64) { c.ChangeStreams.Each = n }, enter: change,
		},
		"change streams of a ticket": {
			limit: func(c *config, n int64) { c.ChangeStreamsPerTicket = n }, enter: change,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				few, a := many, admission.New(many)
				test.limit(&few, 1)
				if err := test.enter(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				a.SetLimits(few)
				if strings.HasPrefix(name, "rate") { // a new rate begins anew
					if err := test.enter(t.Context(), a); err != nil {
						t.Fatal(err)
					}
				}
				if e := refusal(t, test.enter(t.Context(), a)); e.Cause != test.cause {
					t.Errorf("beyond the lower limit: %+v, want cause %d", e, test.cause)
				}
				a.SetLimits(many)
				if err := test.enter(t.Context(), a); err != nil {
					t.Errorf("within the higher limit: %v", err)
				}
			})
		})
	}
}

// TestQueuePlaces checks that one principal cannot take all places of the queue: what comes when it
// has its share of them is refused at once, and another principal may wait. At the end no place is
// taken.
func TestQueuePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share = admission.MaxWaiting / 5 * 4
		a := admission.New(admission.Config{
			Calls: admission.Limits{Total: 1}, Patience: time.Minute,
		})
		if err := a.EnterCall(t.Context(), named("other")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait := func(name string) {
			go func() {
				if err := a.EnterCall(ctx, named(name)); err == nil {
					t.Errorf("%s got a place", name)
				}
			}()
			synctest.Wait()
		}
		for range share {
			go func() { _ = a.EnterCall(ctx, named("greedy")) }()
		}
		synctest.Wait()
		if n := a.Calls().Waiting; n != share {
			t.Fatalf("%d wait, want %d", n, share)
		}
		begun := time.Now()
		_ = refusal(t, a.EnterCall(ctx, named("greedy")))
		if took := time.Since(begun); took != 0 {
			t.Errorf("a call beyond the share waited for %v", took)
		}
		wait("quiet")
		if n := a.Calls().Waiting; n != share+1 {
			t.Errorf("%d wait, want one more", n)
		}
		cancel()
		synctest.Wait()
		if n, places := a.Calls().Waiting, a.Places(); n != 0 || places != 0 {
			t.Errorf("%d wait, and %d places are taken", n, places)
		}
	})
}

// TestCommandsOfStreams checks that the first command of a stream is refused after a time, and that
// the next ones wait for as long as it takes, or until their call ends.
func TestCommandsOfStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{
			Calls: admission.Limits{Each: 1}, Patience: time.Second,
		})
		var c admission.Account
		a.Open(&c, named("p"))
		if err := c.EnterCommand(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		e := refusal(t, c.EnterCommand(t.Context(), false))
		if took := time.Since(begun); e.Cause != admission.OwnShare || took != time.Second {
			t.Errorf("the first command of another stream: %v after %v", e, took)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		left := make(chan error)
		for _, open := range []bool{false, true} {
			go func() { left <- c.EnterCommand(ctx, open) }()
		}
		synctest.Wait()
		cancel(gone)
		for range 2 {
			if err := <-left; !errors.Is(err, gone) {
				t.Errorf("a call that ends: %v", err)
			}
		}
		entered := make(chan error)
		go func() { entered <- c.EnterCommand(t.Context(), true) }()
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		c.LeaveCommand()
		if err := <-entered; err != nil {
			t.Errorf("the next command of an open stream: %v", err)
		}
		c.LeaveCommand()
		if n := a.Calls().Held; n != 0 {
			t.Errorf("%d are held at the end", n)
		}
	})
}

// TestAtEnd checks when the end of an account is told, and that it says whether the response was
// sent.
func TestAtEnd(t *testing.T) {
	var none *admission.Account
	a := admission.New(admission.Config{Bytes: 100})
	var sent, full, closed admission.Account
	for _, c := range []*admission.Account{&sent, &full, &closed} {
		a.Open(c, named("p"))
	}
	closed.Close()
	told := map[string]bool{}
	for name, c := range map[string]*admission.Account{
		"no": none, "sent": &sent, "full": &full, "closed": &closed,
	} {
		c.AtEnd(func(was bool) { told[name] = was })
	}
	if len(told) != 2 || !told["no"] || !told["closed"] {
		t.Errorf("before the end: %v", told)
	}
	_ = refusal(t, full.GrowLast(t.Context(), 101))
	for range 2 {
		sent.Close()
		full.Close()
	}
	if len(told) != 4 || !told["sent"] || told["full"] {
		t.Errorf("at the end: %v", told)
	}
}
