package conn_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo"
	fakewire "github.com/mooringdb/mooring/internal/fakemongo/wire"
)

func TestAwaitHelloFollowsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Secondary,
			fakemongo.Primary)
		host := cluster.Host(0)
		c := dial(t, host.Server, conn.Config{})
		known := c.Description().TopologyVersion
		if known == nil {
			t.Fatal("hello has no topologyVersion")
		}
		await := func() description.Server {
			t.Helper()
			reply, err := c.AwaitHello(t.Context(), known, 10*time.Second)
			if err != nil {
				t.Fatalf("AwaitHello() = %v", err)
			}
			if !c.Following() {
				t.Error("the server did not announce another reply")
			}
			s := description.NewServer(host.Address(), reply, 0)
			known = s.TopologyVersion
			return s
		}
		begin := time.Now()
		await() // nothing happens
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("a reply without news came after %v, want 10s", took)
		}
		time.AfterFunc(time.Second, func() { cluster.Elect(host) })
		if s := await(); s.Kind != description.ServerRSPrimary ||
			time.Since(begin) != 11*time.Second {
			t.Errorf("after %v the host is %v, want a primary after 11s", time.Since(begin), s.Kind)
		}
		cluster.StepDown()
		if s := await(); s.Kind != description.ServerRSSecondary {
			t.Errorf("the host is %v, want a secondary", s.Kind)
		}
		if sent := host.Commands("hello"); len(sent) != 1 {
			t.Errorf("%d hellos were sent, want one for all replies", len(sent))
		} else if got, _ := sent[0].Body.Lookup("maxAwaitTimeMS"); got.Type != bson.TypeInt64 ||
			!sent[0].ExhaustAllowed {
			t.Errorf("sent %v, exhaustAllowed %v", sent[0].Body, sent[0].ExhaustAllowed)
		}
		if v := host.Violation(); v != "" {
			t.Error(v)
		}
	})
}

func TestAwaitHelloIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		for name, first := range map[string]bool{
			"waiting for the first reply": true, "waiting for another": false,
		} {
			c := dial(t, cluster.Host(0).Server, conn.Config{})
			known := c.Description().TopologyVersion
			if !first {
				if _, err := c.AwaitHello(t.Context(), known, time.Second); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			begin := time.Now()
			_, err := c.AwaitHello(ctx, known, time.Second)
			cancel()
			if took := time.Since(begin); took != 300*time.Millisecond ||
				!mongoerr.IsNetwork(err) || !mongoerr.IsTimeout(err) {
				t.Errorf("%s: AwaitHello() = %v after %v, want a timeout after 300ms", name, err,
					took)
			}
			if c.Alive() {
				t.Errorf("%s: the connection is alive", name)
			}
			if _, err := c.AwaitHello(t.Context(), known, time.Second); !mongoerr.IsNetwork(err) {
				t.Errorf("%s: AwaitHello on a broken connection = %v", name, err)
			}
			_ = c.Close()
		}
		synctest.Wait()
		if n := cluster.Host(0).Streams(); n != 0 {
			t.Errorf("%d streams are left on the server", n)
		}
	})
}

// TestAwaitHelloEndsWithTheStream checks that a reply which announces no other one leaves the
// connection ready for requests.
func TestAwaitHelloEndsWithTheStream(t *testing.T) {
	ok := bson.NewBuilder(nil).Double("ok", 1).Finish()
	reply := func(flags wire.Flags, id, to int32) []byte {
		return wire.Append(nil, wire.Header{RequestID: id, ResponseTo: to},
			&wire.Msg{Flags: flags, Body: ok})
	}
	c, err := conn.Dial(t.Context(), "a:27017", conn.Config{Dialer: func(
		context.Context, string, string,
	) (net.Conn, error) {
		client, server := net.Pipe()
		go serveRaw(server,
			func(id int32) [][]byte {
				return [][]byte{reply(wire.MoreToCome, 7, id), reply(0, 8, 7)}
			},
			func(id int32) [][]byte { return [][]byte{reply(0, 9, id)} })
		return client, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, following := range []bool{true, false} {
		if _, err := c.AwaitHello(t.Context(), &description.TopologyVersion{},
			time.Second); err != nil || c.Following() != following {
			t.Fatalf("AwaitHello() = %v, following %v, want %v", err, c.Following(), following)
		}
	}
	if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
		t.Errorf("RoundTrip() after the stream = %v", err)
	}
}

func TestAwaitHelloRefusesRepliesOutOfStep(t *testing.T) {
	ok := bson.NewBuilder(nil).Double("ok", 1).Finish()
	reply := func(flags wire.Flags, id, to int32) []byte {
		return wire.Append(nil, wire.Header{RequestID: id, ResponseTo: to},
			&wire.Msg{Flags: flags, Body: ok})
	}
	for name, test := range map[string]struct {
		replies func(request int32) [][]byte
		good    int // replies before the bad one
		want    string
	}{
		"to another request": {func(id int32) [][]byte { return [][]byte{reply(0, 7, id+1)} }, 0, "expected a reply to"},
		"to the request instead of to the last reply": {func(id int32) [][]byte {
			return [][]byte{reply(wire.MoreToCome, 7, id), reply(wire.MoreToCome, 8, id)}
		}, 1, "expected a reply to"},
		"announcing more without an id": {func(id int32) [][]byte { return [][]byte{reply(wire.MoreToCome, 0, id)} }, 0, "without an id"},
		"of the old kind": {func(id int32) [][]byte {
			return [][]byte{
				wire.Append(nil, wire.Header{RequestID: 7, ResponseTo: id}, &wire.Reply{Documents: []bson.Raw{ok}}),
			}
		}, 0, "unexpected"},
		"that end": {func(id int32) [][]byte { return [][]byte{reply(wire.MoreToCome, 7, id)} }, 1, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			addr := address.Address("a:27017")
			cfg := conn.Config{Dialer: func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go serveRaw(server, test.replies)
				return client, nil
			}}
			c, err := conn.Dial(t.Context(), addr, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			for range test.good {
				if _, err := c.AwaitHello(t.Context(), &description.TopologyVersion{},
					time.Second); err != nil {
					t.Fatalf("AwaitHello() = %v", err)
				}
			}
			_, err = c.AwaitHello(t.Context(), &description.TopologyVersion{}, time.Second)
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, io.EOF) {
				t.Errorf("AwaitHello() = %v, want %q", err, test.want)
			}
		})
	}
}

// serveRaw answers the handshake, and each of the next requests by bytes.
func serveRaw(nc net.Conn, answers ...func(request int32) [][]byte) {
	defer func() { _ = nc.Close() }()
	request := func() (id int32, ok bool) {
		m, err := fakewire.Read(nc, nil)
		if err != nil {
			return 0, false
		}
		return m.Header().ID, true
	}
	id, ok := request()
	if !ok {
		return
	}
	hello := bson.NewBuilder(nil).Bool("ismaster", true).Int32("maxWireVersion", 21).
		Double("ok", 1).Finish()
	if _, err := nc.Write(wire.Append(nil, wire.Header{ResponseTo: id},
		&wire.Reply{Documents: []bson.Raw{hello}})); err != nil {
		return
	}
	for _, replies := range answers {
		if id, ok = request(); !ok {
			return
		}
		for _, reply := range replies(id) {
			if _, err := nc.Write(reply); err != nil {
				return
			}
		}
	}
}
