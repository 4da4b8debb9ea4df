package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/gen/openapi"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// handleKey is the key of all replicas in a test.
const handleKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// replica starts a gateway that is one of several. peers may be empty.
func replica(t *testing.T, uri, peers string, options ...string) *gateway {
	t.Helper()
	g := start(t, uri, append([]string{
		"--handle-keys", handleKey, "--idempotency-key", handleKey, "--replica-address=127.0.0.1:0", "--replica-peers", peers,
	}, options...)...)
	g.ready()
	return g
}

func (g *gateway) cursors() mooringv1.CursorServiceClient {
	return mooringv1.NewCursorServiceClient(g.cc)
}

// find opens a cursor with pages of five documents, and returns the first page and the token.
func (g *gateway) find() (int, string) {
	g.t.Helper()
	size := int32(5)
	page, err := mooringv1.NewDocumentServiceClient(g.cc).
		Find(g.t.Context(), &mooringv1.FindRequest{
			Database: "db", Collection: "c", BatchSize: &size,
		})
	if err != nil {
		g.t.Fatalf("Find: %v", err)
	}
	return len(page.GetDocuments()), page.GetCursor()
}

func (g *gateway) next(token string) (int, string, error) {
	page, err := g.cursors().NextPage(g.t.Context(), &mooringv1.NextPageRequest{Cursor: token})
	return len(page.GetDocuments()), page.GetCursor(), err
}

// TestPagesFromTwoReplicas reads the pages of one cursor alternately from both replicas, and each
// again from the other. The cursor can be continued anywhere or is tied to its owner's
// connection.
func TestPagesFromTwoReplicas(t *testing.T) {
	for _, row := range []struct {
		name string
		uri  func(t *testing.T) (string, func() int)
	}{
		{"continued anywhere", func(t *testing.T) (string, func() int) {
			mongo := fakemongo.NewTCPServer(t, nil)
			mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
			return mongo.URI(), mongo.OpenCursors
		}},
		{"pinned", func(t *testing.T) (string, func() int) { return balanced(t) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			uri, open := row.uri(t)
			b := replica(t, uri, "")
			a := replica(t, uri, b.Addresses().Replica)
			read, token := a.find()
			for i := 0; token != ""; i++ {
				g, other := a, b
				if i%2 == 0 {
					g, other = b, a
				}
				n, following, err := g.next(token)
				if err != nil {
					t.Fatalf("page %d: %v", i, err)
				}
				read += n
				// The answer was lost, and the client asks the other replica.
				again, same, err := other.next(token)
				if err != nil || again != n || same != following {
					t.Fatalf("page %d again, from the other: %d documents, %v; want %d", i, again,
						err, n)
				}
				token = following
			}
			if read != 50 || open() != 0 {
				t.Errorf("read %d documents, %d cursors are open; want 50 and none", read, open())
			}

			// The other replica streams it, and closes it.
			read, token = a.find()
			s, err := b.cursors().
				Stream(t.Context(), &mooringv1.CursorServiceStreamRequest{Cursor: token})
			if err != nil {
				t.Fatal(err)
			}
			for {
				m, err := s.Recv()
				if err != nil {
					if err != io.EOF { //nolint:errorlint // gRPC returns it as it is
						t.Errorf("Stream: %v", err)
					}
					break
				}
				read += len(m.GetDocuments())
			}
			if read != 50 {
				t.Errorf("streamed to %d documents, want 50", read)
			}
			_, token = a.find()
			if _, err := b.cursors().
				CloseCursor(t.Context(),
					&mooringv1.CloseCursorRequest{Cursor: token}); err != nil || open() != 0 {
				t.Errorf("Close = %v, %d cursors are open, want none", err, open())
			}
			a.stop()
			b.stop()
		})
	}
}

// balanced starts a deployment behind a load balancer.
func balanced(t *testing.T) (string, func() int) {
	t.Helper()
	b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1, TCP: true, Strict: true})
	b.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	return "mongodb://" + string(b.Service(0).Address()) + "/?loadBalanced=true&maxPoolSize=10", b.OpenCursors
}

// TestStopMovesCursors checks that a replica that stops hands its cursors over, and that another
// one continues them at the right page.
func TestStopMovesCursors(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	b := replica(t, mongo.URI(), "")
	a := replica(t, mongo.URI(), b.Addresses().Replica)
	read, token := a.find()
	n, token, err := a.next(token)
	if err != nil {
		t.Fatal(err)
	}
	read += n
	begun := time.Now()
	a.stop()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("Stop took %s", took)
	}
	for token != "" {
		if n, token, err = b.next(token); err != nil {
			t.Fatalf("after %d documents: %v", read, err)
		}
		read += n
	}
	if read != 50 {
		t.Errorf("read %d documents, want 50", read)
	}
	b.stop()
	a.logs(`level=INFO msg=drained cursors_handed_over=1 cursors_ended=0 cursors_left=0 transactions_ended=0 change_streams_ended=0 calls_cut=0`, 1)
	b.logs(`level=INFO msg=drained cursors_handed_over=0 cursors_ended=0 cursors_left=0 transactions_ended=0 change_streams_ended=0 calls_cut=0`, 1)
}

// TestOwnerIsGone cuts a replica off. A cursor then has an unknown position; a pinned one is lost.
func TestOwnerIsGone(t *testing.T) {
	reason := func(err error) string {
		return status.Code(err).String() + " " + fmt.Sprint(status.Convert(err).Details())
	}

	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	way := newWay(t)
	a, b := replica(t, mongo.URI(), "", "--replica-advertise", way.address()),
		replica(t, mongo.URI(), "")
	way.open(a.Addresses().Replica)
	_, token := a.find()
	way.cut()
	if _, _, err := b.next(token); status.Code(err) != codes.Aborted ||
		!strings.Contains(reason(err), "CursorPositionUnknown") {
		t.Errorf("Next = %v (%s), want ABORTED, CursorPositionUnknown", err, reason(err))
	}
	a.stop()
	b.stop()

	uri, _ := balanced(t)
	way = newWay(t)
	a, b = replica(t, uri, "", "--replica-advertise", way.address()), replica(t, uri, "")
	way.open(a.Addresses().Replica)
	_, token = a.find()
	_, token, err := b.next(token)
	if err != nil {
		t.Fatalf("Next while the owner is there: %v", err)
	}
	way.cut()
	if _, _, err := b.next(token); status.Code(err) != codes.NotFound ||
		!strings.Contains(reason(err), "CursorOwnerGone") {
		t.Errorf("Next = %v (%s), want NOT_FOUND, CursorOwnerGone", err, reason(err))
	}
	a.stop()
	b.stop()
}

// way forwards connections to a replica until it is cut, as if the replica had been killed.
type way struct {
	l  net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newWay(t *testing.T) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{l: l}
	t.Cleanup(func() {
		w.cut()
		w.wg.Wait()
	})
	return w
}

func (w *way) address() string { return w.l.Addr().String() }

func (w *way) open(to string) {
	w.wg.Go(func() {
		for {
			near, err := w.l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, near, far)
			w.mu.Unlock()
			pass := func(a, b net.Conn) {
				_, _ = io.Copy(a, b) // until one is closed
				_ = a.Close()
			}
			w.wg.Go(func() { pass(near, far) })
			w.wg.Go(func() { pass(far, near) })
		}
	})
}

func (w *way) cut() {
	_ = w.l.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// TestHandlesOfAllReplicas checks that DeploymentService lists and kills the cursors of all
// replicas.
func TestHandlesOfAllReplicas(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	b := replica(t, mongo.URI(), "")
	a := replica(t, mongo.URI(), b.Addresses().Replica)
	_, first := a.find()
	b.find()
	deployment := mooringv1.NewDeploymentServiceClient(a.cc)
	list, err := deployment.ListHandles(t.Context(), &mooringv1.ListHandlesRequest{})
	if err != nil || len(list.GetHandles()) != 2 {
		t.Fatalf("ListHandles = %v, %v; want two", list, err)
	}
	for _, h := range list.GetHandles() {
		if _, err := deployment.KillHandle(t.Context(),
			&mooringv1.KillHandleRequest{Id: h.GetId()}); err != nil {
			t.Errorf("KillHandle(%v) = %v", h, err)
		}
	}
	if n := mongo.OpenCursors(); n != 0 {
		t.Errorf("%d cursors are open after all were killed", n)
	}
	if _, _, err := b.next(first); status.Code(err) != codes.NotFound &&
		status.Code(err) != codes.Aborted {
		t.Errorf("Next of a cursor that was killed = %v", err)
	}
	a.stop()
	b.stop()
}

// TestKeysAreReloaded checks that a new key counts without a restart, on SIGHUP or soon, and that
// a bad file changes nothing.
func TestKeysAreReloaded(t *testing.T) {
	const other = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(handleKey)
	a := start(t, mongo.URI(), "--handle-keys-file", file, "--idempotency-key", handleKey,
		"--replica-address=127.0.0.1:0")
	b := start(t, mongo.URI(), "--handle-keys", other, "--idempotency-key", handleKey,
		"--replica-address=127.0.0.1:0")
	a.ready()
	b.ready()
	_, foreign := b.find()
	if _, _, err := a.next(foreign); status.Code(err) != codes.NotFound {
		t.Fatalf("Next with a token of another key = %v, want NOT_FOUND", err)
	}
	write("nonsense!")
	a.Reload()
	write(other + "\n" + handleKey)
	a.Reload()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	late := time.After(waitTime)
	for {
		_, _, err := a.next(foreign)
		if err == nil {
			break
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("Next after the new key came = %v", err)
		}
	}
	a.stop()
	b.stop()
}

// TestReplicaPortIsNotPublic checks that the service of replicas is neither on the other ports
// nor in the descriptions of the API, and that the API is not on its port.
func TestReplicaPortIsNotPublic(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	file := filepath.Join(t.TempDir(), "addresses.json")
	g := replica(t, mongo.URI(), "", "--addresses-file", file)
	text, err := os.ReadFile(file)
	var addresses struct{ Replica string }
	if err != nil || json.Unmarshal(text, &addresses) != nil || addresses.Replica == "" ||
		addresses.Replica != g.Addresses().Replica {
		t.Errorf("the addresses file says %s, %v; want replica %s", text, err,
			g.Addresses().Replica)
	}
	err = g.cc.Invoke(t.Context(), "/mooring.peer.v1.PeerService/Kill",
		&mooringv1.ListPoolsRequest{}, &mooringv1.ListPoolsResponse{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("PeerService on the public port = %v, want UNIMPLEMENTED", err)
	}
	r, err := reflectionpb.NewServerReflectionClient(g.cc).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []*reflectionpb.ServerReflectionRequest{
		{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}},
		{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "mooring.peer.v1.PeerService"}},
		{MessageRequest: &reflectionpb.ServerReflectionRequest_FileByFilename{FileByFilename: "mooring/peer/v1/peer.proto"}},
	} {
		if err := r.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := r.Recv()
		if err != nil || resp.GetFileDescriptorResponse() != nil ||
			strings.Contains(resp.GetListServicesResponse().String(), "peer") {
			t.Errorf("reflection of %v = %v, %v; want nothing of it", req, resp, err)
		}
	}
	if strings.Contains(string(openapi.JSON), "mooring.peer") ||
		strings.Contains(string(openapi.JSON), "PeerService") {
		t.Error("the OpenAPI document names PeerService")
	}
	cc, err := grpc.NewClient("passthrough:///"+g.Addresses().Replica, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	if _, err := mooringv1.NewDeploymentServiceClient(cc).
		ListPools(t.Context(),
			&mooringv1.ListPoolsRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("the API on the port of replicas, without a key = %v, want UNAVAILABLE", err)
	}
	g.stop()
}

// TestLimitsOfCursors checks how many connections cursors may hold. A client that is not
// authenticated may have any number of cursors.
func TestLimitsOfCursors(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	for _, row := range []struct {
		uri, option string
		most        int
	}{
		{mongo.URI(), "--cursors-max-per-principal=3", 0}, // the clients are not authenticated
		{mongo.URI(), "--cursors-max-per-principal=none", 0},
		{firstOf(balanced(t)), "--cursors-max-pinned=30%", 3},
	} {
		g := start(t, row.uri, row.option)
		g.ready()
		opened := 0
		for range 110 {
			code, body := g.post("/v1/databases/db/collections/c/documents:find", `{"batchSize":5}`)
			if code == http.StatusTooManyRequests {
				break
			}
			if code != http.StatusOK {
				t.Fatalf("%s: find = %d %s", row.option, code, body)
			}
			opened++
		}
		if want := row.most; opened != want && want != 0 || want == 0 && opened != 110 {
			t.Errorf("%s: %d cursors could be opened, want %d", row.option, opened, want)
		}
		g.stop()
	}
}

func firstOf(uri string, _ func() int) string { return uri }
