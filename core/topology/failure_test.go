package topology_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestFailedCheckClearsThePoolAndIsRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		cfg := standalone(server)
		cfg.Sink = j.sink()
		topo := start(t, cfg)
		defer stop(t, topo)
		mustSelect(t, topo, selection.Write())
		settle(&j)

		server.Handle("hello",
			fakemongo.Times(1, fakemongo.Always(fakemongo.Drop()), server.Default))
		pass(10*time.Second + time.Millisecond)
		j.expect(t, "a check", "a check failed", "a Standalone → Unknown",
			"topology Single/1 → Single/1",
			"a pool cleared, interrupt false", "a check", "a check ok", "a Unknown → Standalone",
			"topology Single/1 → Single/1", "a pool ready")
	})
}

func TestRepetitionThatFailsWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		cfg := standalone(server)
		topo := start(t, cfg)
		defer stop(t, topo)
		mustSelect(t, topo, selection.Write())
		settle(&j)
		server.Handle("hello", func(c *fakemongo.Command) fakemongo.Reply {
			j.add("hello")
			return fakemongo.Drop()
		})
		pass(15 * time.Second)
		j.expect(t, "hello", "hello")
	})
}

func TestCommandErrorOfACheckIsNotRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		topo := start(t, standalone(server))
		defer stop(t, topo)
		mustSelect(t, topo, selection.Write())
		settle(&j)
		server.Handle("hello", func(*fakemongo.Command) fakemongo.Reply {
			j.add("hello")
			return fakemongo.Error(91, "ShutdownInProgress", "going down")
		})
		pass(15 * time.Second)
		j.expect(t, "hello")
		if s := topo.Description().Servers[0]; s.Kind != description.ServerUnknown ||
			!mongoerr.IsShutdown(s.LastError) {
			t.Errorf("server = %v", s)
		}
	})
}

func TestHangingServerInterruptsItsConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		cfg := standalone(server)
		cfg.Sink = j.sink()
		cfg.Conn.ConnectTimeout = time.Second
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		settle(&j)

		server.Handle("hello", fakemongo.Always(fakemongo.Hang()))
		// which is what new connections of the pool begin with
		server.Handle("isMaster", server.Default)
		server.Handle("ping", fakemongo.Always(fakemongo.Hang()))
		begin := time.Now()
		if err := ping(t.Context(), s); err == nil {
			t.Error("the operation on the hanging server succeeded")
		}
		if took := time.Since(begin); took > 11*time.Second+10*time.Millisecond {
			t.Errorf("the operation was interrupted after %v, want 11 s: an interval and "+
				"connectTimeoutMS", took)
		}
		synctest.Wait()
		if got := j.take(); !slices.Contains(got, "a pool cleared, interrupt true") {
			t.Errorf("events = %v", got)
		}
	})
}

func TestNetworkErrorOfAnOperation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		cfg := standalone(server)
		cfg.Sink = j.sink()
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		settle(&j)

		server.Handle("ping",
			fakemongo.Times(1, fakemongo.Always(fakemongo.Drop()), server.Default))
		if err := ping(t.Context(), s); !mongoerr.IsNetwork(err) {
			t.Errorf("ping = %v, want a network error", err)
		}
		j.expect(t, "a Standalone → Unknown", "topology Single/1 → Single/1",
			"a pool cleared, interrupt false")
		pass(400 * time.Millisecond)
		j.expect(t) // no check was asked for

		s = mustSelect(t, topo, selection.Write()) // this asks
		if err := ping(t.Context(), s); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		j.expect(t, "a check", "a check ok", "a Unknown → Standalone",
			"topology Single/1 → Single/1", "a pool ready")
	})
}

// TestTheMonitorsConnectionIsGivenUp checks that the next check after an application's network
// error does not wait for an answer on the monitor's old connection, which may be broken, too.
func TestTheMonitorsConnectionIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := fakemongo.NewServer(t, nil)
		topo := start(t, standalone(server))
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		pass(time.Second) // the monitor rests

		// The connections that are there now are dead without a sign; new ones are well.
		var hellos atomic.Int64
		server.Handle("hello", func(cmd *fakemongo.Command) fakemongo.Reply {
			if _, handshake := cmd.Body.Lookup("client"); handshake {
				return server.Default(cmd)
			}
			hellos.Add(1)
			return fakemongo.Hang()
		})
		server.Handle("ping",
			fakemongo.Times(1, fakemongo.Always(fakemongo.Drop()), server.Default))
		if err := ping(t.Context(), s); !mongoerr.IsNetwork(err) {
			t.Errorf("ping = %v, want a network error", err)
		}
		begin := time.Now()
		mustSelect(t, topo, selection.Write())
		if took := time.Since(begin); took > time.Second || hellos.Load() != 0 {
			t.Errorf("selected after %v, with %d checks on the old connection; want 500 ms at "+
				"most, and none", took, hellos.Load())
		}
	})
}

func TestErrorsThatSayNothingAboutTheServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		cfg := standalone(server)
		cfg.Sink = j.sink()
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		settle(&j)

		server.Handle("ping", fakemongo.Always(fakemongo.Hang()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ping(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ping = %v, want a deadline", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := ping(ctx, s); !errors.Is(err, context.Canceled) {
			t.Errorf("ping = %v, want a cancellation", err)
		}
		server.Handle("ping", fakemongo.Always(fakemongo.Error(11000, "DuplicateKey", "dup")))
		if err := ping(t.Context(), s); mongoerr.Code(err) != 11000 {
			t.Errorf("ping = %v, want code 11000", err)
		}
		j.expect(t)
	})
}

// TestMalformedReplyConcernsTheConnectionOnly checks that a connection with a reply that breaks
// the protocol is closed, while the server stays known and its pool keeps its other connections.
func TestMalformedReplyConcernsTheConnectionOnly(t *testing.T) {
	for name, reply := range map[string]fakemongo.Reply{
		"to another request": fakemongo.ToAnother(bson.NewBuilder(nil).Double("ok", 1).Finish(), 12345),
		"no message":         fakemongo.Garbage([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")),
		"not compressed":     fakemongo.Garbage(wire.Append(nil, wire.Header{}, &wire.Compressed{Compressor: 2, UncompressedSize: 9, Data: []byte("x")})),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var j journal
				server := fakemongo.NewServer(t, nil)
				cfg := standalone(server)
				cfg.Sink = j.sink()
				cfg.Sink.ConnectionClosed = func(e event.ConnectionClosed) {
					j.add("connection %d closed: %s", e.ConnectionID, e.Reason)
				}
				topo := start(t, cfg)
				defer stop(t, topo)
				s := mustSelect(t, topo, selection.Write())
				other, err := s.CheckOut(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				settle(&j)
				server.Handle("ping", fakemongo.Times(1, fakemongo.Always(reply), server.Default))
				if err := ping(t.Context(),
					mustSelect(t, topo, selection.Write())); !mongoerr.IsMalformed(err) ||
					!mongoerr.IsNetwork(err) {
					t.Errorf("ping = %v, want a malformed reply, and a broken connection", err)
				}
				s.CheckIn(other, nil)
				j.expect(t, "connection 2 closed: error")
				if err := ping(t.Context(), mustSelect(t, topo, selection.Write())); err != nil {
					t.Errorf("ping on the other connection = %v", err)
				}
				j.expect(t)
			})
		})
	}
}

func TestStateChangeErrorAsksForACheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		cfg := standalone(server)
		cfg.Sink = j.sink()
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		settle(&j)

		server.Handle("ping",
			fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "not primary")))
		if err := ping(t.Context(), s); !mongoerr.IsNotWritablePrimary(err) {
			t.Errorf("ping = %v", err)
		}
		synctest.Wait()
		// and the pool is kept
		j.expect(t, "a Standalone → Unknown", "topology Single/1 → Single/1",
			"a check", "a check ok", "a Unknown → Standalone", "topology Single/1 → Single/1")

		server.Handle("ping", fakemongo.Always(fakemongo.Error(91, "ShutdownInProgress", "bye")))
		if err := ping(t.Context(), s); !mongoerr.IsShutdown(err) {
			t.Errorf("ping = %v", err)
		}
		synctest.Wait()
		j.expect(t, "a Standalone → Unknown", "topology Single/1 → Single/1",
			"a pool cleared, interrupt false")
		pass(500 * time.Millisecond) // the rest that a server has between two checks
		synctest.Wait()
		j.expect(t, "a check", "a check ok", "a Unknown → Standalone",
			"topology Single/1 → Single/1", "a pool ready")
	})
}

func TestErrorOfAnOldGenerationIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		cfg := standalone(server)
		cfg.Sink = j.sink()
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		old, err := s.CheckOut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.Handle("ping",
			fakemongo.Times(1, fakemongo.Always(fakemongo.Drop()), server.Default))
		if err := ping(t.Context(), s); err == nil {
			t.Fatal("ping succeeded")
		}
		s = mustSelect(t, topo, selection.Write())
		settle(&j)
		s.CheckIn(old,
			&mongoerr.NetworkError{Address: s.Address(), Op: "read", Err: errors.New("reset")})
		synctest.Wait()
		j.expect(t)
	})
}
