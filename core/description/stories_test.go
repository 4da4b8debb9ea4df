package description_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// TestStories replays what a topology hears, and compares what it makes of it with the files in
// testdata/stories. To write the files anew:
//
//	go test ./core/description -run TestStories -rewrite
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var s story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			step, ok := steps[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			return step(&s, t, d)
		})
	})
}

// story is the topology of one file.
type story struct{ topology description.Topology }

// steps are the commands of the files.
var steps = map[string]func(*story, *testing.T, *datadriven.TestData) string{
	"new": (*story).begin, "hello": (*story).hello, "fail": (*story).fail, "rescan": (*story).rescan,
}

// begin makes the topology: new seeds=(a,b) [replicaSet=rs] [direct] [loadBalanced].
func (s *story) begin(t *testing.T, d *datadriven.TestData) string {
	settings := description.Settings{
		Seeds: addresses(d, "seeds"), Direct: d.HasArg("direct"),
		LoadBalanced: d.HasArg("loadBalanced"),
	}
	if d.HasArg("replicaSet") {
		d.ScanArgs(t, "replicaSet", &settings.SetName)
	}
	topology, err := description.New(settings)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	s.topology = topology
	return s.show(description.Topology{}, topology)
}

// hello applies a hello reply, or a failed check if there is none: hello a.
func (s *story) hello(t *testing.T, d *datadriven.TestData) string {
	addr := address.Address(d.CmdArgs[0].Key)
	server := description.Unknown(addr, io.EOF)
	if d.Input != "" {
		server = hello(t, addr, d.Input)
	}
	before := s.topology
	s.topology = before.Apply(server)
	return s.show(before, s.topology)
}

// fail applies an application's error: fail a (network | timeout | code=91) [handshaking] [stale].
func (s *story) fail(t *testing.T, d *datadriven.TestData) string {
	f := description.Failure{
		Address: address.Address(d.CmdArgs[0].Key), MaxWireVersion: 21,
		PoolGeneration: 1, Generation: 1, Handshaking: d.HasArg("handshaking"),
	}
	if d.HasArg("stale") {
		f.Generation = 0
	}
	switch {
	case d.HasArg("network"):
		f.Err = &mongoerr.NetworkError{Address: f.Address, Op: "read", Err: io.EOF}
	case d.HasArg("timeout"):
		f.Err = &mongoerr.NetworkError{Address: f.Address, Op: "read", Err: timeoutError{}}
	default:
		var code int
		d.ScanArgs(t, "code", &code)
		f.Err = &mongoerr.CommandError{Address: f.Address, Code: int32(code), Message: "no"}
	}
	before := s.topology
	after, effect := before.Fail(f)
	s.topology = after
	return fmt.Sprintf("clear pool %v, cancel check %v, check now %v\n", effect.ClearPool,
		effect.CancelCheck, effect.CheckNow) +
		s.show(before, after)
}

// rescan changes the servers as SRV records do: rescan [add=(c)] [remove=(a)].
func (s *story) rescan(_ *testing.T, d *datadriven.TestData) string {
	before := s.topology
	s.topology = before.Rescanned(addresses(d, "add"), addresses(d, "remove"))
	return s.show(before, s.topology)
}

// show prints the servers that changed, and then the topology.
func (s *story) show(before, after description.Topology) string {
	var b strings.Builder
	for _, c := range description.Changes(before, after) {
		fmt.Fprintf(&b, "%s → %s\n", serverText(c.Previous), serverText(c.Current))
	}
	fmt.Fprintf(&b, "= %v", after.Kind)
	if after.SetName != "" {
		fmt.Fprintf(&b, " %s", after.SetName)
	}
	if after.LogicalSessionTimeoutMinutes != nil {
		fmt.Fprintf(&b, ", sessions of %d minutes", *after.LogicalSessionTimeoutMinutes)
	}
	if after.CompatibilityError != nil {
		fmt.Fprintf(&b, "\nincompatible: %v", after.CompatibilityError)
	}
	if why := after.Deserted(); why != nil {
		fmt.Fprintf(&b, "\ndeserted: %v", why)
	}
	return b.String() + "\n"
}

func serverText(s *description.Server) string {
	if s == nil {
		return "(none)"
	}
	return s.String()
}

func addresses(d *datadriven.TestData, name string) []address.Address {
	var all []address.Address
	for _, arg := range d.CmdArgs {
		if arg.Key == name {
			for _, v := range arg.Vals {
				all = append(all, address.Address(v))
			}
		}
	}
	return all
}
