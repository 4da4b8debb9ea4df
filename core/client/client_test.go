package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

var orders = client.Namespace{Database: "shop", Collection: "orders"}

// start starts a client of srv and closes it at the test's end.
func start(
	t *testing.T, srv *fakemongo.Server, cfg connstring.Config, opt client.Options,
) *client.Client {
	t.Helper()
	cfg.Hosts = []address.Address{srv.Address()}
	opt.Dialer = srv.Dial
	return startWith(t, cfg, opt)
}

// startURI starts a client of a URI and closes it at the test's end.
func startURI(t *testing.T, uri string, opt client.Options) *client.Client {
	t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, cfg, opt)
}

// startWith starts a client and closes it at the test's end.
func startWith(t *testing.T, cfg connstring.Config, opt client.Options) *client.Client {
	t.Helper()
	c, err := client.New(cfg, opt)
	if err != nil {
		t.Fatalf("New() = %v", err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatalf("Start() = %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return c
}

// run runs a test in a bubble, with a server and a client of it.
func run(
	t *testing.T,
	handlers fakemongo.Handlers,
	test func(t *testing.T, srv *fakemongo.Server, c *client.Client),
) {
	t.Helper()
	runWith(t, handlers, connstring.Config{}, client.Options{}, test)
}

func runWith(
	t *testing.T, handlers fakemongo.Handlers, cfg connstring.Config, opt client.Options,
	test func(t *testing.T, srv *fakemongo.Server, c *client.Client),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := fakemongo.NewServer(t, handlers)
		test(t, srv, start(t, srv, cfg, opt))
	})
}

// doc reads Extended JSON.
func doc(t testing.TB, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatalf("Parse(%s) = %v", json, err)
	}
	return d
}

func array(t testing.TB, json string) bson.Array {
	t.Helper()
	v, _ := doc(t, `{"a": `+json+`}`).Lookup("a")
	a, ok := v.Array()
	if !ok {
		t.Fatalf("%s is not an array", json)
	}
	return a
}

func text(t testing.TB, d bson.Raw) string {
	t.Helper()
	out, err := extjson.Append(nil, d, extjson.Relaxed)
	if err != nil {
		t.Fatalf("Append() = %v", err)
	}
	return string(out)
}

// sent is the only command of that name, without $db and lsid.
func sent(t testing.TB, srv *fakemongo.Server, name string) string {
	t.Helper()
	cmds := srv.Commands(name)
	if len(cmds) != 1 {
		t.Fatalf("%d commands %s were sent, want 1", len(cmds), name)
	}
	return text(t, bson.Without(cmds[0].Body, "$db", "lsid"))
}

// helloWith is a hello with other limits, or of another kind of server.
func helloWith(t testing.TB, json string) fakemongo.Handler {
	d := doc(t, json)
	return func(*fakemongo.Command) fakemongo.Reply {
		return fakemongo.Document(bson.NewBuilder(nil).Bool("isWritablePrimary", true).
			Bool("helloOk", true).
			Int32("maxBsonObjectSize", 16<<20).Int32("maxMessageSizeBytes", 48_000_000).
			Int32("minWireVersion", 0).
			AppendElements(d).Int32("ok", 1).Finish())
	}
}

// reply answers with Extended JSON.
func reply(t testing.TB, json string) fakemongo.Handler {
	return fakemongo.Always(fakemongo.Document(doc(t, json)))
}

// isA reports whether err is, or wraps, an E.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
