package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// state holds what the documents of a group are, by their names; those that are not there are as
// they were in the beginning.
type state map[string]Contents

// modelOf returns the documents of one group as porcupine's model.
func modelOf(initial Contents) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(before, input, _ any) []any {
			o, was := input.(Operation), before.(state)
			after, explained := was.apply(o, initial)
			switch {
			case o.Unknown:
				return []any{was, after}
			case explained:
				return []any{after}
			}
			return nil
		},
		Equal: func(a, b any) bool { return maps.Equal(a.(state), b.(state)) },
	}
}

// apply returns what the documents are after an operation, and reports whether its steps were told
// so.
func (s state) apply(o Operation, initial Contents) (after state, explained bool) {
	after, explained = maps.Clone(s), true
	for _, step := range o.Steps {
		was, known := after[step.Document]
		if !known {
			was = initial
		}
		is, done := step.apply(was)
		after[step.Document] = is
		explained = explained && (step.Kind == Read || step.Done == done) &&
			(step.Seen == nil || *step.Seen == is)
	}
	return after, explained
}

// apply returns what a step makes of a document, and whether it does something.
func (s Step) apply(was Contents) (is Contents, done bool) {
	only := Contents{true, Items([]int{s.Value})}
	switch s.Kind {
	case Read:
		return was, true
	case Append:
		switch {
		case !was.Exists && !s.Upsert:
			return was, false
		case !was.Exists || was.Items == "[]":
			return only, was.Exists
		}
		items := strings.TrimSuffix(was.Items, "]")
		return Contents{true, fmt.Sprintf("%s %d]", items, s.Value)}, true
	case Set:
		if was.Exists {
			return only, true
		}
	case Swap:
		if was == (Contents{true, Items([]int{s.Old})}) {
			return only, true
		}
	case Insert:
		if !was.Exists {
			return only, true
		}
	case Delete:
		return Contents{}, was.Exists
	}
	return was, false
}

func (s Step) String() string {
	text := fmt.Sprintf("%s %s", kinds[s.Kind], s.Document)
	switch s.Kind {
	case Swap:
		text += fmt.Sprintf(" %d to %d", s.Old, s.Value)
	case Append, Set, Insert:
		text += fmt.Sprintf(" %d", s.Value)
	case Read, Delete:
	}
	if s.Kind != Read && !s.Done {
		text += " (not done)"
	}
	if s.Seen != nil && !s.Seen.Exists {
		return text + ": no document"
	} else if s.Seen != nil {
		return text + ": " + s.Seen.Items
	}
	return text
}

// describe returns a group's history, an operation a line, in the order of their calls.
func describe(name string, all []porcupine.Operation) string {
	slices.SortFunc(all, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	text := "no order explains what was seen of " + name
	for _, p := range all {
		o, end := p.Input.(Operation), time.Duration(p.Return).String()
		if o.Unknown {
			end = "unknown"
		}
		text += fmt.Sprintf("\n    %v to %s, client %d: %v", time.Duration(p.Call), end, p.ClientId,
			o.Steps)
	}
	return text
}
