// Package recent remembers the calls that were slow or refused lately, for operators: one entry for
// all calls of a kind, with the worst of them and how many there were. It decides which entries
// stay; what is slow or a refusal is decided by service/interceptor.
package recent

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	// MaxEntries is how many entries a List holds of slow calls, and how many of refused ones.
	MaxEntries = 200
	// maxText is the length at which texts of an entry are cut off, in bytes.
	maxText = 400
)

// Kind says why a call is remembered.
type Kind uint8

// Kinds of calls.
const (
	Slow Kind = iota
	Refused
	kinds
)

// Call describes a call that has ended.
type Call struct {
	// Calls that have these in common are of one kind.
	Method, Principal, Namespace, Shape string
	Code                                codes.Code
	Reason                              string

	RequestID string
	Client    netip.Addr // zero: not known
	Message   string     // of the error, for operators
	End       time.Time
	Took      Times
}

// Times holds where a call has spent its time. What is not in the parts, the gateway itself has
// used: for reading, deciding and converting.
type Times struct {
	Total                              time.Duration
	Queue, Selection, CheckOut, Server time.Duration
}

// Entry holds the calls of one kind.
type Entry struct {
	Call  // the longest
	Count int64
	First time.Time // when the first of them ended
	Last  time.Time
}

// List remembers calls. Its zero value is empty and ready; a nil *List remembers none.
type List struct {
	mu  sync.Mutex
	all [kinds]map[kind]*Entry
}

// kind holds what the calls of an entry have in common.
type kind struct {
	method, principal, namespace, shape, reason string
	code                                        codes.Code
}

// Add remembers a call. It does not block.
func (l *List) Add(why Kind, c *Call) {
	if l == nil {
		return
	}
	bounded := *c
	for _, text := range []*string{
		&bounded.Method, &bounded.Principal, &bounded.Namespace, &bounded.Shape, &bounded.Reason,
		&bounded.RequestID, &bounded.Message,
	} {
		*text = cut(*text)
	}
	k := kind{
		bounded.Method, bounded.Principal, bounded.Namespace, bounded.Shape, bounded.Reason,
		bounded.Code,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := l.all[why]
	if entries == nil {
		entries = make(map[kind]*Entry)
		l.all[why] = entries
	}
	e := entries[k]
	if e == nil {
		if len(entries) == MaxEntries {
			delete(entries, leastWanted(entries))
		}
		e = &Entry{Call: bounded, First: bounded.End}
		entries[k] = e
	} else if bounded.Took.Total >= e.Took.Total {
		e.Call = bounded
	}
	e.Count++
	e.Last = bounded.End
}

// cut returns a copy of a text, so that a part of a large message does not keep all of it.
func cut(text string) string {
	if len(text) <= maxText {
		return strings.Clone(text)
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// leastWanted returns the oldest entry of the principal that has the most, so that one that makes
// calls of ever new kinds pushes out its own.
func leastWanted(entries map[kind]*Entry) (oldest kind) {
	counts := make(map[string]int)
	for k := range entries {
		counts[k.principal]++
	}
	most := ""
	for p, n := range counts {
		if n > counts[most] || n == counts[most] && p < most {
			most = p
		}
	}
	var found *Entry
	for k, e := range entries {
		if k.principal == most && (found == nil || e.Last.Before(found.Last)) {
			oldest, found = k, e
		}
	}
	return oldest
}

// Entries returns the entries of one kind: slow ones with the slowest first, refused ones with the
// newest first.
func (l *List) Entries(why Kind) []Entry {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	all := make([]Entry, 0, len(l.all[why]))
	for _, e := range l.all[why] {
		all = append(all, *e)
	}
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b Entry) int {
		newest := cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.RequestID, b.RequestID))
		if why == Slow {
			return cmp.Or(cmp.Compare(b.Took.Total, a.Took.Total), newest)
		}
		return newest
	})
	return all
}
