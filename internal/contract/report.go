package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// Cell names a reason that calls of a way have got, with its advice.
type Cell struct {
	Way           Way
	Reason, Retry string
}

// Report holds what an experiment has found.
type Report struct {
	Operations, Calls int
	Elections         int
	Cells             map[Cell]int
	Faults            [faults]int
	Outcomes          map[Way]map[outcome]int
	// Twice are operations whose effect is there twice, Wrong those that the machine was told
	// something untrue of, and Stopped those that could have gone on and did not.
	Twice, Wrong, Stopped []string
}

// NewReport returns an empty report.
func NewReport() *Report {
	return &Report{Cells: map[Cell]int{}, Outcomes: map[Way]map[outcome]int{}}
}

// Add adds what another experiment has found.
func (r *Report) Add(other *Report) {
	r.Operations += other.Operations
	r.Calls += other.Calls
	r.Elections += other.Elections
	for cell, n := range other.Cells {
		r.Cells[cell] += n
	}
	for f, n := range other.Faults {
		r.Faults[f] += n
	}
	for way, counts := range other.Outcomes {
		for o, n := range counts {
			r.count(way, o, n)
		}
	}
	r.Twice = append(r.Twice, other.Twice...)
	r.Wrong = append(r.Wrong, other.Wrong...)
	r.Stopped = append(r.Stopped, other.Stopped...)
}

func (r *Report) count(way Way, o outcome, n int) {
	if r.Outcomes[way] == nil {
		r.Outcomes[way] = map[outcome]int{}
	}
	r.Outcomes[way][o] += n
}

// Violations returns a line for each operation that breaks the contract, but not for all of many.
func (r *Report) Violations() (lines []string) {
	for _, of := range []struct {
		what string
		all  []string
	}{
		{"applied twice", r.Twice}, {"told wrongly", r.Wrong}, {"could have gone on", r.Stopped},
	} {
		for _, line := range of.all[:min(len(of.all), mostLines)] {
			lines = append(lines, of.what+": "+line)
		}
	}
	return lines
}

const mostLines = 100

// Missing returns the faults that have not happened.
func (r *Report) Missing() (names []string) {
	for f, n := range r.Faults {
		if n == 0 {
			names = append(names, fault(f).String())
		}
	}
	return names
}

func (r *Report) faults() string {
	var text []string
	for f, n := range r.Faults {
		text = append(text, fmt.Sprintf("%s %d", fault(f), n))
	}
	return strings.Join(text, ", ")
}

// String returns a table of the cells, and the sums.
func (r *Report) String() string {
	var b strings.Builder
	cells := slices.SortedFunc(maps.Keys(r.Cells), func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.Way, b.Way), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Retry, b.Retry))
	})
	for _, c := range cells {
		fmt.Fprintf(&b, "%-10s %-34s %-13s %6d\n", c.Way, cmp.Or(c.Reason, "(no answer)"), c.Retry,
			r.Cells[c])
	}
	for way, name := range ways {
		fmt.Fprintf(&b, "%s: %v\n", name, r.Outcomes[Way(way)])
	}
	fmt.Fprintf(&b, "faults: %s\n", r.faults())
	fmt.Fprintf(&b, "%d elections, %d operations, %d calls, %d cells; %d applied twice, "+
		"%d told wrongly, %d that could have gone on and did not", r.Elections, r.Operations,
		r.Calls, len(cells), len(r.Twice), len(r.Wrong), len(r.Stopped))
	return b.String()
}

// judge compares what the machine knows of an operation with what was done.
func (r *Report) judge(op *operation, cfg Config) {
	r.Operations++
	r.Calls += op.calls
	r.count(op.way, op.outcome, 1)
	for _, f := range op.told {
		r.Cells[Cell{op.way, f.Reason, f.Retry}]++
	}
	docs, _ := cfg.Deployment.Documents(Database + "." + op.collection)
	done := op.effects(docs)
	line := fmt.Sprintf("%s, seed %d, operation %d, %s: %s, %d done, after %v, told %v",
		cfg.Profile, cfg.Seed, op.number, op.way, op.outcome, done, op.met, op.told)
	if slices.Max(done) > 1 {
		r.Twice = append(r.Twice, line)
	}
	if !op.isTrue(done) {
		r.Wrong = append(r.Wrong, line)
	}
	if !op.wentOn(cfg.Profile == Storm) {
		r.Stopped = append(r.Stopped, line)
	}
}

// effects returns how often each effect of an operation is there.
func (op *operation) effects(docs []bson.Raw) []int {
	switch op.way {
	case Page, Stream:
		return []int{0}
	case Import:
		done := make([]int, Imports)
		for _, doc := range docs {
			i, _ := doc.Lookup("i")
			n, _ := i.Int32()
			done[n]++
		}
		return done
	default:
		done := make([]int, 2)
		for i, doc := range docs {
			value, _ := doc.Lookup("n")
			n, _ := value.AsInt64()
			done[i] = int(n)
		}
		if op.way == Plain || op.way == Key {
			return done[:1]
		}
		return done
	}
}

// isTrue reports whether the effects are as the machine was told. A transaction's are there all, or
// not at all.
func (op *operation) isTrue(done []int) bool {
	all, none := slices.Min(done) == 1, slices.Max(done) == 0
	switch {
	case op.way == Page || op.way == Stream:
		return !op.wrong
	case op.duplicate:
		return none && op.outcome != succeeded
	case op.outcome == succeeded:
		return all
	case op.outcome == refused:
		return none || op.way == Import // its error says how many
	case op.way == Statement || op.way == Commit || op.way == Run:
		return all || none
	}
	return true
}

// wentOn reports whether the machine was never told to stop, or to begin anew, without a reason. In
// a storm there are more reasons than the operation has met.
func (op *operation) wentOn(inStorm bool) bool {
	switch op.outcome {
	case stuck:
		return false
	case refused:
		return op.isRefusal(op.told[len(op.told)-1].Reason)
	case unknown:
		return op.mayBeUnknown(inStorm)
	case succeeded:
	}
	if inStorm {
		return true
	}
	switch op.way {
	case Statement, Commit, Run:
		return op.restarts == 0 || op.hasMet(fault.endsTransaction)
	case Page:
		return op.restarts == 0 || op.hasLost("getMore")
	case Stream:
		return op.restarts == 0 || op.hasMet(func(f fault) bool { return f != slow })
	default:
		return true
	}
}

// isRefusal reports whether a reason is a good one to end the operation: its own error, or, for a
// read, the deadline of the call.
func (op *operation) isRefusal(reason string) bool {
	isRead := op.way == Page || op.way == Stream
	return op.duplicate && reason == "DuplicateKey" || isRead && reason == "DeadlineExceeded" &&
		op.hasMet(func(f fault) bool { return f == late })
}

// mayBeUnknown reports whether the gateway, or the client, cannot know what was done.
func (op *operation) mayBeUnknown(inStorm bool) bool {
	switch op.way {
	case Import: // an interrupted command may have inserted some documents
		return inStorm || op.hasMet(func(f fault) bool {
			return f.isUnanswered() || f.isOfCaller() || f == shutdown || f == stateChange
		})
	case Plain:
		return inStorm || op.hasMet(fault.isUnanswered) || op.hasMet(fault.isOfCaller)
	case Run:
		return inStorm || op.hasLost("commitTransaction") || op.hasMet(fault.isOfCaller)
	default:
		return false
	}
}

// hasLost reports whether it cannot be known of such a command if it was done.
func (op *operation) hasLost(command string) bool {
	return slices.ContainsFunc(op.met, func(m met) bool {
		return m.command == command && m.fault.isUnanswered()
	})
}

func (op *operation) hasMet(is func(fault) bool) bool {
	return slices.ContainsFunc(op.met, func(m met) bool { return is(m.fault) })
}
