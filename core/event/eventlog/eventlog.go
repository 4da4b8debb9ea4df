// Package eventlog turns the driver's events into the log messages of the MongoDB specifications:
// their components, levels, words and fields (Driver Logging; Command Logging and Monitoring;
// SDAM Logging and Monitoring; Server Selection, "Logging"; Connection Monitoring and Pooling,
// "Connection Pool Logging"). It writes nothing: Config.Write does.
package eventlog

import (
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/event"
)

// Component names a part of the driver that can be logged separately, in the specification's
// words.
type Component string

// The components with messages.
const (
	Command         Component = "command"
	Topology        Component = "topology"
	ServerSelection Component = "serverSelection"
	Connection      Component = "connection"
)

// Level ranks the severity of a message as the specification does.
type Level uint8

// The levels in use.
const (
	Debug Level = iota
	Info
)

func (l Level) String() string { return [...]string{"debug", "info"}[l] }

// Field holds one fact of a message. Value is a string, an int64 or a bool.
type Field struct {
	Key   string
	Value any
}

// Message holds one message. Its text is constant; the fields hold the facts.
type Message struct {
	Component Component
	Level     Level
	Message   string
	Fields    []Field
	text      func() string
}

// Text returns the message as one sentence, in the specification's unstructured form.
func (m Message) Text() string { return m.text() }

// DefaultMaxDocumentLength is the length, in bytes, beyond which documents in messages are cut
// off.
const DefaultMaxDocumentLength = 1000

// Config says which messages are made, and where they go.
type Config struct {
	// Write is called for each message, on the goroutine that emits the event.
	Write func(Message)

	// Components selects the components with messages; none means all.
	Components []Component

	// MaxDocumentLength limits the length of documents in messages; longer ones are cut off. Zero
	// means DefaultMaxDocumentLength, a negative value no limit.
	MaxDocumentLength int
}

// Sink returns a sink that makes messages of the events.
func Sink(cfg Config) *event.Sink {
	if cfg.MaxDocumentLength == 0 {
		cfg.MaxDocumentLength = DefaultMaxDocumentLength
	}
	s := &event.Sink{}
	for component, add := range map[Component]func(*Config, *event.Sink){
		Command: addCommand, Topology: addTopology, ServerSelection: addSelection,
		Connection: addConnection,
	} {
		if cfg.wants(component) {
			add(&cfg, s)
		}
	}
	return s
}

func (c *Config) wants(component Component) bool {
	return len(c.Components) == 0 || slices.Contains(c.Components, component)
}

// document returns doc as relaxed Extended JSON, cut off if it is too long.
func (c *Config) document(doc bson.Raw) string {
	json, err := extjson.Append(nil, doc, extjson.Relaxed)
	if err != nil {
		return "malformed: " + err.Error()
	}
	if c.MaxDocumentLength < 0 || len(json) <= c.MaxDocumentLength {
		return string(json)
	}
	end := c.MaxDocumentLength
	for end > 0 && !utf8.RuneStart(json[end]) {
		end--
	}
	return string(json[:end]) + "..."
}

// server returns the fields that name a server.
func server(addr address.Address) []Field {
	fields := []Field{{"serverHost", addr.Host()}}
	if port, err := strconv.ParseInt(addr.Port(), 10, 64); err == nil {
		fields = append(fields, Field{"serverPort", port})
	}
	return fields
}

func milliseconds(key string, d time.Duration) Field { return Field{key, d.Milliseconds()} }
