package unified

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/unified/match"
)

// waitLimit is how long a test waits for an event, a thread or a connection.
const waitLimit = 10 * time.Second

// events checks expectEvents of one client.
func (r *run) events(expected bson.Raw) error {
	c, err := get[*observed](r, text(expected, "client"))
	if err != nil {
		return err
	}
	wanted := category(text(expected, "eventType"))
	if wanted == "" {
		wanted = categoryCommand
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var actual []seen
	for _, e := range c.events {
		if slices.Contains(categories[wanted], e.kind) {
			actual = append(actual, e)
		}
	}
	events := documents(expected, "events")
	for i, want := range events {
		if i >= len(actual) {
			return fmt.Errorf("event %d of %d is missing: %s, after %v", i, len(events),
				match.Text(bson.DocumentValue(want)), actual)
		}
		if err := r.matchEvent(want, actual[i]); err != nil {
			return fmt.Errorf("event %d: %w; all: %v", i, err, actual)
		}
	}
	extra, _ := lookup(expected, "ignoreExtraEvents").Bool()
	if len(actual) > len(events) && !extra && !r.later {
		return fmt.Errorf("%d events of the type %s that are not expected: %v, after %v",
			len(actual)-len(events), wanted, actual[len(events):], actual[:len(events)])
	}
	return nil
}

func (s seen) String() string {
	return s.kind + match.Text(bson.DocumentValue(s.fields))
}

// matchEvent compares one event. Each of its fields is a document by itself.
func (r *run) matchEvent(expected bson.Raw, actual seen) error {
	kind := expected.FirstKey()
	if kind != actual.kind {
		return fmt.Errorf("is a %v, want a %s", actual, kind)
	}
	for key, want := range document(expected, kind).All() {
		if err := r.matcher.Root(want, lookup(actual.fields, key)); err != nil {
			return fmt.Errorf("%s of %v: %w", key, actual, err)
		}
	}
	return nil
}

// count returns how many of the client's events match the expected event.
func (r *run) count(c *observed, expected bson.Raw) (n int, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if r.matchEvent(expected, e) == nil {
			n++
		}
	}
	return n, c.changed
}

// await blocks until look reports that a client's state is as expected, or until limit is over.
// look also returns a channel that is closed when the state changes.
func await(
	ctx context.Context, limit time.Duration, what string, look func() (bool, <-chan struct{}),
) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		done, changed := look()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waited %v for %s", limit, what)
		}
	}
}

// logs checks expectLogMessages of one client.
func (r *run) logs(expected bson.Raw) error {
	c, err := get[*observed](r, text(expected, "client"))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ignored := documents(expected, "ignoreMessages")
	var actual []bson.Raw
	for _, m := range c.messages {
		if !slices.ContainsFunc(ignored, func(i bson.Raw) bool {
			return r.matchMessage(i, m) == nil
		}) {
			actual = append(actual, m)
		}
	}
	messages := documents(expected, "messages")
	for i, want := range messages {
		if i >= len(actual) {
			return fmt.Errorf("log message %d of %d is missing: %s; all: %s", i, len(messages),
				match.Text(bson.DocumentValue(want)), all(actual))
		}
		if err := r.matchMessage(want, actual[i]); err != nil {
			return fmt.Errorf("log message %d: %w; all: %s", i, err, all(actual))
		}
	}
	extra, _ := lookup(expected, "ignoreExtraMessages").Bool()
	if len(actual) > len(messages) && !extra {
		return fmt.Errorf("log messages that are not expected: %s", all(actual[len(messages):]))
	}
	return nil
}

func all(messages []bson.Raw) string {
	text := ""
	for _, m := range messages {
		text += "\n\t" + match.Text(bson.DocumentValue(m))
	}
	return text
}

func (r *run) matchMessage(expected, actual bson.Raw) error {
	for key, want := range expected.All() {
		if key == "failureIsRedacted" {
			failure := text(actual, "data", "failure")
			// The servers give each error a text. An error without one was redacted.
			redacted := strings.Contains(failure, "no message (")
			if wanted, _ := want.Bool(); failure == "" || redacted != wanted {
				return fmt.Errorf("%s: the failure is %q, want redacted: %v", key, failure, wanted)
			}
			continue
		}
		if err := r.matcher.Root(want, lookup(actual, key)); err != nil {
			return fmt.Errorf("%s of %s: %w", key, match.Text(bson.DocumentValue(actual)), err)
		}
	}
	return nil
}

// outcome compares a collection's contents with what is expected of them, exactly, sorted by _id.
func (r *run) outcome(expected bson.Raw) error {
	namespace := text(expected, "databaseName") + "." + text(expected, "collectionName")
	actual, err := r.deployment.Contents(text(expected, "databaseName"),
		text(expected, "collectionName"))
	if err != nil {
		return fmt.Errorf("outcome: %s: %w", namespace, err)
	}
	want := documents(expected, "documents")
	if len(actual) != len(want) {
		return fmt.Errorf("outcome: %s has %d documents, want %d:%s", namespace, len(actual),
			len(want), all(actual))
	}
	for i := range want {
		if err := r.matcher.Nested(bson.DocumentValue(want[i]),
			bson.DocumentValue(actual[i])); err != nil {
			return fmt.Errorf("outcome: document %d of %s: %w", i, namespace, err)
		}
	}
	return nil
}
