package deployment_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/topology"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/deployment"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/servicetest"
)

// Every number is where it belongs, and a bound that is none is missing.
func TestPoolsOnREST(t *testing.T) {
	c := &scripted{pools: []topology.PoolStats{
		{Address: "a:1", Stats: pool.Stats{
			State: pool.StateReady, Generation: 3, Total: 30, Available: 11, InUse: 17, Pending: 2,
			Waiting: 5,
			Cursors: 7, Transactions: 4, MaxSize: 100, MinSize: 9, MaxPinned: 80,
		}, Services: []pool.ServiceStats{
			{Service: pool.ServiceID{0xab, 11: 1}, Generation: 2, Connections: 6}, {Service: pool.ServiceID{0xcd}, Connections: 8},
		}},
		{Address: "b\xff:1", Stats: pool.Stats{State: pool.StatePaused}},
	}}
	conn := newConn()
	mooringv1.RegisterDeploymentServiceServer(conn, deployment.New(deployment.Config{Client: c}))
	h, err := front.New(front.Config{Conn: conn, APIs: []front.API{rest.New(rest.Config{})}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/deployment/pools", nil))
	want := `{"pools":[{"address":"a:1","state":"ready","generation":3,"total":30,"available":11,"inUse":17,"cursors":7,"transactions":4,"pending":2,` +
		`"waiting":5,"minSize":9,"maxSize":100,"maxPinned":80,"services":[{"serviceId":"ab0000000000000000000001","generation":2,"connections":6},` +
		`{"serviceId":"cd0000000000000000000000","generation":0,"connections":8}]},{"address":"b` +
		"\uFFFD" + `:1","state":"paused","generation":0,"total":0,"available":0,` +
		`"inUse":0,"cursors":0,"transactions":0,"pending":0,"waiting":0,"minSize":0,"services":[]}]}`
	if w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
	}
}

// Over gRPC, of a real client.
func TestPools(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil),
		servicetest.Config{URIOptions: "maxPoolSize=7"})
	if _, err := g.Document.FindOne(t.Context(),
		&mooringv1.FindOneRequest{Database: "d", Collection: "c"}); err != nil {
		t.Fatal(err)
	}
	resp, err := g.Deployment.ListPools(&call.Context{Context: t.Context()},
		&mooringv1.ListPoolsRequest{})
	if err != nil || len(resp.GetPools()) != 1 {
		t.Fatalf("ListPools = %v, %v", resp, err)
	}
	if p := resp.GetPools()[0]; p.GetState() != "ready" || p.GetTotal() < 1 ||
		p.GetMaxSize() != 7 || p.MaxPinned != nil {
		t.Errorf("the pool: %v", p)
	}
	unknown := &mooringv1.ListPoolsRequest{}
	unknown.ProtoReflect().
		SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	if _, err := g.Deployment.ListPools(t.Context(),
		unknown); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown field: %v", err)
	}
}

// Behind a load balancer, of a real client: what fails at one service is cleared there, and only
// there.
func TestPoolsBehindALoadBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lb := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})
		cfg, err := connstring.Parse(lb.URI(""))
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(cfg, client.Options{Dialer: lb.Dial})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		slow := fakemongo.Always(fakemongo.OK(nil).After(time.Second))
		lb.Service(0).
			Handle("ping",
				fakemongo.Times(1, slow,
					fakemongo.Times(1, fakemongo.Always(fakemongo.Drop()), slow)))
		lb.Service(1).Handle("ping", slow)
		var failed atomic.Int32
		for range 3 { // two at once, so that each has a connection to a service of its own
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if c.Ping(t.Context()) != nil {
						failed.Add(1)
					}
				})
			}
			wg.Wait()
		}
		if n := failed.Load(); n != 1 {
			t.Errorf("Ping() failed %d times, want 1", n)
		}
		resp, err := deployment.New(deployment.Config{Client: c}).
			ListPools(&call.Context{Context: t.Context()}, &mooringv1.ListPoolsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, s := range resp.GetPools()[0].GetServices() {
			got[s.GetServiceId()] = fmt.Sprint(s.GetGeneration(), s.GetConnections())
		}
		if want := (map[string]string{
			lb.Service(0).ID().Hex(): "1 1", lb.Service(1).ID().Hex(): "0 1",
		}); !maps.Equal(got, want) {
			t.Errorf("services %v, want %v", got, want)
		}
	})
}
