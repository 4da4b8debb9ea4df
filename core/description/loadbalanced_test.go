package description_test

import (
	"context"
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// TestLoadBalancedNeverChanges checks that an error clears, at most, the connections to one service
// (LB-004, LB-050 to LB-052).
func TestLoadBalancedNeverChanges(t *testing.T) {
	topo, err := description.New(description.Settings{
		Seeds: []address.Address{"a:27017"}, LoadBalanced: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	topo = topo.Apply(description.LoadBalancer("a:27017"))
	service := bson.ObjectID{1}
	stateChange := func(code int32) error { return &mongoerr.CommandError{Code: code} }
	timeout := &mongoerr.NetworkError{Err: timeoutError{}}
	for name, test := range map[string]struct {
		failure description.Failure
		clears  bool
	}{
		"before hello has told the service":    {description.Failure{Err: broken(), Handshaking: true}, false}, // LB-050
		"hello times out":                      {description.Failure{Err: timeout, Handshaking: true}, false},
		"hello is refused":                     {description.Failure{Err: stateChange(91), Handshaking: true}, false},
		"authentication fails":                 {description.Failure{Err: stateChange(18), Handshaking: true, Service: service}, true}, // LB-051
		"authentication times out":             {description.Failure{Err: timeout, Handshaking: true, Service: service}, true},
		"network error":                        {description.Failure{Err: broken(), Service: service, MaxWireVersion: 21}, true},
		"network error of an old connection":   {description.Failure{Err: broken(), Service: service, MaxWireVersion: 21, Generation: 1}, false},
		"timeout":                              {description.Failure{Err: timeout, Service: service, MaxWireVersion: 21}, false},
		"shutdown":                             {description.Failure{Err: stateChange(91), Service: service, MaxWireVersion: 21}, true}, // LB-052
		"shutdown, of an old connection":       {description.Failure{Err: stateChange(91), Service: service, MaxWireVersion: 21, Generation: 1}, false},
		"not primary needs no clear":           {description.Failure{Err: stateChange(10107), Service: service, MaxWireVersion: 21}, false},
		"cancellation says nothing":            {description.Failure{Err: &mongoerr.NetworkError{Err: context.Canceled}, Service: service}, false},
		"an error of the command says nothing": {description.Failure{Err: stateChange(11000), Service: service, MaxWireVersion: 21}, false},
	} {
		f := test.failure
		f.Address, f.PoolGeneration = "a:27017", 2
		f.Generation = 2 - f.Generation // stale by as much as the row says
		after, effect := topo.Fail(f)
		if !after.Equal(topo) || after.Servers[0] != topo.Servers[0] ||
			effect != (description.Effect{ClearPool: test.clears}) {
			t.Errorf("%s: Fail = %v, %+v, want the same topology, and that the pool is cleared: %v",
				name, after, effect, test.clears)
		}
	}
	if !topo.Servers[0].SupportsSessions() || !topo.IsUsable("a:27017") {
		t.Error("a load balancer supports sessions and is usable")
	}
}
