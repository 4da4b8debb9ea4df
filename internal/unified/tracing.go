package unified

import (
	"context"
	"fmt"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventtrace"
	"github.com/mooringdb/mooring/internal/unified/match"
)

// span holds a recorded span. The mutex of its client guards its fields.
type span struct {
	client     *observed
	name       string
	attributes []eventtrace.Attribute
	nested     []*span
}

var _ eventtrace.Span = (*span)(nil)

// spanSink returns the sink that records the spans of a client.
func (c *observed) spanSink() *event.Sink {
	cfg := eventtrace.Config{Start: c.startSpan}
	if c.payload {
		cfg.MaxQueryTextLength = maxPayload
	}
	return eventtrace.Sink(cfg)
}

// maxPayload is longer than any command of a test.
const maxPayload = 1 << 24

func (c *observed) startSpan(
	_ context.Context, parent eventtrace.Span, name string, attributes []eventtrace.Attribute,
) eventtrace.Span {
	s := &span{client: c, name: name, attributes: attributes}
	c.mu.Lock()
	defer c.mu.Unlock()
	if of, ok := parent.(*span); ok {
		of.nested = append(of.nested, s)
	} else {
		c.spans = append(c.spans, s)
	}
	return s
}

// Set adds attributes.
func (s *span) Set(attributes []eventtrace.Attribute) {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	s.attributes = append(s.attributes, attributes...)
}

// Fail adds the attributes of an exception.
func (s *span) Fail(e eventtrace.Exception) {
	s.Set([]eventtrace.Attribute{
		{Key: "exception.type", Value: e.Type},
		{Key: "exception.message", Value: e.Message},
		{Key: "exception.stacktrace", Value: e.Stacktrace},
	})
}

// End has no effect: tests do not ask when a span ends.
func (s *span) End() {}

// document returns the attributes as the format compares them: a session's id is an lsid.
func (s *span) document() bson.Raw {
	b := new(bson.Builder)
	for _, a := range s.attributes {
		switch v := a.Value.(type) {
		case int64:
			b.Int64(a.Key, v)
		case string:
			id, err := bson.ParseUUID(v)
			if a.Key == "db.mongodb.lsid" && err == nil {
				b.OpenDocument(a.Key).Binary("id", subtypeUUID, id[:]).Close()
			} else {
				b.String(a.Key, v)
			}
		default:
			b.String(a.Key, fmt.Sprintf("bug: an attribute of the type %T", v))
		}
	}
	return b.Finish()
}

func (s *span) String() string {
	return s.name + match.Text(bson.DocumentValue(s.document())) + fmt.Sprint(s.nested)
}

// tracing checks expectTracingMessages of one client.
func (r *run) tracing(expected bson.Raw) error {
	c, err := get[*observed](r, text(expected, "client"))
	if err != nil {
		return err
	}
	extra, _ := lookup(expected, "ignoreExtraSpans").Bool()
	c.mu.Lock()
	defer c.mu.Unlock()
	var actual []*span
	for _, s := range c.spans {
		if !slices.ContainsFunc(s.nested, isFailPoint) { // which are the runner's
			actual = append(actual, s)
		}
	}
	return r.matchSpans(documents(expected, "spans"), actual, extra)
}

func isFailPoint(s *span) bool { return s.name == "configureFailPoint" }

// matchSpans compares spans in order. With extra, more may follow.
func (r *run) matchSpans(expected []bson.Raw, actual []*span, extra bool) error {
	for i, want := range expected {
		if i >= len(actual) {
			return fmt.Errorf("span %d of %d is missing: %s, after %v", i, len(expected),
				match.Text(bson.DocumentValue(want)), actual)
		}
		got := actual[i]
		if name := text(want, "name"); name != got.name {
			return fmt.Errorf("span %d is %q, want %q; all: %v", i, got.name, name, actual)
		}
		if err := r.matcher.Root(lookup(want, "attributes"),
			bson.DocumentValue(got.document())); err != nil {
			return fmt.Errorf("span %d, %s: %w; all: %v", i, got.name, err, actual)
		}
		if err := r.matchSpans(documents(want, "nested"), got.nested, extra); err != nil {
			return fmt.Errorf("below the span %d, %s: %w", i, got.name, err)
		}
	}
	if len(actual) > len(expected) && !extra {
		return fmt.Errorf("spans that are not expected: %v, after %v", actual[len(expected):],
			actual[:len(expected)])
	}
	return nil
}
