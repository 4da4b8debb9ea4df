package client_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestServerAPI checks that every command declares the stable API: hello, and those of operations.
func TestServerAPI(t *testing.T) {
	for name, test := range map[string]struct {
		api  *client.ServerAPI
		want string
	}{
		"none":    {nil, `{"ping":1}`},
		"version": {&client.ServerAPI{Version: "1"}, `{"ping":1,"apiVersion":"1"}`},
		"all of it": {
			&client.ServerAPI{Version: "1", Strict: new(false), DeprecationErrors: new(true)},
			`{"ping":1,"apiVersion":"1","apiStrict":false,"apiDeprecationErrors":true}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Standalone)
				c := connect(t, cluster, "", client.Options{ServerAPI: test.api})
				if err := c.Ping(t.Context()); err != nil {
					t.Fatal(err)
				}
				srv := cluster.Host(0).Server
				if got := sent(t, srv, "ping"); got != test.want {
					t.Errorf("sent %s, want %s", got, test.want)
				}
				for _, cmd := range srv.Commands("hello") {
					if test.api != nil && !strings.Contains(text(t, cmd.Body), `"apiVersion":"1"`) {
						t.Errorf("hello does not declare the API: %s", text(t, cmd.Body))
					}
				}
			})
		})
	}
}

func TestUnknownServerAPI(t *testing.T) {
	cfg, err := connstring.Parse("mongodb://a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.New(cfg, client.Options{ServerAPI: &client.ServerAPI{Version: "2"}})
	if !isA[*client.ArgumentError](err) {
		t.Errorf("New() = %v, want an error about the version", err)
	}
}
