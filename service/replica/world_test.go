package replica_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitTime bounds waits that end at once unless the code is broken.
const waitTime = 30 * time.Second

// ring returns a ring of keys, each named by a letter: the same letter is the same key.
func ring(t testing.TB, letters string) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing(keys(t, letters)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keys(t testing.TB, letters string) []seal.Key {
	t.Helper()
	var all []seal.Key
	for _, letter := range letters {
		key, err := seal.NewKey([]byte(strings.Repeat(string(letter), 32)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, key)
	}
	return all
}

// node is a replica on a kernel port with a log that can be read.
type node struct {
	*replica.Transport
	t    testing.TB
	ring *seal.Ring
	log  *safeBuffer
	stop func()
}

type option func(*replica.Config)

func at(address string) option {
	return func(c *replica.Config) { c.Address, c.Advertise = address, address }
}

func knowing(peers ...string) option { return func(c *replica.Config) { c.Others = peers } }

// start starts a replica with those keys that answers from r, and ends with the test. With a nil r
// the replica must not be asked.
func start(t testing.TB, letters string, r replica.Pager, options ...option) *node {
	t.Helper()
	n := bind(t, letters, options...)
	if r == nil {
		r = &fake{}
	}
	n.serve(r)
	return n
}

// bind does what start does, but the replica does not answer yet.
func bind(t testing.TB, letters string, options ...option) *node {
	t.Helper()
	n := &node{t: t, ring: ring(t, letters), log: &safeBuffer{}}
	cfg := replica.Config{
		Keys: n.ring, Address: "127.0.0.1:0", Advertise: "127.0.0.1:0",
		Log:    slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Failed: func(err error) { t.Errorf("Failed: %v", err) },
	}
	for _, o := range options {
		o(&cfg)
	}
	n.Transport = replica.New(cfg)
	if err := n.Bind(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTime)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

// rotate replaces the replica's keys.
func (n *node) rotate(letters string) {
	n.t.Helper()
	if err := n.ring.Replace(keys(n.t, letters)...); err != nil {
		n.t.Fatal(err)
	}
	n.KeysChanged()
}

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	late := time.After(waitTime)
	for !ok() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("not after %s: %s", waitTime, what)
		}
	}
}

// fake is a pager whose answers a test provides; nil functions refuse.
type fake struct {
	successions
	self   page.Replica
	answer func(ctx context.Context) error
	// documents are those of each page.
	documents []bson.Raw
	accept    func(rec paging.Record) error
	list      func(q handle.Query) []handle.Info
	kill      func(ctx context.Context, id string) error
}

// successions records where the cursors of replicas went.
type successions struct {
	mu  sync.Mutex
	all map[page.Instance]page.Replica
}

func (s *successions) Succeeded(from page.Instance, to page.Replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[page.Instance]page.Replica{}
	}
	s.all[from] = to
}

func (s *successions) Successors() map[page.Instance]page.Replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.all)
}

func (f *fake) Self() page.Replica { return f.self }

// api serves the calls that other replicas forward, as a fake answers.
type api struct {
	mooringv1.UnimplementedCursorServiceServer
	mooringv1.UnimplementedDeploymentServiceServer
	fake *fake
}

func (a *api) CloseCursor(
	ctx context.Context, _ *mooringv1.CloseCursorRequest,
) (*mooringv1.CloseCursorResponse, error) {
	if a.fake.answer == nil {
		return nil, paging.ErrNotHere
	}
	return &mooringv1.CloseCursorResponse{}, a.fake.answer(ctx)
}

func (a *api) NextPage(
	context.Context, *mooringv1.NextPageRequest,
) (*mooringv1.NextPageResponse, error) {
	resp := &mooringv1.NextPageResponse{}
	for _, doc := range a.fake.documents {
		resp.Documents = append(resp.Documents,
			&mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: doc}})
	}
	return resp, nil
}

func (a *api) KillHandle(
	ctx context.Context, req *mooringv1.KillHandleRequest,
) (*mooringv1.KillHandleResponse, error) {
	if a.fake.kill == nil {
		return nil, handle.ErrNotFound
	}
	return &mooringv1.KillHandleResponse{}, a.fake.kill(ctx, req.GetId())
}

// serve has the replica answer from a pager and, if that is a fake, make its calls.
func (n *node) serve(r replica.Pager) {
	if f, ok := r.(*fake); ok {
		a := &api{fake: f}
		n.SetAPI(plain(func(r grpc.ServiceRegistrar) {
			mooringv1.RegisterCursorServiceServer(r, a)
			mooringv1.RegisterDeploymentServiceServer(r, a)
		}))
	}
	n.Serve(r)
}

// plain returns services with no interceptors around them.
func plain(register func(grpc.ServiceRegistrar)) replica.API {
	return replica.API{
		Register: register,
		Unary: func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler,
		) (any, error) {
			return h(ctx, req)
		},
		Stream: func(
			srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler,
		) error {
			return h(srv, ss)
		},
	}
}

// ask makes a call at another replica.
func (n *node) ask(ctx context.Context, address string) error {
	return ask(ctx, n.Transport, address)
}

func ask(ctx context.Context, t *replica.Transport, address string) error {
	return askOwner(ctx, t, page.Replica{Address: address})
}

func askOwner(ctx context.Context, t *replica.Transport, owner page.Replica) error {
	_, err := t.Forward(ctx, &call.Forwarding{
		To: owner, Request: &mooringv1.CloseCursorRequest{},
		Method: mooringv1.CursorService_CloseCursor_FullMethodName,
		Answer: (&mooringv1.CloseCursorResponse{}).ProtoReflect().Type(),
		Local:  call.Local{Forwarded: true},
	})
	return err
}

func (f *fake) Accept(rec paging.Record) error {
	if f.accept == nil {
		return handle.ErrClosing
	}
	return f.accept(rec)
}

func (f *fake) Handles(q handle.Query) []handle.Info {
	if f.list == nil {
		return nil
	}
	return f.list(q)
}

// proxy stands between two replicas and passes bytes on, until a test changes that.
type proxy struct {
	l  net.Listener
	wg sync.WaitGroup

	// mu guards the fields below.
	mu    sync.Mutex
	to    string
	conns []net.Conn
	mute  bool // answers are lost: a connection breaks at its first answer
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to}
	p.wg.Go(p.run)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.l.Addr().String() }

// lead sets the address that the proxy connects to.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *proxy) run() {
	for {
		near, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to := p.to
		p.mu.Unlock()
		far, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(far, near, false) })
		p.wg.Go(func() { p.pass(near, far, true) })
	}
}

func (p *proxy) pass(to io.WriteCloser, from io.ReadCloser, answers bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		mute := p.mute && answers
		p.mu.Unlock()
		if mute {
			_ = from.Close()
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			_ = from.Close()
			return
		}
	}
}

func (p *proxy) setMute(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = mute
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
