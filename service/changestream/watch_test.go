package changestream_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/stream"
)

// TestEvents reads events in their order, and the tokens of an idle stream, until the server ends
// the stream after an invalidate event.
func TestEvents(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		w := g.watch(onShop())
		g.insert(1, 2)
		if got, want := w.read(2), []string{"insert 1", "insert 2"}; !slices.Equal(got, want) {
			t.Fatalf("read %q, want %q", got, want)
		}
		before := w.token
		g.command(`{"insert": "other", "documents": [{"_id": 9}]}`)
		m, err := w.message()
		if err != nil || len(m.GetDocuments()) > 0 ||
			bson.DocumentValue(w.token).Equal(bson.DocumentValue(before)) {
			t.Fatalf("after a change elsewhere: %v, %v, want a newer resume token", m, err)
		}
		g.command(`{"drop": "c"}`)
		if got, want := w.read(2), []string{"drop", "invalidate"}; !slices.Equal(got, want) {
			t.Fatalf("read %q, want %q", got, want)
		}
		if err := w.end(); err != nil {
			t.Errorf("the stream ends with %v, want its end", err)
		}
		// Another stream goes on after the invalidate event.
		again := onShop()
		again.StartAfter = payload.NewDocument(w.token)
		w = g.watch(again)
		g.insert(3)
		if got := w.next(); got != "insert 3" {
			t.Errorf("read %q after the invalidate event", got)
		}
		w.leave()
	})
}

// TestScopes watches a database and the deployment, through a pipeline.
func TestScopes(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		inserts := []*mooringv1.Document{
			payload.NewDocument(doc(t, `{"$match": {"operationType": "insert"}}`)),
		}
		for name, req := range map[string]*mooringv1.WatchRequest{
			"database":   {Database: "db", Pipeline: inserts},
			"deployment": {Pipeline: inserts},
		} {
			w := g.watch(req)
			g.insert(1)
			g.command(`{"insert": "other", "documents": [{"_id": 2}]}`)
			g.command(`{"drop": "c"}`)
			g.command(`{"drop": "other"}`)
			if got, want := w.read(2), []string{"insert 1", "insert 2"}; !slices.Equal(got, want) {
				t.Errorf("%s: read %q, want %q", name, got, want)
			}
			w.leave()
		}
	})
}

// TestGoOnElsewhere stops a replica: its streams fail with UNAVAILABLE at once, and another replica
// goes on after their last token.
func TestGoOnElsewhere(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		req := onShop()
		req.MaxAwaitTimeMs = new(int64(600_000)) // no server answers while the gateway stops
		w := g.watch(req)
		g.insert(1)
		if got := w.next(); got != "insert 1" {
			t.Fatalf("read %q", got)
		}
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "getMore" {
				return fakemongo.Hang()
			}
			return next(cmd)
		})
		synctest.Wait()
		begun := time.Now()
		g.stop()
		err := w.end()
		if status.Code(err) != codes.Unavailable || time.Since(begun) > 10*time.Second {
			t.Fatalf("a stopping gateway ends the stream with %v after %v", err, time.Since(begun))
		}
		if n := g.service.Stopped(); n != 1 {
			t.Errorf("%d streams were ended, want 1", n)
		}
		d.Disturb(nil)
		other := start(t, d)
		other.insert(2)
		again := onShop()
		again.StartAfter = payload.NewDocument(w.token)
		ctx := t.Context()
		s, err := other.api.Watch(ctx, again)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err == nil && len(m.GetDocuments()) == 0 { // that it is open
			m, err = s.Recv()
		}
		if err != nil || kinds(m.GetDocuments()) != "insert 2" {
			t.Errorf("the other replica begins with %v, %v", m, err)
		}
		other.stop()
		if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the other replica stops with %v", err)
		}
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "aggregate" {
				t.Error("a stopping gateway opens a stream")
			}
			return next(cmd)
		})
		if w, err := other.api.Watch(ctx, onShop()); err == nil {
			if _, err = w.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("a stream of a stopping gateway: %v", err)
			}
		}
		if n := other.service.Stopped(); n != 1 {
			t.Errorf("%d streams were ended, want 1: the other was not open", n)
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
	})
}

// TestFailover elects another primary, and breaks getMores, under a stream, which misses nothing.
func TestFailover(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		g.lossy = true
		w := g.watch(onShop())
		var want []string
		for i := range 12 {
			switch i % 4 {
			case 1:
				d.Cluster().Elect(d.Cluster().Host(i % 3))
			case 2:
				g.command(`{"ping": 1}`)
				if err := d.SetFailPoint(d.Cluster().Primary().Address(), bson.ObjectID{}, doc(t,
					`{"configureFailPoint": "failGetMoreAfterCursorCheckout", "mode": {"times": 1}, "data": {"errorCode": 11602}}`)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second) //nolint:forbidigo // time is fake
			g.insert(i)
			want = append(want, fmt.Sprintf("insert %d", i))
		}
		if got := w.read(12); !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
		w.leave()
	})
}

// TestClientGoesAway checks that nothing is left of a stream, wherever it is. The fixture counts.
func TestClientGoesAway(t *testing.T) {
	for _, hangs := range []string{"", "getMore", "aggregate"} {
		t.Run("while it waits for "+hangs, func(t *testing.T) {
			run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
				w := g.watch(onShop())
				d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
					if cmd.Name == hangs {
						return next(cmd).After(20 * time.Second)
					}
					return next(cmd)
				})
				if hangs == "aggregate" {
					s, err := g.api.Watch(t.Context(), onShop())
					if err != nil {
						t.Fatal(err)
					}
					_ = s // it reads nothing
				}
				synctest.Wait()
				w.leave()
				if n := g.gate.InFlight(); n > 0 && hangs != "aggregate" {
					t.Errorf("%d calls go on 10 s after their client has gone", n)
				}
				g.stop()
				time.Sleep(time.Minute) //nolint:forbidigo // time is fake
			})
		})
	}
}

func reason(err error) rpcerr.Reason {
	return rpcerr.Reason(rpcerr.HTTP(err).Body.GetError().GetReason())
}

func retry(err error) rpcerr.Retry {
	return rpcerr.Retry(rpcerr.HTTP(err).Body.GetError().GetRetry())
}

// TestTimeout checks a server that does not answer within timeoutMS: the stream fails, and the
// client may go on after its last token.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{uri: "&timeoutMS=5000"})
		g.lossy = true
		w := g.watch(onShop())
		d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "getMore" {
				return fakemongo.Hang()
			}
			return next(cmd)
		})
		if err := w.end(); status.Code(err) != codes.DeadlineExceeded ||
			retry(err) != rpcerr.Restart {
			t.Errorf("%v, retry %s", err, retry(err))
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
	})
}

// TestSplitMessages checks the tokens of messages that a batch is split into because its JSON is
// larger than its BSON: each is that of the message's last event, and has the form of the events.
func TestSplitMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{streams: stream.Config{MessageBytes: 600}})
		first := g.watch(onShop())
		g.insert(1, 2, 3, 4, 5, 6)
		req := onShop()
		req.StartAfter = payload.NewDocument(first.token)
		first.leave()
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(),
			"mooring-document-encoding", "canonical-json"))
		s, err := g.api.Watch(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		events, messages := 0, 0
		for events < 6 {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			docs := m.GetDocuments()
			if len(docs) == 0 {
				continue // it is open
			}
			events += len(docs)
			messages++
			token := m.GetResumeToken().GetJson()
			if last := docs[len(docs)-1].GetJson(); token == "" ||
				!strings.HasPrefix(last, `{"_id":`+token+`,`) {
				t.Errorf("the token of a message is %s, its last event %s", token, last)
			}
		}
		if messages == 1 || messages == 6 {
			t.Errorf("%d messages, want some with several events", messages)
		}
		cancel()
		time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
	})
}

// TestRefusals are requests and streams that fail.
func TestRefusals(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		token := payload.NewDocument(doc(t, `{"_data": "00"}`))
		at := &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: `5`}}
		for name, test := range map[string]struct {
			req  *mooringv1.WatchRequest
			code codes.Code
		}{
			"a collection without a database": {&mooringv1.WatchRequest{Collection: new("c")}, codes.InvalidArgument},
			"an empty collection":             {&mooringv1.WatchRequest{Database: "db", Collection: new("")}, codes.InvalidArgument},
			"a time that is none":             {&mooringv1.WatchRequest{Database: "db", StartAtOperationTime: at}, codes.InvalidArgument},
			"two starts":                      {&mooringv1.WatchRequest{Database: "db", ResumeAfter: token, StartAfter: token}, codes.InvalidArgument},
			"a token that is none":            {&mooringv1.WatchRequest{Database: "db", StartAfter: payload.NewDocument(doc(t, `{"_data": "zz"}`))}, codes.FailedPrecondition},
			"an unknown fullDocument":         {&mooringv1.WatchRequest{Database: "db", FullDocument: new("x")}, codes.InvalidArgument},
			"an empty fullDocument":           {&mooringv1.WatchRequest{Database: "db", FullDocument: new("")}, codes.InvalidArgument},
			"a negative batch size":           {&mooringv1.WatchRequest{Database: "db", BatchSize: new(int32(-1))}, codes.InvalidArgument},
			"an option that has a field":      {&mooringv1.WatchRequest{Database: "db", Options: payload.NewDocument(doc(t, `{"collation": {}}`))}, codes.InvalidArgument},
			"a wrong session":                 {&mooringv1.WatchRequest{Database: "db", Session: new("x")}, codes.NotFound},
		} {
			s, err := g.api.Watch(t.Context(), test.req)
			if err == nil {
				_, err = s.Recv()
			}
			if status.Code(err) != test.code {
				t.Errorf("%s: %v, want %v", name, err, test.code)
			}
		}
		// A stream loses its history while it runs.
		for code, name := range map[int]rpcerr.Reason{
			136: "CappedPositionLost", 286: "ChangeStreamHistoryLost",
		} {
			d.Disturb(nil)
			w := g.watch(onShop())
			g.fail(d, code)
			if err := w.end(); status.Code(err) != codes.FailedPrecondition ||
				rpcerr.HTTP(err).Code != http.StatusGone || reason(err) != name ||
				retry(err) != rpcerr.Restart {
				t.Errorf("lost history: %v, %d, retry %s", err, rpcerr.HTTP(err).Code, retry(err))
			}
		}
		// A call's deadline is the stream's.
		d.Disturb(nil)
		w := g.watch(onShop())
		w.leave()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s, err := g.api.Watch(ctx, onShop())
		for err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.DeadlineExceeded || retry(err) != rpcerr.Never {
			t.Errorf("a stream with a deadline: %v, retry %s", err, retry(err))
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake
	})
}

// refusal opens a stream that is refused, and returns the error.
func (g *gateway) refusal(principal string) error {
	g.t.Helper()
	s, err := g.api.Watch(as(g.t.Context(), principal), ownOnShop())
	if err == nil {
		_, err = s.Recv()
	}
	if err == nil {
		g.t.Fatal("one stream more than there may be is open")
	}
	return err
}

// TestShares checks that one principal gets all cursors but what is left for the next, that the
// refusals say whose share is used, and that a stream that ends makes room for another.
func TestShares(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		var open []*watch
		for range maxOpen - 1 {
			open = append(open, g.watchAs("greedy", ownOnShop()))
		}
		err := g.refusal("greedy")
		if reason(err) != rpcerr.QuotaExceeded ||
			!strings.Contains(err.Error(), "a larger maxPoolSize") {
			t.Errorf("one more of the same principal: %v, want QuotaExceeded", err)
		}
		open = append(open, g.watchAs("other", ownOnShop()))
		if err := g.refusal("third"); reason(err) != rpcerr.Overloaded {
			t.Errorf("one more than there may be: %v, want Overloaded", err)
		}
		open[0].leave()
		synctest.Wait()
		open[0] = g.watchAs("third", ownOnShop())
		g.insert(1)
		for _, w := range open {
			if got := w.next(); got != "insert 1" {
				t.Errorf("read %q, want the change", got)
			}
			w.leave()
		}
	})
}

func TestMaxCursors(t *testing.T) {
	for size, want := range map[uint64]int64{
		0: 0, 1: 1, 5: 4, 50: 40, 100: 80, 101: 81, 1100: 1080, math.MaxUint64: math.MaxInt64,
	} {
		if got := changestream.MaxCursors(size); got != want {
			t.Errorf("MaxCursors(%d) = %d, want %d", size, got, want)
		}
	}
}
