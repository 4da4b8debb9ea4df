package client

import (
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/topology"
)

// compressed returns the function that takes the facts of compression; nil: there is none.
func compressed(s *event.Sink) func(event.MessageCompressed) {
	if s == nil {
		return nil
	}
	return s.MessageCompressed
}

// IdleSessions returns the number of idle server sessions in the client's pool.
func (c *Client) IdleSessions() int { return c.sessions.Len() }

// RunOns returns how many operations go on without their callers; see Options.MaxRunOnShare.
func (c *Client) RunOns() operation.RunOnUsage { return c.runner.RunOns.Usage() }

// WatchTopology returns the current description and a channel that is closed at the next change.
// Changes are not queued: the next call returns the newest description, which may be equal to the
// one before. Before Start of a client whose servers come from DNS it returns no channel.
func (c *Client) WatchTopology() (description.Topology, <-chan struct{}) {
	if t := c.topology.Load(); t != nil {
		return t.Watch()
	}
	return description.Topology{}, nil
}

// Pools returns the counts of the servers' connection pools, in the order of their addresses. A
// server that has never been usable has no pool.
func (c *Client) Pools() []topology.PoolStats {
	if t := c.topology.Load(); t != nil {
		return t.Pools()
	}
	return nil
}
