package unified

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/selection"
)

// database and collection are what their options make the operations on them inherit.
type (
	database struct {
		client  *observed
		name    string
		inherit inherited
	}
	collection struct {
		client  *observed
		ns      client.Namespace
		inherit inherited
	}
	inherited struct {
		readConcern    *client.ReadConcern
		writeConcern   *client.WriteConcern
		readPreference *selection.ReadPreference
		timeout        *time.Duration
	}
)

// reads returns the common options of an operation that reads.
func (in inherited) reads(a *arguments) client.Common {
	o := in.lists(a)
	if !inTransaction(o.Session) {
		o.ReadConcern, o.ReadPreference = in.readConcern, in.readPreference
	}
	return o
}

// inTransaction reports whether operations of a session belong to a transaction, which inherit
// nothing of their collection.
func inTransaction(s *client.Session) bool { return s != nil && s.TransactionState().Running() }

// writes returns the common options of an operation that writes.
func (in inherited) writes(a *arguments) client.Common {
	o := in.lists(a)
	if !inTransaction(o.Session) {
		o.WriteConcern = in.writeConcern
	}
	return o
}

// lists returns the common options of an operation that lists.
func (in inherited) lists(a *arguments) client.Common {
	return client.Common{
		Comment: a.value("comment"), Timeout: a.timeout(in.timeout), RawData: a.bool("rawData"),
		Session: a.session(),
	}
}

// both returns the common options of an operation that may do either.
func (in inherited) both(a *arguments) client.Common {
	o := in.reads(a)
	if !inTransaction(o.Session) {
		o.WriteConcern = in.writeConcern
	}
	return o
}

// command returns the common options of a command that runs as it is.
func (in inherited) command(a *arguments) client.Common {
	return client.Common{
		Timeout: a.timeout(in.timeout), ReadPreference: a.readPreference("readPreference"),
		Session: a.session(),
	}
}

// openCursor reads a cursor one document at a time.
type openCursor struct {
	*cursor.Cursor
	batch []bson.Raw
}

// maxQueued is more operations than any test has a thread run.
const maxQueued = 100

// thread runs operations in order, beside the test's own.
type thread struct {
	todo  chan operation
	done  chan struct{}
	ended sync.Once // closes todo

	// err is the first error; it is read when done is closed.
	err error
}

// entities holds the entities of a test by name.
type entities struct {
	mu sync.Mutex
	m  map[string]any
}

func (e *entities) add(name string, entity any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.m[name]; ok {
		return fmt.Errorf("there is an entity %q already", name)
	}
	e.m[name] = entity
	return nil
}

func (e *entities) set(name string, entity any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.m[name] = entity
}

// get finds an entity of a type.
func get[T any](r *run, name string) (T, error) {
	r.entities.mu.Lock()
	defer r.entities.mu.Unlock()
	entity, ok := r.entities.m[name].(T)
	if !ok {
		return entity, fmt.Errorf("there is no entity %q of the type %T", name, entity)
	}
	return entity, nil
}

// create makes entities in order. Those that cannot be made yet are left out: tests that use them
// are skipped.
func (r *run) create(ctx context.Context, specs []bson.Raw) error {
	s := survey{lacking: r.lacking}
	s.entities(specs)
	for _, spec := range specs {
		kind := spec.FirstKey()
		one := document(spec, kind)
		if _, lacking := r.lacking[text(one, "id")]; lacking {
			continue
		}
		make, ok := map[string]func(context.Context, *arguments) (any, error){
			"client": r.newClient, "database": r.newDatabase, "collection": r.newCollection,
			"thread": r.newThread, "session": r.newSession,
		}[kind]
		if !ok {
			return fmt.Errorf("there are no entities of the kind %q", kind)
		}
		a := &arguments{run: r, doc: one}
		name := a.text("id")
		err := r.entities.add(name, nil) // before it is made, since nothing would end it else
		var entity any
		if err == nil {
			entity, err = make(ctx, a)
		}
		if err == nil {
			r.entities.set(name, entity)
		}
		if err != nil {
			return fmt.Errorf("make the %s %q: %w", kind, name, err)
		}
	}
	return nil
}

func (r *run) newDatabase(_ context.Context, a *arguments) (any, error) {
	owner, name := a.text("client"), a.text("databaseName")
	inherit, err := newInherited(inherited{}, a.document("databaseOptions"))
	if err == nil {
		err = a.done()
	}
	if err != nil {
		return nil, err
	}
	c, err := get[*observed](r, owner)
	return &database{client: c, name: name, inherit: inherit}, err
}

func (r *run) newCollection(_ context.Context, a *arguments) (any, error) {
	owner, name, options := a.text("database"), a.text("collectionName"),
		a.document("collectionOptions")
	if err := a.done(); err != nil {
		return nil, err
	}
	d, err := get[*database](r, owner)
	if err != nil {
		return nil, err
	}
	inherit, err := newInherited(d.inherit, options)
	return &collection{
		client: d.client, ns: client.Namespace{Database: d.name, Collection: name},
		inherit: inherit,
	}, err
}

func newInherited(in inherited, options bson.Raw) (inherited, error) {
	var err error
	for key, v := range options.All() {
		d, _ := v.Document()
		switch key {
		case "readConcern":
			in.readConcern, err = newReadConcern(d)
		case "writeConcern":
			in.writeConcern, err = newWriteConcern(d)
		case "timeoutMS":
			ms, _ := v.AsInt64()
			in.timeout = new(time.Duration(ms) * time.Millisecond)
		case "readPreference":
			in.readPreference, err = newReadPreference(d)
		default:
			err = fmt.Errorf("there is no option %q", key)
		}
		if err != nil {
			return in, err
		}
	}
	return in, nil
}

func (r *run) newThread(ctx context.Context, a *arguments) (any, error) {
	t := &thread{todo: make(chan operation, maxQueued), done: make(chan struct{})}
	r.threads.Go(func() {
		defer close(t.done)
		for {
			select {
			case op, ok := <-t.todo:
				if !ok {
					return
				}
				if err := r.operation(ctx, op); err != nil && t.err == nil {
					t.err = err
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return t, a.done()
}

// valueOf returns an entity that is a value, for the matcher.
func (r *run) valueOf(name string) (bson.Value, bool) {
	if events, err := get[storedEvents](r, name); err == nil {
		return events.value(), true
	}
	v, err := get[bson.Value](r, name)
	return v, err == nil
}

// next returns the next document: nil if the server sent an empty batch.
func (c *openCursor) next(ctx context.Context) (bson.Raw, error) {
	if len(c.batch) == 0 {
		b, err := c.Next(ctx)
		if err != nil {
			return nil, err
		}
		c.batch = b.Documents
	}
	if len(c.batch) == 0 {
		return nil, nil
	}
	doc := c.batch[0]
	c.batch = c.batch[1:]
	return doc, nil
}

// optionTexts returns uriOptions in the form of a connection string.
func optionTexts(options bson.Raw) (map[string][]string, error) {
	all := map[string][]string{}
	for key, v := range options.All() {
		if properties, ok := v.Document(); ok && strings.EqualFold(key, "authMechanismProperties") {
			text, err := propertiesText(properties)
			if err != nil {
				return nil, fmt.Errorf("option %s: %w", key, err)
			}
			all[key] = []string{text}
			continue
		}
		values := []bson.Value{v}
		if array, ok := v.Array(); ok {
			values = nil
			for _, item := range array.All() {
				values = append(values, item)
			}
		}
		for _, v := range values {
			text, err := optionText(v)
			if err != nil {
				return nil, fmt.Errorf("option %s: %w", key, err)
			}
			all[key] = append(all[key], text)
		}
	}
	return all, nil
}

// propertiesText returns the text of authMechanismProperties. A placeholder stands for those of the
// deployment's mechanism.
func propertiesText(properties bson.Raw) (string, error) {
	if properties.Has("$$placeholder") {
		return "ENVIRONMENT:test", nil
	}
	var all []string
	for name, v := range properties.All() {
		text, err := optionText(v)
		if err != nil {
			return "", fmt.Errorf("property %s: %w", name, err)
		}
		all = append(all, name+":"+text)
	}
	return strings.Join(all, ","), nil
}

func optionText(v bson.Value) (string, error) {
	if s, ok := v.Str(); ok {
		return s, nil
	}
	if b, ok := v.Bool(); ok {
		return strconv.FormatBool(b), nil
	}
	if n, ok := v.AsInt64(); ok {
		return strconv.FormatInt(n, 10), nil
	}
	return "", fmt.Errorf("a %v is not an option's value", v.Type)
}

// topologyDescription holds what recordTopologyDescription saves.
type topologyDescription struct{ description.Topology }

// end lets the thread end when it has done what it has to do.
func (t *thread) end() { t.ended.Do(func() { close(t.todo) }) }
