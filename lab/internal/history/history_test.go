package history_test

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mooringdb/mooring/lab/internal/history"
)

// event is an operation of a story: it is called and answered at these seconds.
type event struct {
	call, answer int
	Operation
}

func seen(items ...int) *Contents { return &Contents{Exists: true, Items: Items(items)} }

var gone = &Contents{}

func read(from, to int, is *Contents) event {
	return event{from, to, Operation{Steps: []Step{{Kind: Read, Document: "a", Seen: is}}}}
}

func do(from, to int, k Kind, value int, done bool) event {
	return event{from, to, Operation{Steps: []Step{{
		Kind: k, Document: "a", Value: value, Done: done,
	}}}}
}

func (e event) unknown() event {
	e.Unknown = true
	return e
}

// swap sets a document to a value if it is 1.
func swap(from, to, value int, done bool) event {
	e := do(from, to, Swap, value, done)
	e.Steps[0].Old = 1
	return e
}

func upsert(from, to, value int, done bool) event {
	e := do(from, to, Append, value, done)
	e.Steps[0].Upsert = true
	return e
}

// both appends to two documents at once, from the beginning on.
func both(to, value int, a, b *Contents) event {
	return event{0, to, Operation{Steps: []Step{
		{Kind: Append, Document: "a", Value: value, Done: true, Seen: a},
		{Kind: Append, Document: "b", Value: value, Done: true, Seen: b},
	}}}
}

func readBoth(from, to int, a, b *Contents) event {
	return event{from, to, Operation{Steps: []Step{
		{Kind: Read, Document: "a", Seen: a}, {Kind: Read, Document: "b", Seen: b},
	}}}
}

// TestJudge has porcupine judge short stories of documents that are empty lists in the beginning.
func TestJudge(t *testing.T) {
	for _, row := range []struct {
		name  string
		legal bool
		story []event
	}{
		{"a read of the beginning", true, []event{read(0, 1, seen())}},
		{"a read of what was set", true, []event{do(0, 1, Set, 7, true), read(2, 3, seen(7))}},
		{"a stale read", false, []event{do(0, 1, Set, 7, true), read(2, 3, seen())}},
		{"a read beside a write", true, []event{do(0, 5, Set, 7, true), read(1, 2, seen(7)), read(1, 2, seen())}},
		{"a write that is seen and then not", false, []event{do(0, 9, Set, 7, true), read(1, 2, seen(7)), read(3, 4, seen())}},
		{"a read of what nobody wrote", false, []event{read(0, 1, seen(3))}},
		{"an append of unknown outcome that is seen late", true, []event{do(0, 1, Append, 7, true).unknown(), read(2, 3, seen()), read(4, 5, seen(7))}},
		{"one that is seen before it was called", false, []event{read(0, 1, seen(7)), do(2, 3, Append, 7, true).unknown()}},
		{"one that is never seen", true, []event{do(0, 1, Append, 7, true).unknown(), read(2, 3, seen())}},
		{"one that is seen twice", false, []event{do(0, 1, Append, 7, true).unknown(), read(2, 3, seen(7, 7))}},
		{"an append that is seen twice", false, []event{do(0, 1, Append, 7, true), read(2, 3, seen(7, 7))}},
		{"an append that is lost", false, []event{do(0, 1, Append, 7, true), do(2, 3, Append, 8, true), read(4, 5, seen(8))}},
		{"a swap", true, []event{do(0, 1, Set, 1, true), swap(2, 3, 2, true), swap(4, 5, 3, false), read(6, 7, seen(2))}},
		{"two swaps of one value", false, []event{do(0, 1, Set, 1, true), swap(2, 3, 2, true), swap(2, 3, 3, true)}},
		{"a swap that is refused wrongly", false, []event{do(0, 1, Set, 1, true), swap(2, 3, 2, false)}},
		{"a deletion, and two insertions", true, []event{do(0, 1, Delete, 0, true), read(2, 3, gone), do(4, 7, Insert, 1, true), do(4, 7, Insert, 2, false), read(8, 9, seen(1))}},
		{"two insertions that succeed", false, []event{do(0, 1, Delete, 0, true), do(4, 7, Insert, 1, true), do(4, 7, Insert, 2, true)}},
		{"a deletion of what is not there", false, []event{do(0, 1, Delete, 0, true), do(2, 3, Delete, 0, true)}},
		{"an append to what is not there", true, []event{do(0, 1, Delete, 0, true), do(2, 3, Append, 1, false), upsert(4, 5, 2, false), read(6, 7, seen(2))}},
		{"a transaction", true, []event{both(1, 1, seen(1), seen(1)), readBoth(2, 3, seen(1), seen(1))}},
		{"a read of half a transaction", false, []event{both(5, 1, seen(1), seen(1)), readBoth(0, 5, seen(1), seen())}},
		{"two transactions that miss each other", false, []event{both(5, 1, seen(1), seen(2, 1)), both(5, 2, seen(1, 2), seen(2))}},
		{"a transaction of unknown outcome, by halves", false, []event{both(1, 1, nil, nil).unknown(), read(2, 3, seen(1)), readBoth(4, 5, seen(1), seen())}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := tell(row.story).Judge(*seen(), time.Minute)
				if legal := len(v.Violations) == 0; legal != row.legal || len(v.Undecided) > 0 {
					t.Errorf("legal: %t, want %t\n%v\n%v", legal, row.legal, v, v.Violations)
				}
			})
		})
	}
}

// tell records a story in fake time.
func tell(story []event) *Recorder {
	r := NewRecorder()
	for now := range 10 {
		for i, e := range story {
			if e.answer == now {
				r.Add(i, time.Duration(e.call)*time.Second, e.Operation)
			}
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
	}
	return r
}

// TestGroups checks that groups are judged apart, and that a judge who has no time says so.
func TestGroups(t *testing.T) {
	r := NewRecorder()
	for i, is := range []*Contents{seen(), seen(1)} {
		o := read(0, 1, is).Operation
		o.Group = []string{"right", "wrong"}[i]
		r.Add(i, r.Now(), o)
	}
	v := r.Judge(*seen(), time.Minute)
	if v.Groups != 2 || v.Operations != 2 || len(v.Violations) != 1 {
		t.Error(v)
	}
	many := NewRecorder()
	for i := range 200 {
		many.Add(i, 0, do(0, 0, Append, i, true).unknown().Operation)
	}
	many.Add(0, many.Now(), read(0, 0, seen(-1)).Operation)
	if v := many.Judge(*seen(), 10*time.Millisecond); len(v.Undecided) != 1 {
		t.Error(v)
	}
}
