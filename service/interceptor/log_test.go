package interceptor_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestSummaries checks which calls are logged above Debug, and how.
func TestSummaries(t *testing.T) {
	for reason, want := range map[rpcerr.Reason]string{
		rpcerr.QuotaExceeded: "level=INFO msg=\"request refused\"", rpcerr.PolicyRefused: "level=INFO msg=\"request refused\"",
		rpcerr.NoSuitableServer: "level=WARN msg=\"request failed\"", rpcerr.ShuttingDown: "level=INFO msg=\"request ended by the shutdown\"",
		rpcerr.Internal: "level=ERROR msg=\"request failed\"", rpcerr.CursorNotFound: "", rpcerr.Canceled: "",
	} {
		var out bytes.Buffer
		x := interceptor.New(interceptor.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		_ = unary(incoming(t.Context()), x, func(context.Context) error {
			return &rpcerr.Error{Reason: reason, Message: "m"}
		})
		text := out.String()
		if want == "" && text != "" || !strings.Contains(text, want) ||
			want != "" && !strings.Contains(text, "reason="+string(reason)) {
			t.Errorf("%s: %q, want %q", reason, text, want)
		}
	}
}

// TestLoggedClient checks which address the lines of a call have: never that of a replica that
// forwards the call.
func TestLoggedClient(t *testing.T) {
	client, peer := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.9")
	for _, row := range []struct {
		name  string
		local call.Local
		want  netip.Addr
	}{
		{"gRPC", call.Local{}, peer},
		{"REST", call.Local{Client: client}, client},
		{"forwarded", call.Local{Forwarded: true, Client: client}, client},
		{"forwarded without an address", call.Local{Forwarded: true}, netip.Addr{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out bytes.Buffer
			x := interceptor.New(interceptor.Config{
				Logger: slog.New(slog.NewTextHandler(&out, nil)),
			})
			ctx := &call.LocalContext{Context: from(t.Context(), peer.String()), Local: row.local}
			err := unary(ctx, x, func(ctx context.Context) error {
				if got := call.From(ctx).Client; got != row.want {
					t.Errorf("the handler sees %s, want %s", got, row.want)
				}
				return &rpcerr.Error{Reason: rpcerr.Internal}
			})
			if text := out.String(); err == nil ||
				strings.Contains(text, "client=") != row.want.IsValid() ||
				row.want.IsValid() && !strings.Contains(text, "client="+row.want.String()+" ") {
				t.Errorf("%v, logged %q, want %s", err, text, row.want)
			}
		})
	}
}

func document(b *bson.Builder) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: b.Finish()}}
}

// TestSlowRequests checks that a slow call is logged with the shape of its documents, and without
// any value.
func TestSlowRequests(t *testing.T) {
	filter := bson.NewBuilder(nil).String("name", "secret").OpenDocument("total").
		Int32("$gt", 1471147119).Close().
		OpenArray("$or").OpenDocument("").Int32("a", 1471147119).Close().OpenDocument("").
		String("b", "secret").Close().Close().
		OpenArray("tags").String("", "secret").String("", "secret").Close()
	deep := bson.NewBuilder(nil)
	for range 20 {
		deep.OpenDocument("d")
	}
	for range 20 {
		deep.Close()
	}
	wide := bson.NewBuilder(nil)
	for range 500 {
		wide.String("key", "secret")
	}
	json := func(text string) *mooringv1.Document {
		return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}}
	}
	find := func(filter *mooringv1.Document) any {
		return &mooringv1.FindRequest{Database: "shop", Collection: "orders", Filter: filter}
	}
	for _, row := range []struct {
		name    string
		request any
		want    string
	}{
		{"BSON", find(document(filter)), `filter="{name: ?, total: {$gt: ?}, $or: [{a: ?}, {b: ?}], tags: [?]}"`},
		{"JSON", find(json(`{"a": {"$gt": {"$date": "2026-01-01T00:00:00Z"}}, "s": "secret"}`)), `filter="{a: {$gt: ?}, s: ?}"`},
		{"malformed", find(json(`{"a": secret`)), `filter=?`},
		{"no filter", find(nil), "namespace=shop.orders"},
		{"deep", find(document(deep)), "{d: ?}}}"},
		{"wide", find(document(wide)), "…"},
		{"pipeline", &mooringv1.AggregateRequest{Pipeline: []*mooringv1.Document{json(`{"$match": {"a": "secret"}}`), json(`{"$limit": 1471147119}`)}}, `pipeline="{$match: {a: ?}}, {$limit: ?}"`},
		{"long JSON", find(json(`{"a": "` + strings.Repeat("x", 64<<10) + `"}`)), `filter=?`},
		{"long stages", &mooringv1.AggregateRequest{Pipeline: []*mooringv1.Document{
			json(`{"a": "` + strings.Repeat("x", 40<<10) + `"}`), json(`{"b": "` + strings.Repeat("x", 40<<10) + `"}`), json(`{"c": 1}`),
		}}, `pipeline="{a: ?}, ?, {c: ?}"`},
		{"command", &mooringv1.RunCommandRequest{Command: json(`{"find": "c", "comment": "secret"}`)}, `command="{find: ?, comment: ?}"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				x := interceptor.New(interceptor.Config{
					SlowRequest: time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil)),
				})
				for _, took := range []time.Duration{time.Second - 1, time.Second} {
					out.Reset()
					_, err := x.Unary()(incoming(t.Context()), row.request,
						&grpc.UnaryServerInfo{FullMethod: "/s/M"}, func(
							context.Context, any,
						) (any, error) {
							time.Sleep(took) //nolint:forbidigo // fake time
							return nil, nil
						})
					if err != nil {
						t.Fatal(err)
					}
					text := out.String()
					slow := strings.Contains(text, "level=WARN msg=\"slow request\"")
					if slow != (took == time.Second) || slow && !strings.Contains(text, row.want) {
						t.Errorf("after %s: %s, want %s", took, text, row.want)
					}
					if strings.Contains(text, "secret") || strings.Contains(text, "1471147119") ||
						len(text) > 1000 {
						t.Errorf("%d bytes: %s", len(text), text)
					}
				}
			})
		})
	}
}

// TestShapesTakeLittle has slow calls with documents of MiB, whose shapes take little.
func TestShapesTakeLittle(t *testing.T) {
	json := func(text string) *mooringv1.Document {
		return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}}
	}
	ones := func(n int) string { return `{"a": [` + strings.Repeat("1,", n) + `1]}` }
	find := func(filter *mooringv1.Document) any { return &mooringv1.FindRequest{Filter: filter} }
	aggregate := func(stage *mooringv1.Document, n int) any {
		return &mooringv1.AggregateRequest{
			Pipeline: slices.Repeat([]*mooringv1.Document{stage}, n),
		}
	}
	for name, request := range map[string]any{
		"JSON":         find(json(ones(2 << 20))),
		"stages":       aggregate(json(ones(30<<10)), 50),
		"short stages": aggregate(json("{}"), 1<<20),
		"a key":        find(document(bson.NewBuilder(nil).Null(strings.Repeat("k", 4<<20)))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := interceptor.New(interceptor.Config{
					SlowRequest: time.Second, Logger: slog.New(slog.DiscardHandler),
				})
				var before, after runtime.MemStats
				_, err := x.Unary()(incoming(t.Context()), request,
					&grpc.UnaryServerInfo{FullMethod: "/s/M"}, func(
						context.Context, any,
					) (any, error) {
						time.Sleep(time.Second) //nolint:forbidigo // fake time
						runtime.ReadMemStats(&before)
						return nil, nil
					})
				runtime.ReadMemStats(&after)
				if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > 2<<20 {
					t.Errorf("%d bytes, %v", took, err)
				}
			})
		})
	}
}
