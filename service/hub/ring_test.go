package hub

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
)

// tokenAt returns the n-th token of a stream, of those with an order or of others.
func tokenAt(n int, ordered bool) bson.Raw {
	b := bson.NewBuilder(nil)
	if ordered {
		return b.String("_data", fmt.Sprintf("82%016X", n)).Finish()
	}
	return b.Int32("opaque", int32(n)).Finish()
}

// eventAt returns an event with the n-th token.
func eventAt(n, size int, ordered bool) bson.Raw {
	b := bson.NewBuilder(nil)
	return b.Document("_id", tokenAt(n, ordered)).String("pad", strings.Repeat("x", size)).Finish()
}

// naive is a ring that keeps everything, and finds what a ring still has by adding up.
type naive struct {
	budget int
	all    []*entry
	start  bson.Raw
	cut    int // all before it was evicted
}

func (m *naive) append(e *entry, begin int) {
	m.all = append(m.all, e)
	for m.cut < begin && m.bytes() > m.budget {
		m.cut++
	}
}

func (m *naive) bytes() (n int) {
	for _, e := range m.all[m.cut:] {
		n += e.cost()
	}
	return n
}

// tokenBefore returns the token that the i-th entry follows.
func (m *naive) tokenBefore(i int) bson.Raw {
	if i == 0 {
		return m.start
	}
	return m.all[i-1].token
}

// TestRingIsTheModel compares a ring with one that keeps everything, in random runs of appends,
// evictions, readers and resumes. A reply has any number of entries. Tokens have even numbers, so
// that odd ones are in between.
func TestRingIsTheModel(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 27))
		ordered, budget := seed%2 == 0, rnd.IntN(4000)
		start := tokenAt(0, ordered)
		r, m := newRing(budget, start), &naive{budget: budget, start: start}
		var reader uint64
		begin := 0 // the newest reply
		for range 300 {
			switch rnd.IntN(8) {
			case 0, 1, 2:
				n := 2 * (len(m.all) + 1)
				event := eventAt(n, rnd.IntN(600), ordered)
				e := &entry{event: event, token: tokenOf(event)}
				if rnd.IntN(5) == 0 {
					e = &entry{token: tokenAt(n, ordered)}
				}
				if rnd.IntN(3) > 0 {
					begin = len(m.all)
				}
				before := r.bytes
				evicted := r.append(e, uint64(begin))
				if m.append(e, begin); r.bytes != before+e.cost()-evicted {
					t.Fatalf("append says %d evicted: %d bytes became %d", evicted, before, r.bytes)
				}
			case 3:
				if m.cut < len(m.all) {
					r.evict()
					m.cut++
				}
			case 4:
				reader = uint64(rnd.IntN(len(m.all) + 1))
			case 5, 6:
				e, what := r.next(reader)
				switch i := int(reader); {
				case i < m.cut && what != overrun, i >= len(m.all) && i >= m.cut && what != atEnd:
					t.Fatalf("seed %d: next(%d) is %d", seed, i, what)
				case i >= m.cut && i < len(m.all):
					if what != held || !bytes.Equal(e.event, m.all[i].event) {
						t.Fatalf("seed %d: next(%d) = %v, %d", seed, i, e, what)
					}
					reader++
				}
			case 7:
				number := rnd.IntN(2*len(m.all) + 4)
				checkAfter(t, r, m, number, ordered)
			}
			if r.bytes != m.bytes() || r.end() != uint64(len(m.all)) ||
				r.bytes > budget && r.first < uint64(begin) {
				t.Fatalf("seed %d: %d bytes of %d, end %d; want %d, %d",
					seed, r.bytes, budget, r.end(), m.bytes(), len(m.all))
			}
			if !bytes.Equal(r.firstToken(), m.tokenBefore(m.cut)) ||
				!bytes.Equal(r.last(), m.tokenBefore(len(m.all))) {
				t.Fatalf("seed %d: tokens %v, %v", seed, r.firstToken(), r.last())
			}
		}
		if len(r.numbers) != len(r.entries) {
			t.Fatalf("seed %d: %d numbers of %d entries", seed, len(r.numbers), len(r.entries))
		}
	}
}

// checkAfter asks for the position behind a token, of an entry if its number is even.
func checkAfter(t *testing.T, r *ring, m *naive, number int, ordered bool) {
	t.Helper()
	want := number / 2
	known := want >= m.cut && want <= len(m.all)
	if number%2 == 1 {
		known = known && ordered && want < len(m.all)
	}
	got, ok := r.after(tokenAt(number, ordered))
	if ok != known || ok && got != uint64(want) {
		t.Fatalf("after(token %d) = %d, %t; want %d, %t (cut %d of %d)",
			number, got, ok, want, known, m.cut, len(m.all))
	}
}

// TestRingEdges has budgets that hold nothing, or just one event, and streams without a start. Each
// event is a reply.
func TestRingEdges(t *testing.T) {
	event := func(n int) *entry {
		e := eventAt(n, 100, true)
		return &entry{event: e, token: tokenOf(e)}
	}
	one := event(1).cost()
	for name, c := range map[string]struct {
		budget, appended, held int
		oldest                 found // at the first position
		start, first           bson.Raw
	}{
		"empty":         {one, 0, 0, atEnd, nil, nil},
		"begun":         {one, 0, 0, atEnd, tokenAt(0, true), tokenAt(0, true)},
		"no start":      {one, 1, 1, held, nil, tokenAt(1, true)},
		"just one":      {one, 1, 1, held, tokenAt(0, true), tokenAt(0, true)},
		"a byte less":   {one - 1, 1, 1, held, tokenAt(0, true), tokenAt(0, true)},
		"one of two":    {2*one - 1, 2, 1, overrun, tokenAt(0, true), tokenAt(1, true)},
		"both":          {2 * one, 2, 2, held, tokenAt(0, true), tokenAt(0, true)},
		"nothing fits":  {0, 3, 1, overrun, tokenAt(0, true), tokenAt(2, true)},
		"less than one": {-1, 1, 1, held, nil, tokenAt(1, true)},
	} {
		r := newRing(c.budget, c.start)
		for n := range c.appended {
			r.append(event(n+1), r.end())
		}
		_, oldest := r.next(0)
		_, newest := r.next(uint64(c.appended))
		if len(r.entries) != c.held || r.bytes != c.held*one ||
			oldest != c.oldest || newest != atEnd {
			t.Errorf("%s: %d entries, %d bytes, oldest %d, newest %d",
				name, len(r.entries), r.bytes, oldest, newest)
		}
		if !bytes.Equal(r.firstToken(), c.first) {
			t.Errorf("%s: the first token is %v, want %v", name, r.firstToken(), c.first)
		}
		if p, ok := r.after(r.last()); ok != (r.last() != nil) || ok && p != uint64(c.appended) {
			t.Errorf("%s: after the last token is %d, %t", name, p, ok)
		}
	}
}

// firstToken returns the oldest token that the ring goes on after; nil: there is none.
func (r *ring) firstToken() bson.Raw {
	if r.before == nil && len(r.entries) > 0 {
		return r.entries[0].token
	}
	return r.before
}

// TestAfter asks a ring for tokens that it has not seen. It knows their place by their time alone.
func TestAfter(t *testing.T) {
	token := func(text string) bson.Raw {
		return bson.NewBuilder(nil).String("_data", text).Finish()
	}
	const at = "8268" // and 14 digits
	r := newRing(1<<20, token(at+"00000000000010AA"))
	for _, text := range []string{
		"00000000000020AA", "00000000000020BB", "00000000000030", "00000000000040",
	} {
		r.append(&entry{token: token(at + text)}, r.end())
	}
	for text, want := range map[string]int{
		at + "00000000000010AA":     0,  // where the ring begins
		at + "00000000000010BB":     -1, // something else at that time
		at + "0000000000000F":       -1,
		at + "00000000000011":       0,
		at + "00000000000020AA":     1,
		at + "00000000000020AB":     -1, // only the server knows
		at + "00000000000025ZZ":     2,
		at + "00000000000030":       3,
		at + "00000000000035":       3,
		at + "00000000000041":       -1, // the future
		at + "00000":                -1,
		"8168" + "0000000000003500": -1, // another type
		"zz":                        -1,
		"":                          -1,
	} {
		n, ok := r.after(token(text))
		if ok != (want >= 0) || ok && int(n) != want {
			t.Errorf("after(%s) = %d, %t; want %d", text, n, ok, want)
		}
	}
	r.append(&entry{token: token("opaque")}, r.end())
	if n, ok := r.after(token(at + "00000000000035")); ok {
		t.Errorf("in a ring with a token that has no time, another is at %d", n)
	}
}
