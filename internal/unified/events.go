package unified

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
)

// category names one of the format's eventTypes.
type category string

const (
	categoryCommand category = "command"
	categoryCMAP    category = "cmap"
	categorySDAM    category = "sdam"
)

// categories are the kinds of events that there are.
var categories = map[category][]string{
	categoryCommand: {"commandStartedEvent", "commandSucceededEvent", "commandFailedEvent"},
	categoryCMAP: {
		"poolCreatedEvent", "poolReadyEvent", "poolClearedEvent", "poolClosedEvent",
		"connectionCreatedEvent", "connectionReadyEvent",
		"connectionClosedEvent", "connectionCheckOutStartedEvent", "connectionCheckOutFailedEvent",
		"connectionCheckedOutEvent",
		"connectionCheckedInEvent",
	},
	categorySDAM: {
		"serverDescriptionChangedEvent", "topologyDescriptionChangedEvent", "topologyOpeningEvent",
		"topologyClosedEvent",
		"serverHeartbeatStartedEvent", "serverHeartbeatSucceededEvent",
		"serverHeartbeatFailedEvent",
	},
}

var allKinds = append(append(append([]string(nil), categories[categoryCommand]...),
	categories[categoryCMAP]...), categories[categorySDAM]...)

// sink keeps the driver's facts in the format's words.
func (c *observed) sink() *event.Sink {
	s := &event.Sink{}
	c.commands(s)
	c.pools(s)
	c.discovery(s)
	return s
}

func (c *observed) commands(s *event.Sink) {
	s.CommandStarted = func(e event.CommandStarted) {
		if c.wants(e.Command, e.Body.IsEmpty()) {
			c.record("commandStartedEvent", command(e.Command).Document("command", e.Body))
		}
	}
	s.CommandSucceeded = func(e event.CommandSucceeded) {
		if c.wants(e.Command, e.Reply.IsEmpty()) {
			c.record("commandSucceededEvent", command(e.Command).Document("reply", e.Reply))
		}
	}
	s.CommandFailed = func(e event.CommandFailed) {
		if c.wants(e.Command, false) {
			c.record("commandFailedEvent", command(e.Command))
		}
	}
}

func command(e event.Command) *bson.Builder {
	return bson.NewBuilder(nil).String("commandName", e.Name).String("databaseName", e.Database).
		Bool("hasServiceId", e.ServiceID != bson.ObjectID{}).Bool("hasServerConnectionId",
		e.ServerConnectionID != 0)
}

func (c *observed) pools(s *event.Sink) {
	plain := func(kind string) { c.record(kind, new(bson.Builder)) }
	s.PoolCreated = func(event.PoolCreated) { plain("poolCreatedEvent") }
	s.PoolReady = func(event.PoolReady) { plain("poolReadyEvent") }
	s.PoolClosed = func(event.PoolClosed) { plain("poolClosedEvent") }
	s.PoolCleared = func(e event.PoolCleared) {
		c.record("poolClearedEvent", bson.NewBuilder(nil).Bool("hasServiceId",
			e.ServiceID != bson.ObjectID{}).
			Bool("interruptInUseConnections", e.InterruptInUseConnections))
	}
	s.ConnectionCreated = func(event.ConnectionCreated) { plain("connectionCreatedEvent") }
	s.ConnectionReady = func(event.ConnectionReady) { plain("connectionReadyEvent") }
	s.ConnectionClosed = func(e event.ConnectionClosed) {
		c.record("connectionClosedEvent", bson.NewBuilder(nil).String("reason", string(e.Reason)))
	}
	s.ConnectionCheckOutStarted = func(event.ConnectionCheckOutStarted) {
		plain("connectionCheckOutStartedEvent")
	}
	s.ConnectionCheckOutFailed = func(e event.ConnectionCheckOutFailed) {
		c.record("connectionCheckOutFailedEvent",
			bson.NewBuilder(nil).String("reason", string(e.Reason)))
	}
	s.ConnectionCheckedOut = func(event.ConnectionCheckedOut) {
		c.checkOuts(+1)
		plain("connectionCheckedOutEvent")
	}
	s.ConnectionCheckedIn = func(event.ConnectionCheckedIn) {
		c.checkOuts(-1)
		plain("connectionCheckedInEvent")
	}
}

func (c *observed) discovery(s *event.Sink) {
	s.TopologyOpening = func(event.TopologyOpening) {
		c.record("topologyOpeningEvent", new(bson.Builder))
	}
	s.TopologyClosed = func(event.TopologyClosed) {
		c.record("topologyClosedEvent", new(bson.Builder))
	}
	s.TopologyDescriptionChanged = func(e event.TopologyDescriptionChanged) {
		c.record("topologyDescriptionChangedEvent",
			types(e.Previous.Kind.String(), e.New.Kind.String()))
	}
	s.ServerDescriptionChanged = func(e event.ServerDescriptionChanged) {
		c.record("serverDescriptionChangedEvent", types(kindOf(e.Previous), kindOf(e.New)))
	}
	awaited := func(kind string, e event.Heartbeat) {
		c.record(kind, bson.NewBuilder(nil).Bool("awaited", e.Awaited))
	}
	s.ServerHeartbeatStarted = func(e event.ServerHeartbeatStarted) {
		awaited("serverHeartbeatStartedEvent", e.Heartbeat)
	}
	s.ServerHeartbeatSucceeded = func(e event.ServerHeartbeatSucceeded) {
		awaited("serverHeartbeatSucceededEvent", e.Heartbeat)
	}
	s.ServerHeartbeatFailed = func(e event.ServerHeartbeatFailed) {
		awaited("serverHeartbeatFailedEvent", e.Heartbeat)
	}
}

func types(previous, next string) *bson.Builder {
	return bson.NewBuilder(nil).OpenDocument("previousDescription").String("type",
		previous).Close().
		OpenDocument("newDescription").String("type", next).Close()
}

func kindOf(s *description.Server) string { return s.Kind.String() }
