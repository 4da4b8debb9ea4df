package deployment_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/deployment"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

var birth = time.UnixMilli(1_800_000_000_000)

// held is what a replica holds, in the order of the marks.
type held struct {
	mu     sync.Mutex
	infos  []handle.Info
	asked  []handle.Query
	killed []string
	told   []call.Local // of the calls that were forwarded to here
}

// hold makes a replica with n handles, opened a second apart from first on.
func hold(replica string, n int, first, step int) *held {
	h := &held{}
	for i := range n {
		at := first + i*step
		h.infos = append(h.infos, handle.Info{
			ID: fmt.Sprintf("%032x", at), Kind: handle.KindCursor, Database: "shop",
			Collection: "orders",
			Server:     "db:27017", Opened: birth.Add(time.Duration(at) * time.Second),
			LastUse: birth, Expires: birth, Replica: replica,
		})
	}
	return h
}

func (h *held) Handles(q handle.Query) []handle.Info {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, q)
	var found []handle.Info
	for _, i := range h.infos {
		if i.Mark().Compare(q.After) > 0 && len(found) < q.Limit {
			found = append(found, i)
		}
	}
	return found
}

func (h *held) Kill(_ context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.infos)
	h.infos = slices.DeleteFunc(h.infos, func(i handle.Info) bool { return i.ID == id })
	if len(h.infos) == n {
		return handle.ErrNotFound
	}
	h.killed = append(h.killed, id)
	return nil
}

// replicas are the others, by address. A nil one does not answer; one that fails does at once.
type replicas struct {
	held map[string]*held
	fail map[string]error
}

func (r *replicas) Others(context.Context, bool) []string {
	var all []string
	for a := range r.held {
		all = append(all, a)
	}
	return all
}

func (r *replicas) ask(ctx context.Context, address string) (*held, error) {
	if err := r.fail[address]; err != nil {
		return nil, err
	}
	if r.held[address] == nil {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return r.held[address], nil
}

func (r *replicas) List(
	ctx context.Context, address string, q handle.Query,
) ([]handle.Info, error) {
	h, err := r.ask(ctx, address)
	if err != nil {
		return nil, err
	}
	return h.Handles(q), nil
}

// Forward implements interceptor.Replicas: the others kill, and note for whom.
func (r *replicas) Forward(ctx context.Context, f *call.Forwarding) (call.Reply, error) {
	h, err := r.ask(ctx, f.To.Address)
	if err != nil {
		return call.Reply{}, err
	}
	h.mu.Lock()
	h.told = append(h.told, f.Local)
	h.mu.Unlock()
	req, ok := f.Request.(*mooringv1.KillHandleRequest)
	if !ok {
		return call.Reply{}, fmt.Errorf("%s of %T", f.Method, f.Request)
	}
	return call.Reply{Response: &mooringv1.KillHandleResponse{}}, h.Kill(ctx, req.GetId())
}

// serve is the service behind the real interceptors.
func serve(
	t *testing.T, own *held, others *replicas,
) (mooringv1.DeploymentServiceClient, *inproc.Conn) {
	t.Helper()
	ways := interceptor.Config{}
	cfg := deployment.Config{Client: &scripted{}, Handles: own}
	if others != nil {
		cfg.Replicas, ways.Replicas = others, others
	}
	x := interceptor.New(ways)
	conn := inproc.NewConn(x.Unary(), x.Stream())
	mooringv1.RegisterDeploymentServiceServer(conn, deployment.New(cfg))
	return mooringv1.NewDeploymentServiceClient(conn), conn
}

// A hundred thousand handles come in messages that every client takes, each once, the oldest
// first.
func TestPagesOverAllReplicas(t *testing.T) {
	const n = 33_333
	client, _ := serve(t, hold("a:1", n, 0, 3),
		&replicas{held: map[string]*held{"b:1": hold("b:1", n, 1, 3), "c:1": hold("c:1", n, 2, 3)}})
	req := &mooringv1.ListHandlesRequest{BatchSize: new(int32(5000))} // 1000 are given
	seen := 0
	for pages := 1; ; pages++ {
		resp, err := client.ListHandles(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(resp); size > 1<<20 {
			t.Fatalf("a message of %d bytes", size)
		}
		for _, h := range resp.GetHandles() {
			if want := fmt.Sprintf("%032x", seen); h.GetId() != want {
				t.Fatalf("handle %d is %s of %s", seen, h.GetId(), h.GetReplica())
			}
			seen++
		}
		if resp.Cursor == nil {
			if pages != 100 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		req.Cursor = resp.Cursor
	}
	if seen != 3*n {
		t.Errorf("%d handles, want %d", seen, 3*n)
	}
}

func TestBatchSizes(t *testing.T) {
	client, _ := serve(t, hold("", 250, 0, 1), nil)
	for _, c := range []struct {
		size *int32
		want int
		more bool
	}{
		{nil, 100, true}, {new(int32(1)), 1, true}, {new(int32(249)), 249, true}, {new(int32(250)), 250, false}, {new(int32(1 << 30)), 250, false},
	} {
		resp, err := client.ListHandles(t.Context(),
			&mooringv1.ListHandlesRequest{BatchSize: c.size})
		if err != nil || len(resp.GetHandles()) != c.want || (resp.Cursor != nil) != c.more {
			t.Errorf("batchSize %v: %d handles, token %q, %v", c.size, len(resp.GetHandles()),
				resp.GetCursor(), err)
		}
	}
}

// A handle that moves from one replica to another while they are asked is not there twice.
func TestMovingHandleIsListedOnce(t *testing.T) {
	old, moved := hold("a:1", 1, 7, 1), hold("b:1", 1, 7, 1)
	moved.infos[0].Pages = 5
	client, _ := serve(t, old, &replicas{held: map[string]*held{"b:1": moved}})
	resp, err := client.ListHandles(t.Context(), &mooringv1.ListHandlesRequest{})
	if err != nil || len(resp.GetHandles()) != 1 || resp.GetHandles()[0].GetReplica() != "b:1" {
		t.Errorf("ListHandles = %v, %v", resp, err)
	}
}

// Replicas that cannot be asked are named, and do not hold up the others for long.
func TestUnreachableReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := serve(t, hold("a:1", 2, 0, 2), &replicas{
			held: map[string]*held{"b:1": hold("b:1", 1, 1, 1), "silent:1": nil, "refused:1": nil},
			fail: map[string]error{
				"refused:1": &paging.UnreachableError{Address: "refused:1", Err: errors.New("connection refused")},
			},
		})
		begin := time.Now()
		resp, err := client.ListHandles(t.Context(), &mooringv1.ListHandlesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(resp.GetHandles()) != 3 {
			t.Errorf("%d handles of the others", len(resp.GetHandles()))
		}
		if u := resp.GetUnreachable(); len(u) != 2 || u[0].GetAddress() != "refused:1" ||
			!strings.Contains(u[0].GetError(), "connection refused") ||
			u[1].GetAddress() != "silent:1" || u[1].GetError() == "" {
			t.Errorf("unreachable: %v", u)
		}
		// A caller whose own time is over gets no half of an answer.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.ListHandles(ctx,
			&mooringv1.ListHandlesRequest{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("within a second: %v", err)
		}
	})
}

func TestFilters(t *testing.T) {
	yes := true
	for _, c := range []struct {
		name string
		req  *mooringv1.ListHandlesRequest
		want handle.Query
	}{
		{"none", &mooringv1.ListHandlesRequest{}, handle.Query{Limit: 101}},
		{"a principal", &mooringv1.ListHandlesRequest{Principal: new("ada")}, handle.Query{Principal: new("ada"), Limit: 101}},
		{"nobody", &mooringv1.ListHandlesRequest{Principal: new("")}, handle.Query{Principal: new(""), Limit: 101}},
		{"a database", &mooringv1.ListHandlesRequest{Namespace: new("shop")}, handle.Query{Database: "shop", Limit: 101}},
		{"a collection", &mooringv1.ListHandlesRequest{Namespace: new("shop.a.b")}, handle.Query{Database: "shop", Collection: "a.b", Limit: 101}},
		{"pinned ones", &mooringv1.ListHandlesRequest{Pinned: &yes, BatchSize: new(int32(2))}, handle.Query{Pinned: &yes, Limit: 3}},
	} {
		own, other := &held{}, &held{}
		client, _ := serve(t, own, &replicas{held: map[string]*held{"b:1": other}})
		if _, err := client.ListHandles(t.Context(), c.req); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, h := range []*held{own, other} {
			if len(h.asked) != 1 || !reflect.DeepEqual(h.asked[0], c.want) {
				t.Errorf("%s: asked for %+v, want %+v", c.name, h.asked, c.want)
			}
		}
	}
}

func TestRefusedLists(t *testing.T) {
	client, _ := serve(t, &held{}, nil)
	for _, c := range []struct {
		field string
		req   *mooringv1.ListHandlesRequest
	}{
		{"batchSize", &mooringv1.ListHandlesRequest{BatchSize: new(int32(0))}},
		{"batchSize", &mooringv1.ListHandlesRequest{BatchSize: new(int32(-1))}},
		{"namespace", &mooringv1.ListHandlesRequest{Namespace: new("")}},
		{"namespace", &mooringv1.ListHandlesRequest{Namespace: new(".orders")}},
		{"namespace", &mooringv1.ListHandlesRequest{Namespace: new("shop.")}},
		{"cursor", &mooringv1.ListHandlesRequest{Cursor: new("")}},
		{"cursor", &mooringv1.ListHandlesRequest{Cursor: new("AAAAAAAAAAA")}},
		{"cursor", &mooringv1.ListHandlesRequest{Cursor: new("what?")}},
	} {
		_, err := client.ListHandles(t.Context(), c.req)
		if r := rpcerr.HTTP(err); r.Code != 400 || r.Body.GetError().GetField() != c.field {
			t.Errorf("%v: %v", c.req, err)
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "mooring-document-encoding", "xml")
	if resp, err := client.ListHandles(ctx,
		&mooringv1.ListHandlesRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("ListHandles in an unknown encoding = %v, %v; want INVALID_ARGUMENT", resp, err)
	}
}

func TestKill(t *testing.T) {
	refused := &paging.UnreachableError{Address: "c:1", Err: errors.New("connection refused")}
	for _, c := range []struct {
		name, id string
		fail     error // of the third replica
		want     codes.Code
		reason   string
	}{
		{"here", "00000000000000000000000000000000", refused, codes.OK, ""},
		{"elsewhere", "00000000000000000000000000000001", refused, codes.OK, ""},
		{"nowhere", "00000000000000000000000000000009", nil, codes.NotFound, "HandleNotFound"},
		{"perhaps where nobody answers", "00000000000000000000000000000009", refused, codes.Unavailable, "ReplicaUnreachable"},
		{"no id", "", nil, codes.InvalidArgument, "InvalidArgument"},
	} {
		t.Run(c.name, func(t *testing.T) {
			own, other, third := hold("a:1", 1, 0, 1), hold("b:1", 1, 1, 1), hold("c:1", 1, 2, 1)
			client, _ := serve(t, own, &replicas{
				held: map[string]*held{"b:1": other, "c:1": third},
				fail: map[string]error{"c:1": c.fail},
			})
			_, err := client.KillHandle(t.Context(), &mooringv1.KillHandleRequest{Id: c.id})
			if status.Code(err) != c.want ||
				err != nil && rpcerr.HTTP(err).Body.GetError().GetReason() != c.reason {
				t.Errorf("KillHandle = %v, want %v %s", err, c.want, c.reason)
			}
			if killed := slices.Concat(own.killed, other.killed, third.killed); err == nil &&
				!slices.Equal(killed, []string{c.id}) {
				t.Errorf("killed %v", killed)
			}
		})
	}
}

// TestKillForClient checks that the replica that has a handle learns which client kills it, and by
// which request, and that a kill that was forwarded goes no further.
func TestKillForClient(t *testing.T) {
	const id = "00000000000000000000000000000001"
	own, other := hold("a:1", 1, 0, 1), hold("b:1", 1, 1, 1)
	_, conn := serve(t, own, &replicas{held: map[string]*held{"b:1": other}})
	kill := func(local call.Local) error {
		return conn.Invoke(inproc.WithIncoming(t.Context(), local, nil),
			mooringv1.DeploymentService_KillHandle_FullMethodName,
			&mooringv1.KillHandleRequest{Id: id}, &mooringv1.KillHandleResponse{})
	}
	local := call.Local{
		RequestID: "r", Identity: &caller.Identity{Principal: "key:ops"},
		Client: netip.MustParseAddr("192.0.2.1"),
	}
	forwarded := local
	forwarded.Forwarded = true
	if err := kill(forwarded); status.Code(err) != codes.NotFound || other.told != nil {
		t.Errorf("a kill that was forwarded = %v, and asked another replica with %v", err,
			other.told)
	}
	if err := kill(local); err != nil || !reflect.DeepEqual(other.told, []call.Local{forwarded}) {
		t.Errorf("KillHandle = %v; the other replica was told %+v, want %+v", err, other.told,
			forwarded)
	}
}

func TestHandlesOnREST(t *testing.T) {
	own := hold("a:1", 3, 0, 1)
	own.infos[0].Pinned, own.infos[0].Principal = true, "\xff"
	_, conn := serve(t, own, &replicas{
		held: map[string]*held{"b:1": nil}, fail: map[string]error{"b:1": errors.New("oh\xff")},
	})
	h, err := front.New(front.Config{Conn: conn, APIs: []front.API{rest.New(rest.Config{})}})
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, url, body string) (int, string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, url, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	first := httptest.NewRecorder()
	h.ServeHTTP(first,
		httptest.NewRequest(http.MethodGet, "/v1/deployment/handles?batchSize=1", nil))
	const id = "00000000000000000000000000000000"
	want := `{"handles":[{"id":"` + id + `","kind":"cursor","principal":"` + "\uFFFD" +
		`","namespace":"shop.orders","server":"db:27017","pinned":true,"busy":false,` +
		`"pages":0,"replica":"a:1","openTime":"2027-01-15T08:00:00Z","lastUseTime":"2027-01-15T08:00:00Z","expireTime":"2027-01-15T08:00:00Z"}],` +
		`"cursor":"AAABoxif0AA` // and the id
	if got := first.Body.String(); first.Code != 200 ||
		!strings.HasPrefix(got, want[:len(want)-11]) ||
		!strings.HasSuffix(got, `"unreachable":[{"address":"b:1","error":"oh`+"\uFFFD"+`"}]}`) {
		t.Errorf("%d %s\nwant %s", first.Code, got, want)
	}
	_, token, _ := strings.Cut(first.Body.String(), `"cursor":"`)
	token, _, _ = strings.Cut(token, `"`)
	r := httptest.NewRequest(http.MethodGet,
		"/v1/deployment/handles?principal=ada&namespace=shop.orders&pinned=true&cursor="+token, nil)
	second := httptest.NewRecorder()
	h.ServeHTTP(second, r)
	q := own.asked[len(own.asked)-1]
	if second.Code != 200 || *q.Principal != "ada" || q.Collection != "orders" || !*q.Pinned ||
		q.After.ID != id || !q.After.Opened.Equal(birth) {
		t.Errorf("%d %s asked for %+v", second.Code, second.Body, q)
	}
	for _, c := range []struct {
		method, url, body string
		code              int
	}{
		{"POST", "/v1/deployment/handles:kill", `{"id":"` + id + `"}`, 200},
		{"POST", "/v1/deployment/handles:kill", `{}`, 400},
		{"POST", "/v1/deployment/handles:kill", `{"id":"x","more":1}`, 400},
		{"DELETE", "/v1/deployment/handles:kill", ``, 405},
		{"POST", "/v1/deployment/handles", ``, 405},
	} {
		if code, body := do(c.method, c.url, c.body); code != c.code {
			t.Errorf("%s %s %s: %d %s, want %d", c.method, c.url, c.body, code, body, c.code)
		}
	}
	for _, bad := range []string{
		"pinned=maybe", "batchSize=x", "batchSize=0", "limit=3", "cursor=.", "pinned=true&pinned=true",
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/deployment/handles?"+bad, nil)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != 400 {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
}

// Over gRPC, with a real cursor: it is listed, killed on its server, and its token is no good any
// more.
func TestKilledCursor(t *testing.T) {
	server := fakemongo.NewServer(t, nil)
	server.SetDocuments("shop.orders", servicetest.Docs(10, 10)...)
	g := servicetest.Start(t, server, servicetest.Config{})
	page, err := g.Document.Find(t.Context(),
		&mooringv1.FindRequest{Database: "shop", Collection: "orders", BatchSize: new(int32(2))})
	if err != nil {
		t.Fatal(err)
	}
	list, err := g.Deployment.ListHandles(t.Context(), &mooringv1.ListHandlesRequest{})
	if err != nil || len(list.GetHandles()) != 1 {
		t.Fatalf("ListHandles = %v, %v", list, err)
	}
	h := list.GetHandles()[0]
	if h.GetKind() != "cursor" || h.GetNamespace() != "shop.orders" || h.GetServer() == "" ||
		h.GetPinned() || h.GetBusy() || h.GetPages() != 1 || h.Replica != nil ||
		time.Since(h.GetOpenTime().AsTime()) > time.Minute ||
		time.Until(h.GetExpireTime().AsTime()) < 9*time.Minute {
		t.Errorf("the handle: %v", h)
	}
	if _, err := g.Deployment.KillHandle(t.Context(),
		&mooringv1.KillHandleRequest{Id: h.GetId()}); err != nil {
		t.Fatal(err)
	}
	g.Idle(0)
	if _, err := g.Cursor.NextPage(t.Context(),
		&mooringv1.NextPageRequest{Cursor: page.GetCursor()}); status.Code(err) != codes.NotFound {
		t.Errorf("Next = %v", err)
	}
	if _, err := g.Deployment.KillHandle(t.Context(),
		&mooringv1.KillHandleRequest{Id: h.GetId()}); status.Code(err) != codes.NotFound {
		t.Errorf("KillHandle again = %v", err)
	}
	if list, err := g.Deployment.ListHandles(t.Context(),
		&mooringv1.ListHandlesRequest{}); err != nil || len(list.GetHandles()) != 0 {
		t.Errorf("ListHandles = %v, %v", list, err)
	}
}
