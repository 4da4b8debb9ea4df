package operation

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/wire"
)

// requestIDs numbers the commands of the process for their events. On the wire, each connection
// counts for itself.
var requestIDs atomic.Int32

// nextRequestID returns a positive number, since 0 stands for no request.
func nextRequestID() int32 {
	for {
		if id := requestIDs.Add(1) & 0x7fffffff; id != 0 {
			return id
		}
	}
}

// NewID returns the number of an operation of several commands in events.
func NewID() int64 { return int64(nextRequestID()) }

// unacknowledgedReply is the reply of an unacknowledged write in events (Command Logging and
// Monitoring).
var unacknowledgedReply = bson.NewBuilder(nil).Int32("ok", 1).Finish()

// observation emits the events of one exchange. The zero value emits none.
type observation struct {
	sink      *event.Sink
	command   event.Command
	sensitive bool
	began     time.Time
}

// begin emits CommandStarted, if the sink takes command events.
func (r *Runner) begin(x *exchange, operationID int64, op *Operation) observation {
	s := r.Sink
	if s == nil || s.CommandStarted == nil && s.CommandSucceeded == nil && s.CommandFailed == nil {
		return observation{}
	}
	o := observation{sink: s, began: time.Now(), command: event.Command{
		Name:               op.Command.Name(),
		Database:           op.Database,
		RequestID:          x.requestID,
		OperationID:        operationID,
		Caller:             op.Caller,
		Address:            x.server.Description().Address,
		ConnectionID:       x.conn.ID(),
		ServerConnectionID: x.conn.Hello().ConnectionID,
		ServiceID:          x.conn.Hello().ServiceID,
	}}
	body := x.req.body()
	o.sensitive = sensitive(o.command.Name, body)
	if s.CommandStarted != nil {
		s.CommandStarted(event.CommandStarted{
			Command: o.command, Body: o.redact(op.visible(body, x.req.msg)),
		})
	}
	return o
}

// end emits CommandSucceeded, or CommandFailed if err is not nil.
func (o *observation) end(reply bson.Raw, err error) {
	switch {
	case o.sink == nil:
	case err == nil && o.sink.CommandSucceeded != nil:
		o.sink.CommandSucceeded(event.CommandSucceeded{
			Command: o.command, Duration: time.Since(o.began), Reply: o.redact(reply),
		})
	case err != nil && o.sink.CommandFailed != nil:
		o.sink.CommandFailed(event.CommandFailed{
			Command: o.command, Duration: time.Since(o.began), Err: o.redactError(err),
		})
	}
}

func (o *observation) redact(d bson.Raw) bson.Raw {
	if o.sensitive {
		return emptyDocument
	}
	return d
}

// redactError returns a server's error without what may show the command: it keeps code, name and
// labels. Errors of the network stay as they are.
func (o *observation) redactError(err error) error {
	failed, ok := errors.AsType[*mongoerr.CommandError](err)
	if !ok || !o.sensitive {
		return err
	}
	return &mongoerr.CommandError{
		Code: failed.Code, Name: failed.Name, Labels: failed.Labels, Address: failed.Address,
	}
}

var emptyDocument = bson.NewBuilder(nil).Finish()

// sensitiveCommands are the commands whose content no event shows (Command Logging and Monitoring,
// "Security"). Servers and specifications spell some of them in two ways.
var sensitiveCommands = [...]string{
	"authenticate", "saslStart", "saslContinue", "getnonce", "createUser", "updateUser",
	"copydbgetnonce", "copydbsaslstart", "copydb",
}

// sensitive makes no allocation: it runs for each command that has events.
func sensitive(name string, body bson.Raw) bool {
	for _, s := range sensitiveCommands {
		if len(s) == len(name) && strings.EqualFold(s, name) {
			return true
		}
	}
	return (strings.EqualFold(name, "hello") || strings.EqualFold(name, "isMaster")) &&
		body.Has("speculativeAuthenticate")
}

// visible returns the command as events show it: with its document sequences as arrays at the end.
func (op *Operation) visible(body bson.Raw, msg []byte) bson.Raw {
	if _, ok := op.Command.(Sequencer); !ok {
		return body
	}
	b := bson.NewBuilder(make([]byte, 0, len(msg)+len(msg)/8))
	b.AppendElements(body)
	sections := msg[wire.HeaderSize+flagsAndKind+len(body):]
	for len(sections) > 0 {
		var identifier string
		var docs []byte
		identifier, docs, sections = wire.CutSequence(sections)
		b.OpenArray(identifier)
		for len(docs) > 0 {
			doc, rest, err := bson.Read(docs)
			if err != nil {
				panic("bug: operation: malformed document sequence: " + err.Error())
			}
			b.Document("", doc)
			docs = rest
		}
		b.Close()
	}
	return b.Finish()
}

// flagsAndKind is the size of an OP_MSG's flags and of the kind byte of its body.
const flagsAndKind = 5
