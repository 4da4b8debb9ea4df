package topology_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// openings returns how the server's connections began: m for OP_MSG, q for OP_QUERY.
func openings(server *fakemongo.Server) string {
	var all strings.Builder
	for _, cmd := range server.Commands() {
		switch {
		case !cmd.Body.Has("client"):
		case cmd.Legacy:
			all.WriteByte('q')
		default:
			all.WriteByte('m')
		}
	}
	return all.String()
}

// TestServerThatIsTooOld checks that a server without OP_MSG is reported as such, and that this
// lasts, also when the connection to it breaks.
func TestServerThatIsTooOld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := fakemongo.NewServer(t, nil)
		server.Intercept(func(cmd *fakemongo.Command, _ fakemongo.Handler) fakemongo.Reply {
			if !cmd.Legacy {
				return fakemongo.Drop()
			}
			return fakemongo.OK(func(b *bson.Builder) {
				b.Bool("ismaster", true).Int32("maxWireVersion", 5)
			})
		})
		topo := start(t, standalone(server))
		defer stop(t, topo)
		const want = "Server at a:27017 reports wire version 5, but this version of Mooring " +
			"requires at least 6 (MongoDB 3.6)."
		reported := func(when string) {
			t.Helper()
			if _, err := topo.Select(t.Context(), selection.Write()); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s: Select() = %v, want %q", when, err, want)
			}
		}
		_, _ = topo.Select(t.Context(), selection.Write()) // waits for the second check
		reported("at first")
		pass(25 * time.Second)
		reported("after further checks")
		if got := openings(server); got != "mq" {
			t.Errorf("connections began with %s, want OP_MSG and then OP_QUERY", got)
		}
		server.CutConnections()
		pass(25 * time.Second)
		reported("after another connection")
	})
}

// TestRefusedConnectionsAreNoReasonToFallBack checks that a server which closes connections is
// asked once over OP_QUERY by its monitor, if it has never answered OP_MSG, and never else.
func TestRefusedConnectionsAreNoReasonToFallBack(t *testing.T) {
	for name, tt := range map[string]struct {
		refused int64 // of the handshakes
		dropped fakemongo.Reply
		api     bool
		want    string
	}{
		"closed, all":             {1000, fakemongo.Drop(), false, "mqmmmmmm"},
		"closed, two":             {2, fakemongo.Drop(), false, "mqm"},
		"closed, one":             {1, fakemongo.Drop(), false, "mq"},
		"closed under stable API": {2, fakemongo.Drop(), true, "mmm"},
		"hung":                    {2, fakemongo.Hang(), false, "mmm"},
		"refused by a reply":      {2, fakemongo.Error(91, "ShutdownInProgress", "bye"), false, "mmm"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := fakemongo.NewServer(t, nil)
				server.Intercept(refuse(tt.refused, tt.dropped))
				cfg := standalone(server)
				cfg.Conn.ConnectTimeout = time.Second
				cfg.ServerSelectionTimeout = 3700 * time.Millisecond
				if tt.api {
					cfg.Conn.ServerAPI = &conn.ServerAPI{Version: "1"}
				}
				topo := start(t, cfg)
				defer stop(t, topo)
				_, _ = topo.Select(t.Context(), selection.Write())
				if got := openings(server); got != tt.want {
					t.Errorf("connections began with %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// TestAnsweredOnceNeverFallsBack checks the same of a server that breaks its connections later,
// and of the connections of its pool.
func TestAnsweredOnceNeverFallsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := fakemongo.NewServer(t, nil)
		topo := start(t, standalone(server))
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		server.Intercept(refuse(1000, fakemongo.Drop()))
		for range 3 {
			if err := ping(t.Context(), s); !mongoerr.IsNetwork(err) {
				t.Errorf("ping = %v", err)
			}
		}
		server.CutConnections()
		pass(25 * time.Second)
		if topo.Description().Servers[0].Kind != description.ServerUnknown {
			t.Error("the server is still known")
		}
		if got := openings(server); strings.Contains(got, "q") || len(got) < 6 {
			t.Errorf("connections began with %s, want OP_MSG each time", got)
		}
	})
}

// TestTooOldOverOpMsgIsAskedOverOpMsg checks a server that says over OP_MSG that it does not speak
// it.
func TestTooOldOverOpMsgIsAskedOverOpMsg(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := fakemongo.NewServer(t,
			fakemongo.Handlers{"hello": fakemongo.Always(fakemongo.OK(func(
				b *bson.Builder,
			) {
				b.Bool("isWritablePrimary", true).Int32("maxWireVersion", 5)
			}))})
		topo := start(t, standalone(server))
		defer stop(t, topo)
		pass(time.Second)
		server.CutConnections()
		pass(25 * time.Second)
		if got := openings(server); got != "mm" {
			t.Errorf("connections began with %s, want OP_MSG each time", got)
		}
	})
}
