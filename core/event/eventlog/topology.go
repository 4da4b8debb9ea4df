package eventlog

import (
	"fmt"
	"slices"

	"github.com/mooringdb/mooring/core/event"
)

func addTopology(c *Config, s *event.Sink) {
	write := func(text func() string, message string, id event.TopologyID, fields ...Field) {
		c.Write(Message{
			Component: Topology, Level: Debug, Message: message, text: text,
			Fields: append([]Field{{"topologyId", id.Hex()}}, fields...),
		})
	}
	s.TopologyOpening = func(e event.TopologyOpening) {
		write(func() string {
			return "Starting monitoring for topology with ID " +
				e.TopologyID.Hex()
		},
			"Starting topology monitoring", e.TopologyID)
	}
	s.TopologyClosed = func(e event.TopologyClosed) {
		write(func() string {
			return "Stopped monitoring for topology with ID " +
				e.TopologyID.Hex()
		},
			"Stopped topology monitoring", e.TopologyID)
	}
	s.ServerOpening = func(e event.ServerOpening) {
		write(func() string {
			return fmt.Sprintf("Starting monitoring for server %s in topology with ID %s",
				e.Address,
				e.TopologyID.Hex())
		}, "Starting server monitoring", e.TopologyID, server(e.Address)...)
	}
	s.ServerClosed = func(e event.ServerClosed) {
		write(func() string {
			return fmt.Sprintf("Stopped monitoring for server %s in topology with ID %s", e.Address,
				e.TopologyID.Hex())
		}, "Stopped server monitoring", e.TopologyID, server(e.Address)...)
	}
	s.TopologyDescriptionChanged = func(e event.TopologyDescriptionChanged) {
		write(func() string {
			return fmt.Sprintf("Description changed for topology with ID %s. Previous "+
				"description: %v. New description: %v",
				e.TopologyID.Hex(), e.Previous, e.New)
		}, "Topology description changed", e.TopologyID,
			Field{"previousDescription", e.Previous.String()}, Field{
				"newDescription", e.New.String(),
			})
	}
	s.ServerHeartbeatStarted = func(e event.ServerHeartbeatStarted) {
		write(func() string { return "Heartbeat started for " + where(e.Heartbeat) },
			"Server heartbeat started", e.TopologyID, heartbeat(e.Heartbeat)...)
	}
	s.ServerHeartbeatSucceeded = func(e event.ServerHeartbeatSucceeded) {
		reply := c.document(e.Reply)
		write(func() string {
			return fmt.Sprintf("Heartbeat succeeded in %d ms for %s. Reply: %s",
				e.Duration.Milliseconds(),
				where(e.Heartbeat), reply)
		}, "Server heartbeat succeeded", e.TopologyID,
			heartbeat(e.Heartbeat, milliseconds("durationMS", e.Duration),
				Field{"reply", reply})...)
	}
	s.ServerHeartbeatFailed = func(e event.ServerHeartbeatFailed) {
		write(func() string {
			return fmt.Sprintf("Heartbeat failed in %d ms for %s. Failure: %v",
				e.Duration.Milliseconds(),
				where(e.Heartbeat), e.Err)
		}, "Server heartbeat failed", e.TopologyID,
			heartbeat(e.Heartbeat, milliseconds("durationMS", e.Duration),
				Field{"failure", e.Err.Error()})...)
	}
}

// heartbeat returns the fields that all messages of a check share, and more.
func heartbeat(e event.Heartbeat, more ...Field) []Field {
	fields := append(server(e.Address), Field{"driverConnectionId", int64(e.ConnectionID)})
	if e.ServerConnectionID != 0 {
		fields = append(fields, Field{"serverConnectionId", e.ServerConnectionID})
	}
	return slices.Concat(fields, []Field{{"awaited", e.Awaited}}, more)
}

func where(e event.Heartbeat) string {
	server := ""
	if e.ServerConnectionID != 0 {
		server = fmt.Sprintf(" and server-generated ID %d", e.ServerConnectionID)
	}
	return fmt.Sprintf("%s on connection with driver-generated ID %d%s in topology with ID %s. "+
		"Awaited: %v",
		e.Address, e.ConnectionID, server, e.TopologyID.Hex(), e.Awaited)
}
