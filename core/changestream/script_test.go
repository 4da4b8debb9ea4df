package changestream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

var orders = client.Namespace{Database: "shop", Collection: "orders"}

// step is what the server answers the next aggregate or getMore with.
type step struct {
	command string
	reply   fakemongo.Reply
}

func aggregate(r fakemongo.Reply) step { return step{"aggregate", r} }

func getMore(r fakemongo.Reply) step { return step{"getMore", r} }

// script is a server that answers aggregates and getMores with the steps of a test, in order.
type script struct {
	*fakemongo.Server
	t  *testing.T
	mu sync.Mutex
	// steps are those to come.
	steps []step
}

func (s *script) answer(cmd *fakemongo.Command) fakemongo.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) == 0 || s.steps[0].command != cmd.Name {
		s.t.Errorf("%s was sent; the steps to come are %v", cmd.Name, s.steps)
		return fakemongo.Error(1, "InternalError", "not in the script")
	}
	r := s.steps[0].reply
	s.steps = s.steps[1:]
	return r
}

// options returns the options of $changeStream of all aggregates so far.
func (s *script) options() []string {
	var all []string
	for _, cmd := range s.Commands("aggregate") {
		v, _ := cmd.Body.Lookup("pipeline", "0", "$changeStream")
		d, _ := v.Document()
		all = append(all, text(s.t, d))
	}
	return all
}

// sent returns the names of the commands so far, without those of monitors and handshakes.
func (s *script) sent() string {
	var names []string
	for _, cmd := range s.Commands("aggregate", "getMore", "killCursors") {
		names = append(names, cmd.Name)
	}
	return strings.Join(names, " ")
}

// run runs a test with a client of a server of this wire version that answers with the steps. All
// of them must have been used at the end.
func run(
	t *testing.T, wire int, steps []step, test func(t *testing.T, s *script, c *client.Client),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, steps: steps}
		s.Server = fakemongo.NewServer(t, fakemongo.Handlers{
			"aggregate": s.answer, "getMore": s.answer,
			"hello": fakemongo.Always(fakemongo.Document(doc(t, fmt.Sprintf(`{"helloOk": true, "ismaster": true, "minWireVersion": 0,
				"maxWireVersion": %d, "maxBsonObjectSize": 16777216, "maxMessageSizeBytes": 48000000, "maxWriteBatchSize": 100000,
				"logicalSessionTimeoutMinutes": 30, "ok": 1}`, wire)))),
		})
		test(t, s, connect(t, connstring.Config{Hosts: []address.Address{s.Address()}}, s.Dial))
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.steps) > 0 {
			t.Errorf("%d steps were not used", len(s.steps))
		}
	})
}

// connect returns a started client, which is closed at the end of the test.
func connect(
	t *testing.T,
	cfg connstring.Config,
	dial func(context.Context, string, string) (net.Conn, error),
) *client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{Dialer: dial})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return c
}

// first and next are the replies of an aggregate and of a getMore. An id of 0 ends the cursor, an
// empty token is none, and an event is its _id.
func first(t testing.TB, id int64, pbrt string, ids ...string) fakemongo.Reply {
	return cursorReply(t, "firstBatch", id, pbrt, ids)
}

func next(t testing.TB, id int64, pbrt string, ids ...string) fakemongo.Reply {
	return cursorReply(t, "nextBatch", id, pbrt, ids)
}

func cursorReply(t testing.TB, batch string, id int64, pbrt string, ids []string) fakemongo.Reply {
	return fakemongo.OK(func(b *bson.Builder) {
		b.OpenDocument("cursor").Int64("id", id).String("ns", "shop.orders").OpenArray(batch)
		for _, id := range ids {
			b.OpenDocument("").Document("_id", doc(t, id)).String("operationType", "insert").Close()
		}
		b.Close()
		if pbrt != "" {
			b.Document("postBatchResumeToken", doc(t, pbrt))
		}
		b.Close().Timestamp("operationTime", 7, 8)
	})
}

func resumableError() fakemongo.Reply {
	return fakemongo.Error(280280, "", "lost for a moment", "ResumableChangeStreamError")
}

func watch(t testing.TB, c *client.Client, opt client.WatchOptions) *changestream.Stream {
	t.Helper()
	s, err := c.Watch(context.Background(), orders, opt)
	if err != nil {
		t.Fatalf("Watch() = %v", err)
	}
	return s
}

// expect calls Next and wants the event of a token.
func expect(t testing.TB, s *changestream.Stream, token string) {
	t.Helper()
	event, err := s.Next(context.Background())
	if err != nil {
		t.Fatalf("Next() = %v, want the event %s", err, token)
	}
	v, _ := event.Lookup("_id")
	if id, _ := v.Document(); text(t, id) != token {
		t.Fatalf("Next() = %s, want the event %s", text(t, event), token)
	}
}

// expectToken wants a cached resume token.
func expectToken(t testing.TB, s *changestream.Stream, want string) {
	t.Helper()
	if got := text(t, s.ResumeToken()); got != want {
		t.Errorf("ResumeToken() = %s, want %s", got, want)
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
