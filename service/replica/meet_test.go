package replica_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/replica"
)

// TestMeet: a new replica that finds one other replica makes itself known to all. It learns of all
// of them, and where the cursors of earlier replicas went. DNS knows the first replica only.
func TestMeet(t *testing.T) {
	gone, heir := page.Instance{9}, page.Replica{Address: "10.0.0.9:1", Instance: page.Instance{8}}
	first := &fake{}
	first.Succeeded(gone, heir)
	a := start(t, "a", first)
	second, third := &fake{}, &fake{}
	b := start(t, "a", second, knowing(a.Advertised()))
	knows := func(n *node, others ...*node) bool {
		all := n.Others(t.Context(), false)
		for _, o := range others {
			if !slices.Contains(all, o.Advertised()) {
				return false
			}
		}
		return true
	}
	eventually(t, "the first two know each other", func() bool {
		return knows(a, b) && knows(b, a)
	})
	c := start(t, "a", third, knowing(a.Advertised()))
	eventually(t, "all know each other", func() bool {
		return knows(a, b, c) && knows(b, a, c) && knows(c, a, b)
	})
	eventually(t, "the new one knows where cursors went", func() bool {
		return third.Successors()[gone] == heir
	})
	for _, n := range []*node{a, b, c} {
		if slices.Contains(n.Others(t.Context(), false), n.Advertised()) {
			t.Error("a replica is among its others")
		}
		eventually(t, "two others are counted",
			func() bool { return n.Transport.Stats().Known == 2 })
	}
	// A replica that has drained announces where its cursors went.
	from := page.Replica{Address: c.Advertised(), Instance: page.Instance{7}}
	third.self = from
	if err := c.Announce(t.Context(), b.Advertised(), heir); err != nil ||
		second.Successors()[from.Instance] != heir {
		t.Errorf("Announce = %v, the other one knows %v", err, second.Successors())
	}
	// A lost replica is forgotten when its address refuses connections.
	c.stop()
	if err := a.ask(t.Context(), c.Advertised()); err == nil {
		t.Error("a call of a replica that has stopped = nil")
	}
	if knows(a, c) {
		t.Error("a replica that is gone is known still")
	}
}

// TestLeave checks that a replica that ends tells the others: they forget it, and calls to it do
// not count as those to a lost replica. They count again once it has come back.
func TestLeave(t *testing.T) {
	a := start(t, "a", yes())
	b := start(t, "a", yes(), knowing(a.Advertised()))
	b.SetLeaveTime(waitTime)
	eventually(t, "the other one is known", func() bool { return a.Stats().Known == 1 })
	address := b.Advertised()
	ask := func(want uint64) {
		t.Helper()
		if err := a.ask(t.Context(), address); err == nil {
			t.Error("a call of a replica that has stopped = nil")
		}
		if got := a.Stats().Unreachable; got != want {
			t.Errorf("%d calls have found a replica unreachable, want %d", got, want)
		}
	}
	b.stop()
	if got := a.Stats().Known; got != 0 || !a.HasLeft(address) ||
		!strings.Contains(a.log.String(), "replica left") {
		t.Errorf("%d others are known after the only one has left, log %s", got, a.log)
	}
	ask(0)
	a.Report(address) // by a replica that has not heard of it
	if got := a.Stats().Known; got != 0 {
		t.Errorf("%d others are known after a late report", got)
	}
	ask(0)
	a.Learn(address) // it has come back, and is lost now
	ask(1)
}

// TestLeftNames checks that an address that a name stood for has left with it, for a while, and is
// back once a name stands for it again.
func TestLeftNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := &names{}
		n := replica.New(replica.Config{
			Keys: ring(t, "a"), Others: []string{"others.svc:7"}, LookupHost: dns.lookup,
		})
		for _, step := range []struct {
			name  string
			hosts []string
			after time.Duration
			want  bool // 10.0.0.2 has left
		}{
			{"both", []string{"10.0.0.1", "10.0.0.2"}, 0, false},
			{"one", []string{"10.0.0.1"}, 6 * time.Second, true},
			{"still one", []string{"10.0.0.1"}, 6 * time.Second, true},
			{"both again", []string{"10.0.0.1", "10.0.0.2"}, 6 * time.Second, false},
			{"no answer", nil, 6 * time.Second, false},
			{"the other", []string{"10.0.0.1"}, 6 * time.Second, true},
			{"later", []string{"10.0.0.1"}, 10*time.Minute + time.Second, false},
		} {
			time.Sleep(step.after) //nolint:forbidigo // in a bubble
			dns.set(step.hosts...)
			_ = n.Others(t.Context(), false)
			if got := n.HasLeft("10.0.0.2:7"); got != step.want || n.HasLeft("10.0.0.1:7") {
				t.Errorf("%s: HasLeft = %v, want %v", step.name, got, step.want)
			}
		}
	})
}

// Addresses that no name stands for expire.
func TestLearnedAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := replica.New(replica.Config{Keys: ring(t, "a")})
		for _, address := range []string{
			"10.0.0.1:7", "[fd00::1]:7", "", "nonsense", ":7", "10.0.0.2:",
		} {
			n.Learn(address)
		}
		want := []string{"10.0.0.1:7", "[fd00::1]:7"}
		if got := sorted(n, t.Context()); !slices.Equal(got, want) {
			t.Errorf("Others = %q, want %q", got, want)
		}
		time.Sleep(9 * time.Minute) //nolint:forbidigo // in a bubble
		n.Learn("10.0.0.1:7")
		time.Sleep(2 * time.Minute) //nolint:forbidigo // in a bubble
		if got := sorted(n, t.Context()); !slices.Equal(got, want[:1]) {
			t.Errorf("Others after a while = %q, want %q", got, want[:1])
		}
	})
}

// TestDirectoryIsBounded checks that the transport remembers a bounded number of addresses, however
// many it learns, and none that is longer than addresses are.
func TestDirectoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := replica.New(replica.Config{Keys: ring(t, "a")})
		for i := range 10 * replica.MaxHeard {
			address := fmt.Sprintf("10.0.%d.%d:7", i/256, i%256)
			n.Learn(address)
			n.MetSelf(address)
			n.Leave(fmt.Sprintf("10.1.%d.%d:7", i/256, i%256))
		}
		met, heard, left := n.Directory()
		if most := replica.MaxHeard; met != most || heard != most || left != most {
			t.Errorf("%d, %d and %d addresses, want %d", met, heard, left, most)
		}
		n = replica.New(replica.Config{Keys: ring(t, "a")})
		long := strings.Repeat("x", 1<<20) + ":7"
		n.Learn(long)
		n.Leave(long)
		if met, heard, left := n.Directory(); met+heard+left != 0 {
			t.Errorf("a long address is remembered: %d, %d, %d", met, heard, left)
		}
	})
}

// Names are looked up again for a cursor that no known replica has, although DNS was asked a short
// time ago.
func TestLookUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := &names{}
		dns.set("10.0.0.1")
		n := replica.New(replica.Config{
			Keys: ring(t, "a"), Others: []string{"others.svc:7"}, LookupHost: dns.lookup,
		})
		_ = n.Others(t.Context(), false)
		dns.set("10.0.0.1", "10.0.0.2")
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		if got := n.Others(t.Context(), false); len(got) != 1 {
			t.Errorf("Others = %q, want what DNS said before", got)
		}
		if got := n.Others(t.Context(), true); len(got) != 2 {
			t.Errorf("Others, again = %q, want two", got)
		}
		asked := dns.asked
		for range 10 { // but not for each of many cursors
			_ = n.Others(t.Context(), true)
		}
		if dns.asked != asked {
			t.Errorf("DNS was asked %d times more at once", dns.asked-asked)
		}
	})
}

// TestClocks: the log names a replica whose clock differs by more than tokens allow for, with the
// difference.
func TestClocks(t *testing.T) {
	for _, test := range []struct {
		ahead time.Duration
		want  string
	}{
		{30 * time.Second, ""},
		{-50 * time.Second, ""},
		{15 * time.Minute, "difference=-15m0s"},
		{-15 * time.Minute, "difference=15m0s"},
	} {
		a := start(t, "a", yes())
		b := bind(t, "a")
		b.SetClock(func() time.Time { return time.Now().Add(test.ahead) })
		b.Serve(&fake{})
		for range 3 {
			if err := b.ask(context.Background(), a.Advertised()); err != nil {
				t.Fatal(err)
			}
		}
		warned := strings.Count(a.log.String(), "the clock of a replica differs")
		switch {
		case test.want == "" && warned != 0,
			test.want != "" && (warned != 1 || !strings.Contains(a.log.String(), test.want)):
			t.Errorf("a clock %s ahead: warned %d times, want once with %q:\n%s", test.ahead,
				warned, test.want, a.log)
		}
	}
}
