package description

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Failure describes an error on an application's connection, outside of monitoring.
type Failure struct {
	Address address.Address
	Err     error
	// Generation is the generation of the connection or, before there is one, of the pool when the
	// attempt began.
	Generation     uint64
	PoolGeneration uint64 // of the pool now
	MaxWireVersion int32  // of the connection
	Handshaking    bool   // the connection was not established yet

	// Service is, behind a load balancer, that which the connection leads to: the generations are
	// its own then. It is zero as long as no hello has told.
	Service bson.ObjectID
}

// Effect says what the shell has to do after a failure, in this order, besides publishing the
// topology. ClearPool is for all connections to a server that is unknown now or, behind a load
// balancer, for the connections to the failure's service only.
type Effect struct {
	ClearPool   bool
	CancelCheck bool // the running check would only find out the same, later
	CheckNow    bool
}

// Fail folds an application's error into the topology. Most errors change nothing: those that say
// nothing about the server, those of a connection or of a state of the server that is over, and
// those that a server may have answered a new connection with because it is overloaded.
func (t Topology) Fail(f Failure) (Topology, Effect) {
	current := t.Server(f.Address)
	if current == nil || f.Generation < f.PoolGeneration || mongoerr.IsCanceled(f.Err) ||
		f.isOverload() {
		return t, Effect{}
	}
	unknown, effect := f.verdict(current.TopologyVersion)
	switch {
	case unknown == nil:
		return t, Effect{}
	case t.Kind == KindLoadBalanced:
		return t, f.behindLoadBalancer(effect)
	}
	return t.Apply(unknown), effect
}

// isOverload reports whether the server refused a new connection, maybe because it is overloaded.
// The server stays known and its pool is not cleared: fewer connections are what helps it, not
// more (SDAM, "Error handling").
func (f Failure) isOverload() bool {
	return f.Handshaking && mongoerr.HasLabel(f.Err, mongoerr.LabelSystemOverloaded)
}

// verdict returns the server after the failure, nil if that changes nothing, and what has to be
// done. known is the version of the state that the topology has of it. A malformed reply on an
// established connection concerns that connection only: it is not a network error (SDAM, "Network
// error when reading or writing").
func (f Failure) verdict(known *TopologyVersion) (*Server, Effect) {
	switch {
	case mongoerr.IsStateChange(f.Err):
		version := errorVersion(f.Err)
		if known.Compare(version) >= 0 {
			return nil, Effect{}
		}
		unknown := Unknown(f.Address, f.Err)
		unknown.TopologyVersion = version
		return unknown, Effect{
			ClearPool: f.Handshaking || mongoerr.IsShutdown(f.Err) ||
				f.MaxWireVersion < wireVersionMongoDB42,
			CancelCheck: f.Handshaking, CheckNow: true,
		}
	case f.Handshaking, mongoerr.IsNetwork(f.Err) && !mongoerr.IsTimeout(f.Err) &&
		!mongoerr.IsMalformed(f.Err):
		return Unknown(f.Address, f.Err), Effect{ClearPool: true, CancelCheck: true}
	}
	return nil, Effect{}
}

// behindLoadBalancer returns the part of an effect that concerns one service: a load balancer has
// no monitor and is always known. An error before a hello has named the service concerns no
// service (Load Balancer Support, "Errors").
func (f Failure) behindLoadBalancer(effect Effect) Effect {
	return Effect{ClearPool: effect.ClearPool && !f.Service.IsZero()}
}

// errorVersion returns the topologyVersion of the reply that err was made of, or nil.
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
