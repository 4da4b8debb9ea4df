package eventlog

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
)

func addSelection(c *Config, s *event.Sink) {
	write := func(level Level, text func() string, message string, e event.Selection,
		fields ...Field,
	) {
		c.Write(Message{
			Component: ServerSelection, Level: level, Message: message, text: text,
			Fields: append(common(e), fields...),
		})
	}
	s.ServerSelectionStarted = func(e event.ServerSelectionStarted) {
		write(Debug, func() string {
			return fmt.Sprintf("Server selection started for %s. %s", operation(e.Selection),
				criteria(e.Selection))
		}, "Server selection started", e.Selection)
	}
	s.ServerSelectionWaiting = func(e event.ServerSelectionWaiting) {
		write(Info, func() string {
			return fmt.Sprintf("Waiting for server to become available for %s. Remaining time: "+
				"%d ms. %s.",
				operation(e.Selection), e.Remaining.Milliseconds(), criteria(e.Selection))
		}, "Waiting for suitable server to become available", e.Selection,
			milliseconds("remainingTimeMS", e.Remaining))
	}
	s.ServerSelectionSucceeded = func(e event.ServerSelectionSucceeded) {
		write(Debug, func() string {
			return fmt.Sprintf("Server selection succeeded for %s. Selected server: %s. %s",
				operation(e.Selection), e.Server, criteria(e.Selection))
		}, "Server selection succeeded", e.Selection, server(e.Server)...)
	}
	s.ServerSelectionFailed = func(e event.ServerSelectionFailed) {
		failure := failure(e.Err)
		write(Debug, func() string {
			return fmt.Sprintf("Server selection failed for %s. Failure: %s. %s",
				operation(e.Selection),
				failure, criteria(e.Selection))
		}, "Server selection failed", e.Selection, Field{"failure", failure})
	}
}

// common returns the fields that all messages of a selection share.
func common(e event.Selection) []Field {
	fields := []Field{{"selector", e.Selector}, {"operation", e.Operation}}
	if e.OperationID != 0 {
		fields = append(fields, Field{"operationId", e.OperationID})
	}
	return append(fields, Field{"topologyDescription", e.Topology.String()})
}

// operation returns "operation find with ID 1", as far as that is known.
func operation(e event.Selection) string {
	text := "operation " + e.Operation
	if e.OperationID != 0 {
		text += fmt.Sprintf(" with ID %d", e.OperationID)
	}
	return text
}

func criteria(e event.Selection) string {
	return fmt.Sprintf("Selector: %s, topology description: %v", e.Selector, e.Topology)
}

// failure returns the error without the topology, which has its own field.
func failure(err error) string {
	if e, ok := errors.AsType[*mongoerr.SelectionError](err); ok {
		short := *e
		short.Topology = ""
		return short.Error()
	}
	return err.Error()
}
