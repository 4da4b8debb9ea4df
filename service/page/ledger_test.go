package page_test

import (
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/page"
)

var other = page.Replica{Address: "b", Instance: page.Instance{2}}

// Every phase, asked for pages 1 to 4 where page 3 would be granted next.
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
	evicted := delivered.Evicted()
	for _, test := range []struct {
		name       string
		l          page.Ledger
		remembered bool
		want       string
	}{
		{"delivered", delivered, true, "reused repeat fetch unknown"},
		{"delivered and forgotten", delivered, false, "reused reused fetch unknown"},
		{"being fetched", fetching, false, "reused wait unknown unknown"},
		{"lost", lost, false, "reused unknown unknown unknown"},
		{"the last", ended, true, "reused repeat unknown unknown"},
		{"the last, forgotten", ended, false, "reused reused unknown unknown"},
		{"refused", refused, false, "reused reused unknown unknown"},
		{"streamed", streamed, false, "reused reused unknown unknown"},
		{"evicted", evicted, false, "reused reused ended unknown"},
		{"moved", moved, false, "elsewhere elsewhere elsewhere elsewhere"},
		{"absent", page.Ledger{}, false, "elsewhere elsewhere elsewhere elsewhere"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for seq := uint64(1); seq <= 4; seq++ {
				_, v := test.l.Ask(page.Question{Seq: seq, Remembered: test.remembered})
				got = append(got, v.String())
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("pages 1 to 4: %s, want %s", text, test.want)
			}
			for seq := uint64(1); seq <= 4; seq++ {
				if _, v := test.l.Ask(page.Question{Seq: seq, Working: true}); v == page.Fetch {
					t.Errorf("page %d is granted beside a call that works", seq)
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
// delivered.
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
		if _, v := busy.Ask(page.Question{Seq: seq}); v != page.Wait {
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

// TestAccept checks which of two records of a cursor counts: the record with more moves. A record
// that comes again does not count, nor does one that comes while a call works on the cursor.
func TestAccept(t *testing.T) {
	rec := func(moves uint64) page.Record {
		r := page.Opened().Record()
		r.Moves = moves
		return r
	}
	here, ok := page.Ledger{}.Accept(rec(3), true, false)
	if !ok {
		t.Fatal("a record of an unknown cursor is refused")
	}
	for _, test := range []struct {
		name    string
		r       page.Record
		working bool
		want    bool
	}{
		{"again", rec(3), false, false},
		{"fewer moves", rec(2), false, false},
		{"more moves", rec(4), false, true},
		{"while a call works", rec(4), true, false},
		{"an unknown phase", page.Record{Phase: 99, Moves: 9}, false, false},
	} {
		if _, ok := here.Accept(test.r, true, test.working); ok != test.want {
			t.Errorf("%s: %v, want %v", test.name, ok, test.want)
		}
	}
	if l, _ := (page.Ledger{}).Accept(rec(1), false, false); l.Continues() {
		t.Error("a cursor that did not come along continues")
	} else if _, v := l.Ask(page.Question{Seq: 1}); v != page.Unknown {
		t.Errorf("the next page of a cursor that did not come along: %s", v)
	}
}

// A replica that is not sure whether its push has arrived grants nothing any more, except the
// last page, which cannot be skipped by that.
func TestUnsurePush(t *testing.T) {
	somewhere := page.Replica{Address: "b"}
	l, drop := page.Opened().Pushed(somewhere)
	if to, moved := l.Moved(); !drop || !moved || to != somewhere {
		t.Errorf("pushed to %v, dropped: %v", to, drop)
	}
	last := fetch(1)
	last, _ = last.Fetched(page.GotLast)
	if l, drop := last.Pushed(somewhere); drop {
		t.Error("the last page is dropped")
	} else if _, v := l.Ask(page.Question{Seq: 1, Remembered: true}); v != page.Repeat {
		t.Errorf("the last page: %s", v)
	}
	if _, drop := last.Pushed(other); !drop {
		t.Error("the last page, pushed for certain, stays")
	}
}
