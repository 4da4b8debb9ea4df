package operation

import (
	"slices"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
)

// TestAfter walks what follows from one attempt after the other.
func TestAfter(t *testing.T) {
	var (
		all       = rules{overload: true, adaptive: 2}
		csot      = rules{overload: true, adaptive: 2, unlimited: true}
		retarget  = rules{overload: true, adaptive: 2, retarget: true}
		none      = rules{adaptive: 2}
		once      = rules{overload: true, adaptive: 1}
		fatal     = failure{}
		transient = failure{transient: true}
		overload  = failure{overloaded: true, retryable: true}
		rejected  = failure{overloaded: true}
		both      = failure{overloaded: true, transient: true}
	)
	sharded, short, long, slow := transient, overload, overload, overload
	sharded.sharded = true
	short.timed, short.left = true, 200*time.Millisecond
	long.timed, long.left = true, 201*time.Millisecond
	slow.base = 20 * time.Second
	var end verdict
	again := func(wait time.Duration) verdict { return verdict{again: true, wait: wait} }
	const ms = time.Millisecond
	tests := []struct {
		name     string
		rules    rules
		failures []failure
		want     []verdict
	}{
		{"no retry", all, []failure{fatal}, []verdict{end}},
		{"one retry", all, []failure{transient, transient}, []verdict{again(0), end}},
		{"then something else", all, []failure{transient, fatal}, []verdict{again(0), end}},
		{
			"as many as fit", csot,
			[]failure{transient, transient, transient, transient},
			[]verdict{again(0), again(20 * ms), again(40 * ms), again(80 * ms)},
		},
		{
			"another server of a sharded cluster", all,
			[]failure{sharded},
			[]verdict{{again: true, avoid: true}},
		},
		{
			"an overloaded server", all,
			[]failure{overload, overload, overload},
			[]verdict{again(200 * ms), again(400 * ms), end},
		},
		{
			"another number", once,
			[]failure{overload, overload},
			[]verdict{again(200 * ms), end},
		},
		{"switched off", none, []failure{overload}, []verdict{end}},
		{"not retryable", all, []failure{rejected}, []verdict{end}},
		{
			"not retryable, but transient", none,
			[]failure{both, both, both},
			[]verdict{again(200 * ms), again(400 * ms), end},
		},
		{
			"the limit holds from then on", csot,
			[]failure{overload, transient, transient},
			[]verdict{again(200 * ms), again(0), end},
		},
		{
			"too late", csot,
			[]failure{transient, transient, transient, overload},
			[]verdict{again(0), again(20 * ms), again(40 * ms), end},
		},
		{"no time for the wait", all, []failure{short}, []verdict{end}},
		{"time for the wait", all, []failure{long}, []verdict{again(200 * ms)}},
		{"the longest wait", all, []failure{slow}, []verdict{again(10 * time.Second)}},
		{
			"another server than the overloaded one", retarget,
			[]failure{overload, transient},
			[]verdict{{again: true, wait: 200 * ms, avoid: true}, again(0)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l ledger
			for i, f := range tt.failures {
				l, _ = l.record(entry{overloaded: f.overloaded})
				if v := l.after(f, tt.rules, 1); v != tt.want[i] {
					t.Errorf("after(%+v) number %d = %+v, want %+v", f, i+1, v, tt.want[i])
				}
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	tests := []struct {
		base   time.Duration
		n      int
		jitter float64
		want   time.Duration
	}{
		{0, 1, 1, 200 * time.Millisecond},
		{0, 2, 1, 400 * time.Millisecond},
		{0, 1, 0.5, 100 * time.Millisecond},
		{0, 1, 0, 0},
		{0, 10, 1, 10 * time.Second},
		{0, 100_000, 0.5, 5 * time.Second},
		{10 * time.Millisecond, 3, 1, 80 * time.Millisecond},
	}
	for _, tt := range tests {
		if got := backoff(tt.base, tt.n, tt.jitter); got != tt.want {
			t.Errorf("backoff(%v, %d, %v) = %v, want %v", tt.base, tt.n, tt.jitter, got, tt.want)
		}
	}
}

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		n      int
		jitter float64
		want   time.Duration
	}{
		{1, 1, 0},
		{2, 1, 20 * ms},
		{2, 0, 10 * ms},
		{3, 0.5, 30 * ms},
		{7, 1, 500 * ms},
		{100_000, 0, 250 * ms},
	} {
		if got := pace(tt.n, tt.jitter); got != tt.want {
			t.Errorf("pace(%d, %v) = %v, want %v", tt.n, tt.jitter, got, tt.want)
		}
	}
}

// TestAfterWithoutTime checks that a wait of nothing fits in no time.
func TestAfterWithoutTime(t *testing.T) {
	l, _ := ledger{}.record(entry{overloaded: true})
	f := failure{overloaded: true, retryable: true, timed: true}
	if v := l.after(f, rules{overload: true, adaptive: 1}, 0); !v.again || v.wait != 0 {
		t.Errorf("after() = %+v, want another attempt at once", v)
	}
}

// TestAvoid checks that a server is named once, however often it fails: each selection walks the
// list.
func TestAvoid(t *testing.T) {
	var c course
	for range 1000 {
		c.avoid("a:1")
		c.avoid("b:1")
	}
	if want := []address.Address{"a:1", "b:1"}; !slices.Equal(c.avoided, want) {
		t.Errorf("%d servers are avoided, want %v", len(c.avoided), want)
	}
}
