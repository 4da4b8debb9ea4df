package description

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Failure is an error that an application's connection met, outside of monitoring.
type Failure struct {
	Address        address.Address
	Err            error
	Generation     uint64 // of the connection; before there is one, of the pool when the attempt began
	PoolGeneration uint64 // of the pool now
	MaxWireVersion int32  // of the connection
	Handshaking    bool   // the connection was not established yet
}

// Effect is what the shell has to do after a failure, in this order, besides publishing the topology. ClearPool comes
// with a server that is unknown now.
type Effect struct {
	ClearPool   bool
	CancelCheck bool // the running check would only find out the same, later
	CheckNow    bool
}

// Fail folds an application's error into the topology. Most errors change nothing: those that say nothing about the
// server, and those that come from a connection, or a state of the server, that is over.
func (t Topology) Fail(f Failure) (Topology, Effect) {
	current := t.Server(f.Address)
	if current == nil || t.Kind == KindLoadBalanced || f.Generation < f.PoolGeneration || mongoerr.IsCanceled(f.Err) {
		return t, Effect{}
	}
	switch {
	case mongoerr.IsStateChange(f.Err):
		version := errorVersion(f.Err)
		if current.TopologyVersion.Compare(version) >= 0 {
			return t, Effect{}
		}
		unknown := Unknown(f.Address, f.Err)
		unknown.TopologyVersion = version
		return t.Apply(unknown), Effect{CheckNow: true, ClearPool: f.Handshaking ||
			mongoerr.IsShutdown(f.Err) || f.MaxWireVersion < wireVersionMongoDB42}
	case f.Handshaking, mongoerr.IsNetwork(f.Err) && !mongoerr.IsTimeout(f.Err):
		return t.Apply(Unknown(f.Address, f.Err)), Effect{ClearPool: true, CancelCheck: true}
	}
	return t, Effect{}
}

// errorVersion is the topologyVersion of the reply that err was made of, or nil.
func errorVersion(err error) *TopologyVersion {
	if e, ok := errors.AsType[*mongoerr.CommandError](err); ok {
		return parseTopologyVersion(e.TopologyVersion)
	}
	if e, ok := errors.AsType[*mongoerr.WriteConcernError](err); ok {
		return parseTopologyVersion(e.TopologyVersion)
	}
	return nil
}

func electionTuple(id bson.ObjectID, version *int64) string {
	election, set := "null", "null"
	if !id.IsZero() {
		election = id.Hex()
	}
	if version != nil {
		set = fmt.Sprint(*version)
	}
	return "(electionId " + election + ", setVersion " + set + ")"
}
