package server_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mooringdb/mooring/service/server"
)

// TestLinger checks that a server that is told to stop is not ready, and serves until its clients
// can know that. No call fails before the drain begins.
func TestLinger(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) { cfg.Linger = time.Second })
	close(r.finish)
	r.start(t)
	cc, err := grpc.NewClient("passthrough:///"+r.Addresses().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	check := func() error {
		_, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(context.Background()) }()
	<-r.unready
	if err := check(); err != nil {
		t.Errorf("gRPC after it has become unready: %v", err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for range 3 { // on new connections
		resp, err := (&http.Client{Transport: tr}).Get("http://" + r.Addresses().REST)
		if err != nil {
			t.Fatalf("REST after it has become unready: %v", err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(text) != "rest" || !resp.Close {
			t.Errorf("REST says %q, Connection: close is %v", text, resp.Close)
		}
	}
	select {
	case <-r.draining:
		t.Error("it drains at once")
	default:
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop = %v", err)
	}
	<-r.draining
}
