package unified

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/unified/match"
)

// run holds the state of one test.
type run struct {
	file       *File
	deployment *deployment.Deployment
	matcher    match.Matcher
	entities   entities
	lacking    map[string]string // entities that cannot be made, and why
	later      bool              // events may follow those that are expected
	threads    sync.WaitGroup
}

func newRun(d *deployment.Deployment, f *File) *run {
	r := &run{
		file: f, deployment: d, entities: entities{m: map[string]any{}},
		lacking: map[string]string{},
	}
	r.matcher = match.Matcher{Entity: r.valueOf, SessionLsid: r.lsid}
	return r
}

// test runs a test to its end, or to the first thing that is not as expected.
func (r *run) test(ctx context.Context, test Test) error {
	if test.Unevaluated != "" {
		return fmt.Errorf("the runner does not evaluate %s", test.Unevaluated)
	}
	if err := r.prepare(); err != nil {
		return err
	}
	if err := r.create(ctx, r.file.CreateEntities); err != nil {
		return err
	}
	for i, op := range test.Operations {
		if err := r.operation(ctx, op); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	settle()
	for _, check := range []struct {
		all   []bson.Raw
		check func(bson.Raw) error
	}{
		{test.ExpectEvents, r.events},
		{test.ExpectLogMessages, r.logs},
		{test.ExpectTracing, r.tracing},
		{test.Outcome, r.outcome},
	} {
		for _, expected := range check.all {
			if err := check.check(expected); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare gives the collections their initial data.
func (r *run) prepare() error {
	var databases []string
	for _, data := range r.file.InitialData {
		databases = append(databases, text(data, "databaseName"))
	}
	for _, entity := range r.file.CreateEntities {
		if name := text(entity, "database", "databaseName"); name != "" && name != "admin" {
			databases = append(databases, name)
		}
	}
	if err := r.deployment.Prepare(databases...); err != nil {
		return fmt.Errorf("empty the databases: %w", err)
	}
	for _, data := range r.file.InitialData {
		database, name := text(data, "databaseName"), text(data, "collectionName")
		if err := r.deployment.SetCollection(database, name, document(data, "createOptions"),
			documents(data, "documents")); err != nil {
			return fmt.Errorf("initial data of %s.%s: %w", database, name, err)
		}
	}
	return nil
}

// close ends threads and sessions, and then clients.
func (r *run) close(ctx context.Context) error {
	var errs []error
	r.entities.mu.Lock()
	defer r.entities.mu.Unlock()
	for _, entity := range r.entities.m {
		switch e := entity.(type) {
		case *thread:
			e.end()
		case *client.Session:
			e.End(ctx)
		}
	}
	for _, entity := range r.entities.m {
		if c, ok := entity.(*observed); ok {
			errs = append(errs, c.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// outcome holds the result of an operation.
type outcome struct {
	value  bson.Value
	items  bool // value is a list of documents that stand by themselves
	entity any  // what saveResultAsEntity saves, if it is not value
	err    error
	broken error // what was not as expected within the operation
}

// operation runs one operation, and checks what comes of it.
func (r *run) operation(ctx context.Context, op operation) error {
	a := &arguments{run: r, doc: op.arguments}
	out, err := r.perform(ctx, op, a)
	if err != nil {
		return fmt.Errorf("%s on %s cannot be run: %w", op.name, op.object, err)
	}
	if err := r.check(op, out); err != nil {
		return fmt.Errorf("%s on %s: %w", op.name, op.object, err)
	}
	return nil
}

// perform runs the operation. Its error says that it could not be run, which is not the operation's
// error.
func (r *run) perform(ctx context.Context, op operation, a *arguments) (outcome, error) {
	if op.object == "testRunner" {
		return call(ctx, runnerOperations(), op.name, r, a, r)
	}
	r.entities.mu.Lock()
	entity := r.entities.m[op.object]
	r.entities.mu.Unlock()
	switch e := entity.(type) {
	case *observed:
		return call(ctx, clientOperations, op.name, r, a, e)
	case *database:
		return call(ctx, databaseOperations, op.name, r, a, e)
	case *collection:
		return call(ctx, collectionOperations, op.name, r, a, e)
	case *openCursor:
		return call(ctx, cursorOperations, op.name, r, a, e)
	case *changestream.Stream:
		return call(ctx, streamOperations, op.name, r, a, e)
	case *client.Session:
		if op.name == "withTransaction" { // which leads back here
			return call(ctx, table[*client.Session]{op.name: withTransaction}, op.name, r, a, e)
		}
		return call(ctx, sessionOperations, op.name, r, a, e)
	}
	return outcome{}, fmt.Errorf("there is no entity %q that has operations", op.object)
}

// table has the operations on a kind of entity. Each reads its arguments, and returns what is to be
// done if nothing is wrong with them.
type table[T any] map[string]func(r *run, target T, a *arguments) action

type action = func(context.Context) outcome

func call[T any](
	ctx context.Context, operations table[T], name string, r *run, a *arguments, target T,
) (outcome, error) {
	prepare, ok := operations[name]
	if !ok {
		return outcome{}, errors.New("the operation is not known")
	}
	perform := prepare(r, target, a)
	if err := a.done(); err != nil {
		return outcome{}, err
	}
	return perform(ctx), nil
}

// check compares an outcome with what the test expects.
func (r *run) check(op operation, out outcome) error {
	switch {
	case out.broken != nil:
		return out.broken
	case op.ignore:
		return nil
	case op.expectError != nil:
		return r.expectedError(op.expectError, out.err, out.value)
	case out.err != nil:
		return fmt.Errorf("failed: %w", out.err)
	}
	if !op.expectResult.IsZero() {
		compare := r.matcher.Root
		if out.items {
			compare = r.matcher.RootItems
		}
		if err := compare(op.expectResult, out.value); err != nil {
			return fmt.Errorf("result: %w; all of it: %s", err, match.Text(out.value))
		}
	}
	if op.save == "" {
		return nil
	}
	if out.entity == nil {
		out.entity = out.value
	}
	return r.entities.add(op.save, out.entity)
}

// failed returns the outcome of an operation with an error.
func failed(err error) outcome { return outcome{err: err} }

// list returns a result of documents.
func list(docs []bson.Raw) outcome {
	b := bson.NewBuilder(nil).OpenArray("list")
	for _, d := range docs {
		b.Document("", d)
	}
	return outcome{value: lookup(b.Close().Finish(), "list"), items: true}
}
