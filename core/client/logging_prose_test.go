package client_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event/eventlog"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// logged runs a test with a client whose command messages are kept, with documents cut off at limit
// bytes (0: the default). field returns a field of the only message of a text about a command.
func logged(
	t *testing.T, limit int,
	test func(t *testing.T, srv *fakemongo.Server, c *client.Client,
		field func(message, command, key string) string),
) {
	t.Helper()
	var messages []eventlog.Message
	sink := eventlog.Sink(eventlog.Config{
		Components: []eventlog.Component{eventlog.Command}, MaxDocumentLength: limit,
		Write: func(m eventlog.Message) { messages = append(messages, m) },
	})
	field := func(message, command, key string) string {
		for _, m := range messages {
			fields := map[string]any{}
			for _, f := range m.Fields {
				fields[f.Key] = f.Value
			}
			if m.Message == message && fields["commandName"] == command {
				return fields[key].(string)
			}
		}
		t.Fatalf("no message %q about %s", message, command)
		return ""
	}
	runWith(t, nil, connstring.Config{}, client.Options{Sink: sink}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		test(t, srv, c, field)
	})
}

const ellipsis = "..."

// TestCommandLoggingProse1DefaultTruncationLimit is "Default truncation limit".
func TestCommandLoggingProse1DefaultTruncationLimit(t *testing.T) {
	logged(t, 0, func(t *testing.T, _ *fakemongo.Server, c *client.Client, field func(
		message, command, key string,
	) string,
	) {
		docs := make([]bson.Raw, 100)
		for i := range docs {
			docs[i] = doc(t, `{"x":"y"}`)
		}
		if _, err := c.InsertMany(t.Context(), orders, docs,
			client.InsertManyOptions{}); err != nil {
			t.Fatal(err)
		}
		if s := field("Command started", "insert", "command"); len(s) != 1000+len(ellipsis) ||
			!strings.HasSuffix(s, ellipsis) {
			t.Errorf("the command has %d bytes: %s", len(s), s)
		}
		if s := field("Command succeeded", "insert", "reply"); len(s) > 1000+len(ellipsis) {
			t.Errorf("the reply has %d bytes: %s", len(s), s)
		}
		if _, err := c.Find(t.Context(), orders, client.FindOptions{}); err != nil {
			t.Fatal(err)
		}
		if s := field("Command succeeded", "find", "reply"); len(s) != 1000+len(ellipsis) ||
			!strings.HasSuffix(s, ellipsis) {
			t.Errorf("the reply has %d bytes: %s", len(s), s)
		}
	})
}

// TestCommandLoggingProse2ExplicitlyConfiguredTruncationLimit is "Explicitly configured truncation
// limit".
func TestCommandLoggingProse2ExplicitlyConfiguredTruncationLimit(t *testing.T) {
	logged(t, 5, func(t *testing.T, _ *fakemongo.Server, c *client.Client, field func(
		message, command, key string,
	) string,
	) {
		if _, err := c.RunCommand(t.Context(), "admin", doc(t, `{"hello":true}`),
			client.RunCommandOptions{}); err != nil {
			t.Fatal(err)
		}
		for message, key := range map[string]string{
			"Command started": "command", "Command succeeded": "reply",
		} {
			if s := field(message, "hello", key); len(s) != 5+len(ellipsis) {
				t.Errorf("%s: %s has %d bytes: %s", message, key, len(s), s)
			}
		}
		if _, err := c.RunCommand(t.Context(), "admin", doc(t, `{"notARealCommand":true}`),
			client.RunCommandOptions{}); err == nil {
			t.Fatal("a command that does not exist has succeeded")
		}
		if s := field("Command failed", "notARealCommand", "failure"); !strings.Contains(s,
			"CommandNotFound") {
			t.Errorf("the failure is %s", s)
		}
	})
}

// TestCommandLoggingProse3TruncationWithMultiByteCodepoints is "Truncation with multi-byte
// codepoints".
func TestCommandLoggingProse3TruncationWithMultiByteCodepoints(t *testing.T) {
	for limit := 11; limit < 24; limit++ {
		logged(t, limit, func(t *testing.T, _ *fakemongo.Server, c *client.Client, field func(
			message, command, key string,
		) string,
		) {
			if _, err := c.RunCommand(t.Context(), "admin", doc(t, `{"ping":"漢字漢字漢字漢字漢字"}`),
				client.RunCommandOptions{}); err != nil {
				t.Fatal(err)
			}
			s, cut := strings.CutSuffix(field("Command started", "ping", "command"), ellipsis)
			if !cut || !utf8.ValidString(s) || len(s) > limit || len(s) < limit-2 {
				t.Errorf("limit %d: the command is %q", limit, s)
			}
		})
	}
}
