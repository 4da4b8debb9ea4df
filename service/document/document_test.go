package document_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func doc(json string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: json}}
}

func value(json string) *mooringv1.Value {
	return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: json}}
}

func start(t *testing.T, handlers fakemongo.Handlers) *servicetest.Gateway {
	t.Helper()
	return servicetest.Start(t, fakemongo.NewServer(t, handlers), servicetest.Config{})
}

// sent is the last command of that name, as JSON, without what does not matter.
func sent(t *testing.T, g *servicetest.Gateway, name string) string {
	t.Helper()
	commands := g.Server.Commands(name)
	if len(commands) == 0 {
		t.Fatalf("no %s was sent", name)
	}
	c := commands[len(commands)-1]
	body := bson.Without(c.Body, "$db", "maxTimeMS", "lsid")
	text, err := extjson.Append(nil, body, extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	for sequence, docs := range c.Sequences {
		for _, d := range docs {
			text = append(text, (" " + sequence + ":")...)
			if text, err = extjson.Append(text, d, extjson.Relaxed); err != nil {
				t.Fatal(err)
			}
		}
	}
	return strings.ReplaceAll(string(text), " ", "")
}

func reply(add func(*bson.Builder)) fakemongo.Handler { return fakemongo.Always(fakemongo.OK(add)) }

func errorOf(t *testing.T, err error) *mooringv1.Error {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	return rpcerr.HTTP(err).Body.GetError()
}
