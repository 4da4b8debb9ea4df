package selection_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/selection"
)

// TestStories selects servers of the topologies in testdata/stories. To write the files anew:
//
//	go test ./core/selection -run TestStories -rewrite
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var topology description.Topology
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "topology":
				topology = storyTopology(t, d)
				return fmt.Sprintf("%d servers\n", len(topology.Servers))
			case "write":
				return choose(t, d, topology, selection.Write())
			case "read":
				return choose(t, d, topology, selection.Read(storyPreference(t, d)))
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

// storyTopology reads: topology KIND, and a line for each server:
// ADDRESS KIND [rtt=5ms] [behind=20s] [tags=dc:ny,rack:1].
func storyTopology(t *testing.T, d *datadriven.TestData) description.Topology {
	t.Helper()
	topology := description.Topology{
		Kind: kinds[d.CmdArgs[0].Key], HeartbeatInterval: 10 * time.Second,
	}
	now := time.Unix(1e6, 0)
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		s := &description.Server{
			Address: address.Address(fields[0]), Kind: serverKinds[fields[1]], LastUpdateTime: now,
			LastWriteDate: now,
		}
		for _, field := range fields[2:] {
			name, value, _ := strings.Cut(field, "=")
			var err error
			switch name {
			case "rtt":
				s.AverageRTT, err = time.ParseDuration(value)
			case "behind":
				var lag time.Duration
				lag, err = time.ParseDuration(value)
				s.LastWriteDate = now.Add(-lag)
			case "tags":
				s.Tags, err = selection.ParseTagSet(value)
			default:
				err = fmt.Errorf("unknown field")
			}
			if err != nil {
				d.Fatalf(t, "%s: %v", field, err)
			}
		}
		topology.Servers = append(topology.Servers, s)
	}
	return topology
}

// storyPreference reads the arguments of: read mode=nearest [tags=(dc:ny, )] [staleness=90].
func storyPreference(t *testing.T, d *datadriven.TestData) *selection.ReadPreference {
	t.Helper()
	rp := &selection.ReadPreference{}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "mode":
			mode, err := selection.ParseMode(arg.Vals[0])
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			rp.Mode = mode
		case "tags":
			for _, v := range arg.Vals {
				set, err := selection.ParseTagSet(v)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				rp.TagSets = append(rp.TagSets, set)
			}
		case "staleness":
			var seconds int64
			d.ScanArgs(t, "staleness", &seconds)
			rp.MaxStalenessSeconds = &seconds
		}
	}
	return rp
}

// choose prints the servers that suit, and those of them in the latency window.
func choose(
	t *testing.T, d *datadriven.TestData, topology description.Topology, sel selection.Selector,
) string {
	t.Helper()
	var last []address.Address
	for _, arg := range d.CmdArgs {
		if arg.Key == "deprioritized" {
			for _, v := range arg.Vals {
				last = append(last, address.Address(v))
			}
		}
	}
	found, err := selection.Deprioritize(sel, last...).Select(topology, topology.Servers)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return fmt.Sprintf("%v: %s, near: %s\n", sel, names(found),
		names(selection.InWindow(found, localThreshold)))
}

func names(servers []*description.Server) string {
	if len(servers) == 0 {
		return "none"
	}
	var all []string
	for _, s := range servers {
		all = append(all, string(s.Address))
	}
	return strings.Join(all, " ")
}
