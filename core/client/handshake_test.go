package client_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// environment are all variables that the client document is made of; a test sets some and empties
// the rest.
var environment = []string{
	"AWS_EXECUTION_ENV", "AWS_LAMBDA_RUNTIME_API", "AWS_REGION", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "FUNCTIONS_WORKER_RUNTIME",
	"K_SERVICE", "FUNCTION_NAME", "FUNCTION_MEMORY_MB", "FUNCTION_TIMEOUT_SEC", "FUNCTION_REGION", "VERCEL", "VERCEL_REGION",
	"KUBERNETES_SERVICE_HOST",
}

// MongoDB Handshake, prose test 1: what client.env says, and that the handshake succeeds whatever
// that is.
func TestHandshakeProse1EnvironmentInTheClientMetadata(t *testing.T) {
	tests := []struct {
		name string
		vars map[string]string
		want string // env without container.runtime, which depends on where the test runs
	}{
		{
			"1 valid AWS",
			map[string]string{"AWS_EXECUTION_ENV": "AWS_Lambda_java8", "AWS_REGION": "us-east-2", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024"},
			`{"name":"aws.lambda","memory_mb":1024,"region":"us-east-2"}`,
		},
		{"2 valid Azure", map[string]string{"FUNCTIONS_WORKER_RUNTIME": "node"}, `{"name":"azure.func"}`},
		{
			"3 valid GCP",
			map[string]string{"K_SERVICE": "servicename", "FUNCTION_MEMORY_MB": "1024", "FUNCTION_TIMEOUT_SEC": "60", "FUNCTION_REGION": "us-central1"},
			`{"name":"gcp.func","timeout_sec":60,"memory_mb":1024,"region":"us-central1"}`,
		},
		{"4 valid Vercel", map[string]string{"VERCEL": "1", "VERCEL_REGION": "cdg1"}, `{"name":"vercel","region":"cdg1"}`},
		{"5 multiple providers", map[string]string{"AWS_EXECUTION_ENV": "AWS_Lambda_java8", "FUNCTIONS_WORKER_RUNTIME": "node"}, ""},
		{
			"6 long string",
			map[string]string{"AWS_EXECUTION_ENV": "AWS_Lambda_java8", "AWS_REGION": strings.Repeat("a", 512)},
			`{"name":"aws.lambda"}`,
		},
		{
			"7 wrong types",
			map[string]string{"AWS_EXECUTION_ENV": "AWS_Lambda_java8", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "big"},
			`{"name":"aws.lambda"}`,
		},
		{"8 not AWS_Lambda_", map[string]string{"AWS_EXECUTION_ENV": "EC2"}, ""},
		{
			"9 container and FaaS",
			map[string]string{
				"AWS_EXECUTION_ENV": "AWS_Lambda_java8", "AWS_REGION": "us-east-2", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
				"KUBERNETES_SERVICE_HOST": "1",
			},
			`{"name":"aws.lambda","memory_mb":1024,"region":"us-east-2","container":{"orchestrator":"kubernetes"}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range environment {
				t.Setenv(name, tt.vars[name])
			}
			for _, d := range clientDocuments(t, connstring.Config{}, client.Options{}) {
				v, _ := d.Lookup("env")
				env, _ := v.Document()
				got := ""
				if env = withoutRuntime(env); !env.IsEmpty() {
					got = text(t, env)
				}
				if got != tt.want || len(d) > 512 {
					t.Errorf("env = %s, want %s, in %d bytes", got, tt.want, len(d))
				}
			}
		})
	}
}

// withoutRuntime takes out of env that a container has a runtime.
func withoutRuntime(env bson.Raw) bson.Raw {
	v, ok := env.Lookup("container")
	if !ok {
		return env
	}
	container, _ := v.Document()
	container = bson.Without(container, "runtime")
	if container.IsEmpty() {
		return bson.Without(env, "container")
	}
	b := bson.NewBuilder(nil)
	b.AppendElements(bson.Without(env, "container"))
	return b.Document("container", container).Finish()
}

// clientDocuments are those that the server gets of a client that pings: on a monitor's connection
// and on a pool's.
func clientDocuments(t *testing.T, cfg connstring.Config, opt client.Options) []bson.Raw {
	t.Helper()
	var docs []bson.Raw
	runWith(t, nil, cfg, opt, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		if err := c.Ping(t.Context()); err != nil {
			t.Fatalf("Ping() = %v", err)
		}
		for _, cmd := range srv.Commands("isMaster", "hello") {
			if v, ok := cmd.Body.Lookup("client"); ok {
				d, _ := v.Document()
				docs = append(docs, d)
			}
		}
	})
	if len(docs) != 2 {
		t.Fatalf("%d handshakes, want a monitor's and a pool's", len(docs))
	}
	return docs
}

// MongoDB Handshake, prose test 2: an unknown mechanism in saslSupportedMechs is not an error.
func TestHandshakeProse2UnknownMechanismsAreTolerated(t *testing.T) {
	run(t, fakemongo.Handlers{"hello": func(cmd *fakemongo.Command) fakemongo.Reply {
		return fakemongo.Hello(cmd, func(b *bson.Builder) {
			b.OpenArray("saslSupportedMechs").String("", "SCRAM-SHA-256").
				String("", "unknownMechanism").Int32("", 1).Close()
		})
	}}, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		if err := c.Ping(t.Context()); err != nil {
			t.Errorf("Ping() = %v", err)
		}
	})
}

func TestNewRefusesALongAppName(t *testing.T) {
	for _, cfg := range []connstring.Config{
		{Hosts: []address.Address{"a:27017"}}, {SRV: true, SRVHost: "a.example.com"},
	} {
		cfg.AppName = strings.Repeat("a", 129)
		if _, err := client.New(cfg, client.Options{}); err == nil {
			t.Errorf("New() with 129 bytes of appName, SRV %v: no error", cfg.SRV)
		}
	}
}

// A connection keeps to the limits of its own hello, whatever the monitor's said.
func TestLimitsAreTheConnections(t *testing.T) {
	hello := func(size int32) fakemongo.Handler {
		return func(cmd *fakemongo.Command) fakemongo.Reply {
			return fakemongo.OK(func(b *bson.Builder) {
				b.Bool("isWritablePrimary", true).Bool("helloOk", true).Int32("maxWireVersion", 21).
					Int32("maxBsonObjectSize", 16<<20).Int32("maxMessageSizeBytes", 48_000_000).
					Int32("maxWriteBatchSize", size)
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		srv := fakemongo.NewServer(t,
			fakemongo.Handlers{"hello": fakemongo.Times(1, hello(100_000), hello(2))})
		c := start(t, srv, connstring.Config{}, client.Options{})
		docs := []bson.Raw{doc(t, `{"a":1}`), doc(t, `{"a":2}`), doc(t, `{"a":3}`)}
		if _, err := c.InsertMany(context.Background(), orders, docs,
			client.InsertManyOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := len(srv.Commands("insert")); got != 2 {
			t.Errorf("%d inserts of 3 documents, want 2: the pool's connection takes 2 at once",
				got)
		}
	})
}
