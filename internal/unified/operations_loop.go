package unified

import (
	"context"
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/bson"
)

// iterations is how often a loop runs. The format has it run until a workload executor asks it to
// end, which there is none of here.
const iterations = 10

// looping holds what a loop has come to. The names are those of entities; empty: it is not stored.
type looping struct {
	errors, failures          []bson.Raw
	errorsAs, failuresAs      string
	successes, rounds         int64
	successesAs, iterationsAs string
}

// loop runs operations again and again. An operation that fails ends its round.
func loop(r *run, _ *run, a *arguments) action {
	all := operations(a.must("operations").documents("operations"))
	l := &looping{
		errorsAs: a.text("storeErrorsAsEntity"), failuresAs: a.text("storeFailuresAsEntity"),
		successesAs:  a.text("storeSuccessesAsEntity"),
		iterationsAs: a.text("storeIterationsAsEntity"),
	}
	return func(ctx context.Context) outcome {
		for range iterations {
			if err := l.round(ctx, r, all); err != nil {
				return outcome{broken: err}
			}
		}
		return failed(l.store(r))
	}
}

// round runs all operations once. Its error ends the loop.
func (l *looping) round(ctx context.Context, r *run, all []operation) error {
	l.rounds++
	for _, op := range all {
		out, err := r.perform(ctx, op, &arguments{run: r, doc: op.arguments})
		if err != nil {
			return fmt.Errorf("%s on %s cannot be run: %w", op.name, op.object, err)
		}
		if err := r.check(op, out); err != nil {
			return l.keep(out.err != nil && op.expectError == nil, err)
		}
		l.successes++
	}
	return nil
}

// keep stores the error of an operation, or that its result is not as expected, and returns it if
// there is no entity for either.
func (l *looping) keep(isError bool, err error) error {
	doc := bson.NewBuilder(nil).String("error", err.Error()).Double("time", seconds()).Finish()
	switch {
	case l.errorsAs != "" && (isError || l.failuresAs == ""):
		l.errors = append(l.errors, doc)
	case l.failuresAs != "":
		l.failures = append(l.failures, doc)
	default:
		return err
	}
	return nil
}

// store makes the entities. Lists of the same name become longer.
func (l *looping) store(r *run) error {
	r.lengthen(l.errorsAs, l.errors)
	r.lengthen(l.failuresAs, l.failures)
	var errs []error
	if l.successesAs != "" {
		errs = append(errs, r.entities.add(l.successesAs, bson.Int64Value(l.successes)))
	}
	if l.iterationsAs != "" {
		errs = append(errs, r.entities.add(l.iterationsAs, bson.Int64Value(l.rounds)))
	}
	return errors.Join(errs...)
}

// lengthen appends documents to a list, which it makes if there is none; an empty name is none.
func (r *run) lengthen(name string, docs []bson.Raw) {
	if name == "" {
		return
	}
	if before, err := get[bson.Value](r, name); err == nil {
		earlier := bson.NewBuilder(nil).Value("list", before).Finish()
		docs = append(documents(earlier, "list"), docs...)
	}
	r.entities.set(name, list(docs).value)
}
