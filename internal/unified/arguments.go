package unified

import (
	"fmt"
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/selection"
)

// arguments holds the arguments of an operation. The operation asks for each by name. done reports
// an argument that it did not ask for, or that has another type than it asked for.
type arguments struct {
	run   *run // whose entities arguments name
	doc   bson.Raw
	asked []string
	err   error
}

func (a *arguments) value(name string) bson.Value {
	a.asked = append(a.asked, name)
	return lookup(a.doc, name)
}

// typed returns an argument by one of bson.Value's accessors. given is false if the argument is
// missing.
func typed[T any](a *arguments, name string, as func(bson.Value) (T, bool)) (value T, given bool) {
	v := a.value(name)
	if v.IsZero() {
		return value, false
	}
	value, ok := as(v)
	if !ok && a.err == nil {
		a.err = fmt.Errorf("argument %s is a %v", name, v.Type)
	}
	return value, ok
}

// must objects to arguments that are missing.
func (a *arguments) must(names ...string) *arguments {
	for _, name := range names {
		if !a.doc.Has(name) && a.err == nil {
			a.err = fmt.Errorf("argument %s is missing", name)
		}
	}
	return a
}

func optional[T any](a *arguments, name string, as func(bson.Value) (T, bool)) *T {
	if v, given := typed(a, name, as); given {
		return &v
	}
	return nil
}

func (a *arguments) text(name string) string {
	s, _ := typed(a, name, bson.Value.Str)
	return s
}

func (a *arguments) document(name string) bson.Raw {
	d, _ := typed(a, name, bson.Value.Document)
	return d
}

func (a *arguments) array(name string) bson.Array {
	array, _ := typed(a, name, bson.Value.Array)
	return array
}

func (a *arguments) documents(name string) []bson.Raw {
	return slices.Collect(a.array(name).Documents())
}

func (a *arguments) int64(name string) *int64 { return optional(a, name, bson.Value.AsInt64) }

func (a *arguments) batchSize() *int32 {
	n := a.int64("batchSize")
	if n == nil {
		return nil
	}
	return new(int32(*n))
}

// number returns a number that must be given.
func (a *arguments) number(name string) int64 {
	if n := a.must(name).int64(name); n != nil {
		return *n
	}
	return 0
}

func (a *arguments) bool(name string) *bool { return optional(a, name, bson.Value.Bool) }

func (a *arguments) readPreference(name string) *selection.ReadPreference {
	d, given := typed(a, name, bson.Value.Document)
	if !given {
		return nil
	}
	rp, err := newReadPreference(d)
	if err != nil && a.err == nil {
		a.err = err
	}
	return rp
}

// timeout returns the timeoutMS of an operation, or else that of what it is run on.
func (a *arguments) timeout(inherited *time.Duration) *time.Duration {
	ms := a.int64("timeoutMS")
	if ms == nil {
		return inherited
	}
	return new(time.Duration(*ms) * time.Millisecond)
}

// serverAPI returns the stable API that a client declares.
func (a *arguments) serverAPI() *client.ServerAPI {
	doc := a.document("serverApi")
	if doc == nil {
		return nil
	}
	options := &arguments{doc: doc}
	api := &client.ServerAPI{
		Version: options.must("version").text("version"), Strict: options.bool("strict"),
		DeprecationErrors: options.bool("deprecationErrors"),
	}
	a.adopt(options)
	return api
}

var timeoutModes = map[string]client.TimeoutMode{
	"": client.TimeoutModeUnset, "cursorLifetime": client.CursorLifetime,
	"iteration": client.Iteration,
}

func (a *arguments) timeoutMode() client.TimeoutMode {
	return oneOf(a, "timeoutMode", timeoutModes)
}

var cursorTypes = map[string]client.CursorType{
	"": client.NonTailable, "nonTailable": client.NonTailable,
	"tailable": client.Tailable, "tailableAwait": client.TailableAwait,
}

func (a *arguments) cursorType() client.CursorType { return oneOf(a, "cursorType", cursorTypes) }

// oneOf returns what a text argument stands for. Without the argument it is that of "".
func oneOf[T any](a *arguments, name string, values map[string]T) T {
	text := a.text(name)
	value, ok := values[text]
	if !ok && a.err == nil {
		a.err = fmt.Errorf("there is no %s %q", name, text)
	}
	return value
}

func newReadPreference(d bson.Raw) (*selection.ReadPreference, error) {
	rp := &selection.ReadPreference{}
	for key, v := range d.All() {
		switch key {
		case "mode":
			name, _ := v.Str()
			mode, err := selection.ParseMode(name)
			if err != nil {
				return nil, err
			}
			rp.Mode = mode
		case "tagSets":
			for _, set := range documents(d, key) {
				var tags []description.Tag
				for name, v := range set.All() {
					value, _ := v.Str()
					tags = append(tags, description.Tag{Name: name, Value: value})
				}
				rp.TagSets = append(rp.TagSets, description.NewTagSet(tags...))
			}
		case "maxStalenessSeconds":
			n, _ := v.AsInt64()
			rp.MaxStalenessSeconds = &n
		case "hedge":
			hedge, _ := v.Document()
			enabled, _ := lookup(hedge, "enabled").Bool()
			rp.HedgeEnabled = &enabled //nolint:staticcheck // deprecated, and still accepted
		default:
			return nil, fmt.Errorf("readPreference has an unknown field %q", key)
		}
	}
	return rp, nil
}

func newReadConcern(d bson.Raw) (*client.ReadConcern, error) {
	rc := &client.ReadConcern{}
	for key, v := range d.All() {
		if key != "level" {
			return nil, fmt.Errorf("readConcern has an unknown field %q", key)
		}
		rc.Level, _ = v.Str()
	}
	return rc, nil
}

func newWriteConcern(d bson.Raw) (*client.WriteConcern, error) {
	wc := &client.WriteConcern{}
	for key, v := range d.All() {
		n, isNumber := v.AsInt64()
		switch {
		case key == "w" && isNumber:
			wc.Nodes = new(int32(n))
		case key == "w":
			wc.Tag, _ = v.Str()
		case key == "journal":
			j, _ := v.Bool()
			wc.Journal = &j
		case key == "wtimeoutMS":
			wc.WTimeoutMS = &n
		default:
			return nil, fmt.Errorf("writeConcern has an unknown field %q", key)
		}
	}
	return wc, nil
}

// adopt reports what is wrong with the arguments of an argument.
func (a *arguments) adopt(of *arguments) {
	if err := of.done(); err != nil && a.err == nil {
		a.err = err
	}
}

// done returns the first error in the arguments.
func (a *arguments) done() error {
	if a.err != nil {
		return a.err
	}
	for key := range a.doc.All() {
		if !slices.Contains(a.asked, key) {
			return fmt.Errorf("argument %s is not known", key)
		}
	}
	return nil
}
