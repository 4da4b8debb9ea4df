package app_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// BenchmarkFindOne measures a findOne through the whole gateway, its client and a scripted server
// included: without and with an API key, and with a policy of twenty rules, of which one permits
// the call, in full or under a filter. The differences are what each costs.
func BenchmarkFindOne(b *testing.B) {
	key, line := newKey(b, "shop", time.Time{})
	for _, row := range []struct {
		name    string
		options []string
		key     string
	}{
		{"open", nil, ""},
		{"key", []string{"--auth-api-keys", line}, key},
		{"policy", []string{"--auth-api-keys", line, "--policy-file", twentyRules(b, "")}, key},
		{"filter", []string{"--auth-api-keys", line, "--policy-file", twentyRules(b, `@filter("{'x': {'$exists': false}}")`)}, key},
	} {
		mongo := fakemongo.NewTCPServer(b, nil)
		mongo.SetDocuments("db.c", documents(1, 400)...)
		g := startBench(b, mongo.URI(), row.options...)
		b.Run("grpc/"+row.name, func(b *testing.B) { benchGRPC(b, g, row.key) })
		b.Run("rest/"+row.name, func(b *testing.B) { benchREST(b, g, row.key) })
		if err := g.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	}
}

// twentyRules writes a policy of which one rule, with the annotation, permits the reading of db.
func twentyRules(b *testing.B, annotation string) string {
	b.Helper()
	var text strings.Builder
	for i := range 19 {
		fmt.Fprintf(&text,
			"permit (principal in Group::\"key:g%d\", action in Action::\"read\", resource in "+
				"Database::\"d%d\") "+
				"when { principal.claims has x && principal.claims.x == %d };\n", i, i, i)
	}
	text.WriteString(annotation +
		` permit (principal == Principal::"key:shop", action in Action::"read", resource in Database::"db");`)
	path := filepath.Join(b.TempDir(), "policy")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

func startBench(b *testing.B, uri string, options ...string) *app.App {
	b.Helper()
	args := append([]string{
		"--uri", uri, "--grpc-address=127.0.0.1:0", "--rest-address=127.0.0.1:0", "--drain-linger=0s",
	}, options...)
	g, err := app.New(load(b, args...), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	if err := g.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return g
}

func benchGRPC(b *testing.B, g *app.App, key string) {
	cc, err := grpc.NewClient("passthrough:///"+g.Addresses().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	// The same number of headers in both cases.
	ctx := metadata.AppendToOutgoingContext(b.Context(), "authorization", "Bearer "+key)
	c := mooringv1.NewDocumentServiceClient(cc)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.FindOne(ctx,
			&mooringv1.FindOneRequest{Database: "db", Collection: "c"}); err != nil {
			b.Fatal(err)
		}
	}
}

func benchREST(b *testing.B, g *app.App, key string) {
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	url := "http://" + g.Addresses().REST + "/v1/databases/db/collections/c/documents:findOne"
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url,
			strings.NewReader("{}"))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := tr.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status)
		}
	}
}
