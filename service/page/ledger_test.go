package page_test

import (
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/page"
)

var other = page.Replica{Address: "b", Instance: page.Instance{2}}

// Every phase, asked for pages 1 to 4 where page 3 would be granted next: without and with
// allowGap.
func TestVerdicts(t *testing.T) {
	fetching := fetch(2)
	delivered, _ := fetching.Fetched(page.GotPage)
	lost, _ := fetching.Fetched(page.NoReply)
	ended, _ := fetching.Fetched(page.GotLast)
	refused, _ := fetching.Fetched(page.Refused)
	first := fetch(1)
	first, _ = first.Fetched(page.GotPage)
	streamed, _ := first.Ask(page.Question{Seq: 2, Stream: true})
	moved, _ := delivered.Pushed(other)
	for _, test := range []struct {
		name       string
		l          page.Ledger
		remembered bool
		want, gap  string
	}{
		{"delivered", delivered, true, "reused repeat fetch unknown", "reused repeat fetch skip"},
		{"delivered and forgotten", delivered, false, "reused reused fetch unknown", "reused reused fetch skip"},
		{"being fetched", fetching, false, "reused wait unknown unknown", "reused wait unknown unknown"},
		{"lost", lost, false, "reused unknown unknown unknown", "reused skip skip skip"},
		{"the last", ended, true, "reused repeat unknown unknown", "reused repeat skip skip"},
		{"the last, forgotten", ended, false, "reused reused unknown unknown", "reused reused skip skip"},
		{"refused", refused, false, "reused reused unknown unknown", "reused reused skip skip"},
		{"streamed", streamed, false, "reused reused unknown unknown", "reused reused unknown unknown"},
		{"moved", moved, false, "elsewhere elsewhere elsewhere elsewhere", "elsewhere elsewhere elsewhere elsewhere"},
		{"absent", page.Ledger{}, false, "elsewhere elsewhere elsewhere elsewhere", "elsewhere elsewhere elsewhere elsewhere"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, allowGap := range []bool{false, true} {
				var got []string
				for seq := uint64(1); seq <= 4; seq++ {
					_, v := test.l.Ask(page.Question{Seq: seq, AllowGap: allowGap, Remembered: test.remembered, Random: 1})
					got = append(got, v.String())
				}
				want := test.want
				if allowGap {
					want = test.gap
				}
				if text := strings.Join(got, " "); text != want {
					t.Errorf("pages 1 to 4, allowGap %v: %s, want %s", allowGap, text, want)
				}
				for seq := uint64(1); seq <= 4; seq++ { // nothing is granted while a call works on it
					if _, v := test.l.Ask(page.Question{Seq: seq, AllowGap: allowGap, Working: true}); v.Grants() {
						t.Errorf("page %d is granted beside a call that works", seq)
					}
				}
			}
		})
	}
}

// fetch returns the ledger while page n is fetched.
func fetch(n uint64) page.Ledger {
	l := page.Opened()
	for seq := uint64(1); seq <= n; seq++ {
		if seq > 1 {
			l, _ = l.Fetched(page.GotPage)
		}
		l, _ = l.Ask(page.Question{Seq: seq})
	}
	return l
}

// What a fetch leads to, and what becomes of the page that is asked for again.
func TestFetched(t *testing.T) {
	for _, test := range []struct {
		o      page.Outcome
		effect page.Effect
		again  page.Verdict
	}{
		{page.GotPage, page.Remember, page.Repeat},
		{page.GotLast, page.Remember, page.Repeat},
		{page.NotSent, page.Keep, page.Fetch},
		{page.NoReply, page.Forget, page.Unknown},
		{page.Refused, page.Close, page.Repeat},
	} {
		l := fetch(3)
		l, effect := l.Fetched(test.o)
		if effect != test.effect {
			t.Errorf("outcome %d: effect %d, want %d", test.o, effect, test.effect)
		}
		if _, v := l.Ask(page.Question{Seq: 3, Remembered: true}); v != test.again {
			t.Errorf("outcome %d, the same page again: %s, want %s", test.o, v, test.again)
		}
	}
}

// Whatever happens to the fetches, a page is never granted again after it may have been
// delivered, unless the client allows a gap.
func TestNeverGrantedTwice(t *testing.T) {
	outcomes := []page.Outcome{page.GotPage, page.GotLast, page.NotSent, page.NoReply, page.Refused}
	var walk func(l page.Ledger, seq uint64, depth int)
	walk = func(l page.Ledger, seq uint64, depth int) {
		if depth == 0 {
			return
		}
		busy, v := l.Ask(page.Question{Seq: seq})
		if v != page.Fetch {
			return
		}
		if _, v := busy.Ask(page.Question{Seq: seq, AllowGap: true}); v != page.Wait {
			t.Fatalf("while page %d is fetched, asking for it gives %s", seq, v)
		}
		for _, o := range outcomes {
			after, _ := busy.Fetched(o)
			_, again := after.Ask(page.Question{Seq: seq})
			if want := o == page.NotSent; (again == page.Fetch) != want {
				t.Fatalf("after outcome %d, page %d again: %s", o, seq, again)
			}
			walk(after, seq, depth-1)
			if o == page.GotPage {
				walk(after, seq+1, depth-1)
			}
		}
	}
	walk(page.Opened(), 1, 5)
}

// TestAccept checks which of two records of a cursor counts: the record with the newer branch, and
// on one branch the record with more moves. A record that comes again does not count, nor does one
// that comes while a call works on the cursor.
func TestAccept(t *testing.T) {
	rec := func(moves uint64, branch page.Branch) page.Record {
		r := page.Opened().Record(true)
		r.Moves, r.Branch = moves, branch
		return r
	}
	one, two := page.Branch{Gaps: 1, ID: 9}, page.Branch{Gaps: 2, ID: 1}
	here, ok := page.Ledger{}.Accept(rec(3, one), true, false)
	if !ok {
		t.Fatal("a record of an unknown cursor is refused")
	}
	for _, test := range []struct {
		name    string
		r       page.Record
		working bool
		want    bool
	}{
		{"again", rec(3, one), false, false},
		{"fewer moves", rec(2, one), false, false},
		{"more moves", rec(4, one), false, true},
		{"an older branch", rec(9, page.Branch{}), false, false},
		{"a newer branch", rec(1, two), false, true},
		{"another branch with as many gaps", rec(9, page.Branch{Gaps: 1, ID: 8}), false, false},
		{"while a call works", rec(4, two), true, false},
		{"an unknown phase", page.Record{Phase: 99, Moves: 9, Fork: page.Fork{Branch: two}}, false, false},
	} {
		if _, ok := here.Accept(test.r, true, test.working); ok != test.want {
			t.Errorf("%s: %v, want %v", test.name, ok, test.want)
		}
	}
	if l, _ := (page.Ledger{}).Accept(rec(1, one), false, false); l.Continues() == false {
		t.Error("a cursor without what is left of it cannot be continued even with a gap")
	} else if _, v := l.Ask(page.Question{Seq: 1, Branch: one}); v == page.Fetch {
		t.Error("a page is granted of a cursor that did not come along")
	}
}

// A replica that is not sure whether its push has arrived grants nothing any more, except the
// last page, which cannot be skipped by that.
func TestUnsurePush(t *testing.T) {
	somewhere := page.Replica{Address: "b"}
	l, effect := page.Opened().Pushed(somewhere)
	if to, moved := l.Moved(); effect != page.Drop || !moved || to != somewhere {
		t.Errorf("pushed to %v, effect %d", to, effect)
	}
	last := fetch(1)
	last, _ = last.Fetched(page.GotLast)
	if l, effect := last.Pushed(somewhere); effect != page.Keep {
		t.Errorf("the last page: effect %d", effect)
	} else if _, v := l.Ask(page.Question{Seq: 1, Remembered: true}); v != page.Repeat {
		t.Errorf("the last page: %s", v)
	}
	if _, effect := last.Pushed(other); effect != page.Drop {
		t.Errorf("the last page, pushed for certain: effect %d", effect)
	}
}
