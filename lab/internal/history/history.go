// Package history records what clients ask of documents and what they are answered, and has
// porcupine judge whether some order of the operations explains all answers: an order in which each
// operation takes effect once, as a whole, between its call and its answer. It calls no server.
package history

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind says what a step does with a document, whose contents are a list of numbers.
type Kind uint8

// The steps.
const (
	Read   Kind = iota // Seen: the list, or that there is no document
	Append             // of Value; if there is no document, nothing or, with Upsert, a new one
	Set                // makes Value the only item, if there is a document
	Swap               // the same, if Old is the only item
	Insert             // makes a document with Value, if there is none
	Delete
)

var kinds = [...]string{"read", "append", "set", "swap", "insert", "delete"}

// Step holds one step of an operation, with what the client was told of it.
type Step struct {
	Kind       Kind
	Document   string
	Value, Old int
	Upsert     bool

	// Done says whether there was such a document; for Insert, whether there was none. All steps
	// tell it but Read.
	Done bool
	// Seen is what the step has returned: for Read the list, for others the list afterwards; nil if
	// none was returned.
	Seen *Contents
}

// Contents holds what a document has at some time.
type Contents struct {
	Exists bool
	Items  string // as Items makes it
}

// Items returns the items of a list as a text.
func Items(list []int) string { return fmt.Sprint(list) }

// Operation holds steps that take effect at once, or not at all.
type Operation struct {
	// Group names what is judged together: operations of two groups share no document.
	Group string
	// Unknown says that the client has no answer that tells what became of the operation: it takes
	// effect at some time after its call, or never. What its steps were told does not count.
	Unknown bool
	Steps   []Step
}

// Recorder collects operations. All methods may be called at any time.
type Recorder struct {
	begun time.Time

	mu     sync.Mutex // guards groups
	groups map[string][]porcupine.Operation
}

// NewRecorder makes a recorder.
func NewRecorder() *Recorder {
	return &Recorder{begun: time.Now(), groups: map[string][]porcupine.Operation{}}
}

// Now returns the time of a call.
func (r *Recorder) Now() time.Duration { return time.Since(r.begun) }

// Add records an operation that was called at a time, and was answered now. It returns how many its
// group has, and how many of these are unknown.
func (r *Recorder) Add(client int, called time.Duration, o Operation) (all, unknown int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups[o.Group] = append(r.groups[o.Group], porcupine.Operation{
		ClientId: client, Input: o, Call: int64(called), Return: int64(r.Now()),
	})
	for _, other := range r.groups[o.Group] {
		if other.Input.(Operation).Unknown {
			unknown++
		}
	}
	return len(r.groups[o.Group]), unknown
}

// Verdict holds what porcupine says of a history.
type Verdict struct {
	Groups, Operations, Unknown int
	// Violations describe the groups that no order explains, Undecided names those for which
	// porcupine has found none in time.
	Violations, Undecided []string
}

// Judge has porcupine look for an order of each group's operations, for up to a time each. initial
// is what each document is at the beginning.
func (r *Recorder) Judge(initial Contents, most time.Duration) (v Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	documents := modelOf(initial)
	model := documents.ToModel()
	for name, all := range r.groups {
		v.Groups++
		v.Operations += len(all)
		all = slices.Clone(all)
		last := int64(r.Now())
		for i := range all {
			if all[i].Input.(Operation).Unknown {
				v.Unknown++
				all[i].Return = last
			}
		}
		switch porcupine.CheckOperationsTimeout(model, all, most) {
		case porcupine.Illegal:
			v.Violations = append(v.Violations, describe(name, all))
		case porcupine.Unknown:
			v.Undecided = append(v.Undecided, name)
		case porcupine.Ok:
		}
	}
	slices.Sort(v.Violations)
	return v
}

func (v Verdict) String() string {
	return fmt.Sprintf("%d operations, %d of them of unknown outcome, in %d groups: "+
		"%d violations, %d undecided", v.Operations, v.Unknown, v.Groups, len(v.Violations),
		len(v.Undecided))
}
