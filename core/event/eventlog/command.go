package eventlog

import (
	"fmt"
	"strconv"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
)

// addCommand makes messages of commands. Events have no content of sensitive commands, so that
// messages have none either.
func addCommand(c *Config, s *event.Sink) {
	write := func(message, verb, last string, e event.Command, took *time.Duration, field Field) {
		fields := commandFields(e)
		in := ""
		if took != nil {
			fields = append(fields, milliseconds("durationMS", *took))
			in = fmt.Sprintf(" in %d ms", took.Milliseconds())
		}
		text := func() string {
			return fmt.Sprintf("Command %q %s on database %q%s using a connection with %s. "+
				"The requestID is %d and the operation ID is %d. %s: %v", e.Name, verb,
				e.Database, in, connection(e), e.RequestID, e.OperationID, last, field.Value)
		}
		c.Write(Message{
			Component: Command, Level: Debug, Message: message, text: text,
			Fields: append(fields, field),
		})
	}
	s.CommandStarted = func(e event.CommandStarted) {
		write("Command started", "started", "Command", e.Command, nil,
			Field{"command", c.document(e.Body)})
	}
	s.CommandSucceeded = func(e event.CommandSucceeded) {
		write("Command succeeded", "succeeded", "Command reply", e.Command, &e.Duration,
			Field{"reply", c.document(e.Reply)})
	}
	s.CommandFailed = func(e event.CommandFailed) {
		write("Command failed", "failed", "Error", e.Command, &e.Duration,
			Field{"failure", e.Err.Error()})
	}
}

// commandFields returns the fields that all messages of a command have.
func commandFields(e event.Command) []Field {
	fields := []Field{
		{"commandName", e.Name},
		{"databaseName", e.Database},
		{"requestId", int64(e.RequestID)},
		{"operationId", e.OperationID},
		driverID(e.ConnectionID),
	}
	fields = append(fields, server(e.Address)...)
	if e.ServerConnectionID != 0 {
		fields = append(fields, Field{"serverConnectionId", e.ServerConnectionID})
	}
	if e.ServiceID != (bson.ObjectID{}) {
		fields = append(fields, Field{"serviceId", e.ServiceID.Hex()})
	}
	return fields
}

// connection returns the words about the connection of a command.
func connection(e event.Command) string {
	text := "driver-generated ID " + strconv.FormatUint(e.ConnectionID, 10)
	if e.ServerConnectionID != 0 {
		text += " and server-generated ID " + strconv.FormatInt(e.ServerConnectionID, 10)
	}
	text += " to " + e.Address.String()
	if e.ServiceID != (bson.ObjectID{}) {
		text += " with service ID " + e.ServiceID.Hex()
	}
	return text
}
