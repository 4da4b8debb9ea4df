package fakemongo_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// look is what a host says of itself on a new connection.
func look(t *testing.T, c *fakemongo.Cluster, h *fakemongo.Host) *description.Server {
	t.Helper()
	conn, err := conn.Dial(t.Context(), h.Address(), conn.Config{Dialer: c.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.Description()
}

func TestRoles(t *testing.T) {
	c := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Standalone, fakemongo.Mongos,
		fakemongo.Primary,
		fakemongo.Secondary, fakemongo.Arbiter, fakemongo.Hidden, fakemongo.Recovering,
		fakemongo.Ghost)
	for i, want := range []description.ServerKind{
		description.ServerStandalone, description.ServerMongos, description.ServerRSPrimary, description.ServerRSSecondary,
		description.ServerRSArbiter, description.ServerRSOther, description.ServerRSOther, description.ServerRSGhost,
	} {
		if s := look(t, c, c.Host(i)); s.Kind != want {
			t.Errorf("host %d is %v, want %v", i, s.Kind, want)
		}
	}
	if s := look(t, c, c.Host(3)); s.Primary != "c:27017" || len(s.Hosts) != 3 ||
		len(s.Arbiters) != 1 || s.Me != "d:27017" {
		t.Errorf("a secondary says primary %v, hosts %v, arbiters %v, me %v", s.Primary, s.Hosts,
			s.Arbiters, s.Me)
	}
}

func TestElections(t *testing.T) {
	c := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary, fakemongo.Secondary)
	before := look(t, c, c.Host(0))
	c.ElectUnnoticed(c.Host(1))
	old, current := look(t, c, c.Host(0)), look(t, c, c.Host(1))
	if old.Kind != description.ServerRSPrimary || old.ElectionID != before.ElectionID ||
		current.Kind != old.Kind || current.ElectionID == old.ElectionID {
		t.Errorf("after an unnoticed election: %v and %v", old, current)
	}
	if c.Primary() != c.Host(1) {
		t.Error("the old primary counts")
	}
	c.Elect(c.Host(0))
	if s := look(t, c, c.Host(1)); s.Kind != description.ServerRSSecondary {
		t.Errorf("the old primary is %v", s)
	}
	c.StepDown()
	if c.Primary() != nil {
		t.Error("there is a primary after a step-down")
	}
	added := c.Add(fakemongo.Secondary)
	if s := look(t, c, c.Host(0)); len(s.Hosts) != 3 || *s.SetVersion != 2 {
		t.Errorf("hosts %v in version %d after one was added", s.Hosts, *s.SetVersion)
	}
	c.Remove(added)
	if s := look(t, c, added); s.Kind != description.ServerRSGhost {
		t.Errorf("the removed host is %v", s)
	}
	added.Restart()
	if s := look(t, c, added); s.TopologyVersion.Counter != 0 {
		t.Errorf("the version counts on after a restart: %v", s.TopologyVersion)
	}
}

// TestOneAwaitedReply: a client that does not allow more gets one, and may go on to ask.
func TestOneAwaitedReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		connection := dial(t, c.Host(0).Server)
		ask := func() {
			run(t, connection, nil, func(b *bson.Builder) {
				v := connection.Description().TopologyVersion
				b.Int32("hello", 1).Int64("maxAwaitTimeMS", 1000)
				b.OpenDocument("topologyVersion").ObjectID("processId", v.ProcessID).
					Int64("counter", v.Counter).Close()
			})
		}
		begin := time.Now()
		ask()
		ask()
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("two replies took %v, want 2s", took)
		}
		if v := c.Host(0).Violation(); v != "" {
			t.Error(v)
		}
	})
}

func TestHangingAndUnknownHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		h := c.Host(0)
		h.Hang(true)
		if _, err := conn.Dial(t.Context(), h.Address(),
			conn.Config{Dialer: c.Dial, ConnectTimeout: time.Second}); !mongoerr.IsTimeout(err) {
			t.Errorf("Dial = %v, want a timeout", err)
		}
		h.Hang(false)
		look(t, c, h)
		_, err := conn.Dial(context.Background(), //nolint:usetesting // any will do
			address.Address("nowhere:27017"), conn.Config{Dialer: c.Dial})
		if _, ok := errors.AsType[*mongoerr.NetworkError](err); !ok {
			t.Errorf("Dial = %v, want a network error", err)
		}
	})
}
