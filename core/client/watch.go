package client

import (
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/topology"
)

// WatchTopology is Topology, and a channel that is closed when there is news, which may be equal to what was known. Nothing queues: who
// looks again late sees the newest. Before Start of a client whose servers' names come from DNS there is nothing to watch, and no channel.
func (c *Client) WatchTopology() (description.Topology, <-chan struct{}) {
	if t := c.topology.Load(); t != nil {
		return t.Watch()
	}
	return description.Topology{}, nil
}

// Pools counts what the servers' pools have, by address. A server that was never of use has none.
func (c *Client) Pools() []topology.PoolStats {
	if t := c.topology.Load(); t != nil {
		return t.Pools()
	}
	return nil
}
