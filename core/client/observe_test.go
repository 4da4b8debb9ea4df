package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestWatchTopology(t *testing.T) {
	server := fakemongo.NewServer(t, nil)
	cfg, err := connstring.Parse(server.URI())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Dialer: server.Dial})
	if err != nil {
		t.Fatal(err)
	}
	seen, changed := c.WatchTopology()
	if s := seen.Servers[0]; s.Kind != description.ServerUnknown {
		t.Errorf("before Start: %v", s)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	timeout := time.After(10 * time.Second)
	for seen.Servers[0].Kind != description.ServerStandalone {
		select {
		case <-changed:
			seen, changed = c.WatchTopology()
		case <-timeout:
			t.Fatalf("saw only %v", seen)
		}
	}
}

func TestWatchTopologyBeforeTheLookUp(t *testing.T) {
	cfg, err := connstring.Parse("mongodb+srv://db.example.test")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if seen, changed := c.WatchTopology(); len(seen.Servers) > 0 || changed != nil {
		t.Errorf("WatchTopology = %v, %v", seen, changed)
	}
}
