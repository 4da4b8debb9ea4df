package changestream_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/hub"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/session"
	"github.com/mooringdb/mooring/service/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway is one replica of a gateway before a scripted deployment.
type gateway struct {
	service *changestream.Server
	t       *testing.T
	client  *client.Client
	api     mooringv1.ChangeStreamServiceClient
	tickets *changestream.Tickets
	rest    http.Handler
	gate    *interceptor.Gate
	hub     *hub.Hub
	// admission has no limit on bytes, unless options say so.
	admission *admission.Admission
	stop      context.CancelFunc
	// lossy says that servers may keep cursors whose connections break.
	lossy bool
}

// maxOpen is how many cursors of streams a replica may have unless options say so, maxEach how many
// streams one principal, and maxPerTicket a ticket.
const maxOpen, maxEach, maxPerTicket = 5, 12, 2

var keys = func() *seal.Ring {
	key, err := seal.NewKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		panic(err)
	}
	ring, err := seal.NewRing(key)
	if err != nil {
		panic(err)
	}
	return ring
}()

// options change a replica. Zero fields change nothing.
type options struct {
	uri     string // such as "&timeoutMS=5"
	streams stream.Config
	policy  *policy.Enforcer
	bytes   int64
	calls   admission.Limits
	cursors int64
}

// start starts a replica. Time is fake, and the replica ends with the test.
func start(t *testing.T, d *deployment.Deployment, change ...options) *gateway {
	t.Helper()
	opt := append(change, options{})[0]
	cfg, err := connstring.Parse(d.URI(true, nil) + opt.uri)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t}
	cursors := cmp.Or(opt.cursors, maxOpen)
	g.admission = admission.New(admission.Config{
		Bytes:                  opt.bytes,
		Calls:                  opt.calls,
		ChangeStreams:          admission.Limits{Each: maxEach},
		ChangeCursors:          admission.Limits{Total: cursors},
		ChangeStreamsPerTicket: maxPerTicket,
	})
	if g.client, err = client.New(cfg, client.Options{
		Dialer: d.Dial, AdmitReply: g.admission.AdmitReply,
	}); err != nil {
		t.Fatal(err)
	}
	if err := g.client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopping, stop := context.WithCancel(context.Background())
	g.stop, g.gate = stop, interceptor.NewGate()
	g.tickets = changestream.NewTickets(keys, "test")
	g.hub = changestream.NewHub(g.admission, cursors)
	chain := interceptor.New(interceptor.Config{
		Policy: opt.policy,
		Gate:   g.gate, Sessions: session.NewSessions(g.client, keys, "test"),
		Admission: g.admission,
	})
	conn := inproc.NewConn(chain.Unary(), chain.Stream())
	g.service = changestream.New(changestream.Config{
		Client: g.client, Streams: stream.New(opt.streams), Tickets: g.tickets,
		Stopping: stopping, Hub: g.hub,
	})
	mooringv1.RegisterChangeStreamServiceServer(conn, g.service)
	g.api = mooringv1.NewChangeStreamServiceClient(conn)
	if g.rest, err = front.New(front.Config{
		Conn: conn, Admission: g.admission,
		APIs: []front.API{rest.New(rest.Config{Tickets: g.tickets})},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.hub.Close()
		if n := g.admission.ChangeCursors().Held + g.admission.Bytes().Held; n > 0 {
			t.Errorf("cursors or bytes are charged: %d", n)
		}
		if err := g.client.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := d.OpenCursors(); n > 0 && !g.lossy {
			t.Errorf("%d cursors are left on the servers", n)
		}
		if n := g.gate.InFlight(); n > 0 {
			t.Errorf("%d calls are in flight", n)
		}
	})
	return g
}

// fill holds what is left of the memory, for others. It returns what gives it back.
func (g *gateway) fill() (empty func()) {
	full := &admission.Account{}
	g.admission.Open(full, admission.Principal{Name: "others"})
	full.Force(g.admission.Bytes().Limit)
	g.t.Cleanup(full.Close)
	return full.Close
}

// run runs a test in a bubble, on a replica set.
func run(t *testing.T, test func(t *testing.T, d *deployment.Deployment, g *gateway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		test(t, d, start(t, d))
	})
}

func doc(t *testing.T, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatalf("%s: %v", json, err)
	}
	return d
}

var shop = client.Namespace{Database: "db", Collection: "c"}

// insert inserts documents with these _ids.
func (g *gateway) insert(ids ...int) {
	g.t.Helper()
	for _, id := range ids {
		one := bson.NewBuilder(nil).Int32("_id", int32(id)).Finish()
		if _, err := g.client.InsertOne(g.t.Context(), shop, one,
			client.InsertOneOptions{}); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *gateway) command(json string) {
	g.t.Helper()
	if _, err := g.client.RunCommand(g.t.Context(), "db", doc(g.t, json),
		client.RunCommandOptions{}); err != nil {
		g.t.Fatal(err)
	}
}

// fail has the getMores of servers answer with an error from now on.
func (g *gateway) fail(d *deployment.Deployment, code int) {
	g.t.Helper()
	d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "getMore" {
			return fakemongo.Document(doc(g.t, fmt.Sprintf(
				`{"ok": 0, "code": %d, "errmsg": "the getMore fails"}`, code)))
		}
		return next(cmd)
	})
}

// watch is a stream of the tests.
type watch struct {
	t      *testing.T
	stream mooringv1.ChangeStreamService_WatchClient
	cancel context.CancelFunc
	// token is that of the last message.
	token bson.Raw
}

// onShop is a request for the changes of db.c.
func onShop() *mooringv1.WatchRequest {
	return &mooringv1.WatchRequest{Database: "db", Collection: new("c")}
}

// ownOnShop is another, whose pipeline needs a cursor of its own.
func ownOnShop() *mooringv1.WatchRequest {
	all := payload.NewDocument(bson.NewBuilder(nil).OpenDocument("$match").Close().Finish())
	r := onShop()
	r.Pipeline = []*mooringv1.Document{all, all}
	return r
}

// watch opens a stream and reads its first message, which has no events.
func (g *gateway) watch(req *mooringv1.WatchRequest) *watch {
	g.t.Helper()
	return g.watchAs("", req)
}

// as returns the context of a call of a principal; "" is a client that is not authenticated.
func as(ctx context.Context, principal string) context.Context {
	if principal == "" {
		return ctx
	}
	local := call.Local{Identity: &caller.Identity{
		Principal: principal, Expires: time.Now().Add(time.Hour),
	}}
	return inproc.WithIncoming(ctx, local, nil)
}

// watchAs does what watch does, for a principal.
func (g *gateway) watchAs(principal string, req *mooringv1.WatchRequest) *watch {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	s, err := g.api.Watch(as(ctx, principal), req)
	if err != nil {
		g.t.Fatal(err)
	}
	w := &watch{t: g.t, stream: s, cancel: cancel}
	m, err := w.message()
	if err != nil || len(m.GetDocuments()) != 0 || w.token == nil {
		g.t.Fatalf("the first message is %v, %v, want a resume token", m, err)
	}
	return w
}

func (w *watch) message() (*mooringv1.WatchResponse, error) {
	m, err := w.stream.Recv()
	if token := m.GetResumeToken(); token != nil {
		w.token = token.GetBson()
	}
	return m, err
}

// next returns the events of the next message that has any: "insert 1".
func (w *watch) next() string {
	w.t.Helper()
	for {
		m, err := w.message()
		if err != nil {
			w.t.Fatal(err)
		}
		if docs := m.GetDocuments(); len(docs) > 0 {
			last := bson.Raw(docs[len(docs)-1].GetBson())
			if id, _ := last.Lookup("_id"); !id.Equal(bson.DocumentValue(w.token)) {
				w.t.Errorf("the resume token of a message is %v, want that of its last event, %v",
					w.token, id)
			}
			return kinds(docs)
		}
	}
}

// read returns so many events.
func (w *watch) read(n int) []string {
	w.t.Helper()
	var all []string
	for len(all) < n {
		all = append(all, strings.Split(w.next(), ", ")...)
	}
	return all
}

func kinds(docs []*mooringv1.Document) string {
	var all []string
	for _, d := range docs {
		kind, _ := bson.Raw(d.GetBson()).Lookup("operationType")
		text, _ := kind.Str()
		if id, ok := bson.Raw(d.GetBson()).Lookup("documentKey", "_id"); ok {
			key, err := extjson.AppendValue(nil, id, extjson.Relaxed)
			if err != nil {
				key = nil
			}
			text += " " + string(key)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// end reads up to the end of a stream and returns its error, nil for io.EOF.
func (w *watch) end() error {
	for {
		if _, err := w.message(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// leave ends the stream as a client that goes away does.
func (w *watch) leave() {
	w.cancel()
	_ = w.end()
	time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake: what is left of the call ends
}
