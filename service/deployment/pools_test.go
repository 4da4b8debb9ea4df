package deployment_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/topology"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/mongotest"
	"github.com/mooringdb/mooring/service/deployment"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/servicetest"
)

// Every number is where it belongs, and a bound that is none is missing.
func TestPoolsOnREST(t *testing.T) {
	c := &scripted{pools: []topology.PoolStats{
		{Address: "a:1", Stats: pool.Stats{
			State: pool.StateReady, Generation: 3, Total: 30, Available: 11, InUse: 17, Pending: 2, Waiting: 5,
			Cursors: 7, Transactions: 4, MaxSize: 100, MinSize: 9, MaxPinned: 80,
		}},
		{Address: "b\xff:1", Stats: pool.Stats{State: pool.StatePaused}},
	}}
	conn := rest.NewConn(nil, nil)
	mooringv1.RegisterDeploymentServiceServer(conn, deployment.New(deployment.Config{Client: c}))
	h, err := rest.New(rest.Config{Conn: conn})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/deployment/pools", nil))
	want := `{"pools":[{"address":"a:1","state":"ready","generation":3,"total":30,"available":11,"inUse":17,"cursors":7,"transactions":4,"pending":2,` +
		`"waiting":5,"minSize":9,"maxSize":100,"maxPinned":80},{"address":"b` + "\uFFFD" + `:1","state":"paused","generation":0,"total":0,"available":0,` +
		`"inUse":0,"cursors":0,"transactions":0,"pending":0,"waiting":0,"minSize":0}]}`
	if w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
	}
}

// Over gRPC, of a real client.
func TestPools(t *testing.T) {
	g := servicetest.Start(t, mongotest.NewServer(t, nil), servicetest.Config{URIOptions: "maxPoolSize=7"})
	if _, err := g.Document.FindOne(t.Context(), &mooringv1.FindOneRequest{Database: "d", Collection: "c"}); err != nil {
		t.Fatal(err)
	}
	resp, err := g.Deployment.ListPools(t.Context(), &mooringv1.ListPoolsRequest{})
	if err != nil || len(resp.GetPools()) != 1 {
		t.Fatalf("ListPools = %v, %v", resp, err)
	}
	if p := resp.GetPools()[0]; p.GetState() != "ready" || p.GetTotal() < 1 || p.GetMaxSize() != 7 || p.MaxPinned != nil {
		t.Errorf("the pool: %v", p)
	}
	unknown := &mooringv1.ListPoolsRequest{}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	if _, err := g.Deployment.ListPools(t.Context(), unknown); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown field: %v", err)
	}
}
