package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestAuditedClient checks that the lines of the audit log have the client's address in one form,
// over each protocol, for requests that are refused before they are calls and for calls: an IP
// address without the port, or none over a Unix domain socket. A listed proxy names the address.
func TestAuditedClient(t *testing.T) {
	inserted := fakemongo.OK(func(b *bson.Builder) { b.Int32("n", 1) })
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{"insert": fakemongo.Always(inserted)})
	const document, forwarded = `{"a": 1}`, "198.51.100.1, 192.0.2.7"
	insert := &mooringv1.InsertOneRequest{
		Database: "db", Collection: "c",
		Document: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: document}},
	}
	message, err := proto.Marshal(insert)
	if err != nil {
		t.Fatal(err)
	}
	framed := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	key, line := newKey(t, "shop", time.Time{})

	dir := t.TempDir()
	for _, row := range []struct {
		name, grpc, rest, proxies string
		want                      any
	}{
		{"TCP", "127.0.0.1:0", "127.0.0.1:0", "10.0.0.1", "127.0.0.1"},
		{"a listed proxy", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.0/8", "192.0.2.7"},
		{
			"Unix domain sockets", "unix:" + filepath.Join(dir, "g"),
			"unix:" + filepath.Join(dir, "r"), "127.0.0.0/8", nil,
		},
	} {
		path := filepath.Join(t.TempDir(), "audit")
		g := start(t, mongo.URI(), "--grpc-address", row.grpc, "--rest-address", row.rest,
			"--auth-api-keys-file", secretFile(t, "keys", line), "--audit-file", path,
			"--proxies-addresses", row.proxies, "--proxies-header", "X-Forwarded-For",
			"--data-api-sources", "s")
		at := g.Addresses()
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			if at.REST == row.rest {
				network, addr = "unix", at.REST[len("unix:"):]
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		browser := &http.Client{Transport: &http.Transport{DialContext: dial}}
		target, host := "passthrough:///"+at.GRPC, at.REST
		if row.want == nil {
			target, host = at.GRPC, "localhost"
		}
		cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		post := func(path, form string, body []byte, authorization string) {
			r, err := http.NewRequestWithContext(
				t.Context(), http.MethodPost, "http://"+host+path, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", form)
			r.Header.Set("X-Forwarded-For", forwarded)
			if authorization != "" {
				r.Header.Set("Authorization", authorization)
			}
			resp, err := browser.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		for _, authorization := range []string{"", "Bearer " + key} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", forwarded)
			if authorization != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
			}
			_, err := mooringv1.NewDocumentServiceClient(cc).InsertOne(ctx, insert)
			if (err == nil) != (authorization != "") {
				t.Errorf("%s: gRPC: %v", row.name, err)
			}
			post("/v1/databases/db/collections/c/documents:insertOne", "application/json",
				[]byte(`{"document": `+document+`}`), authorization)
			post(mooringv1.DocumentService_InsertOne_FullMethodName, "application/grpc-web+proto",
				framed, authorization)
			post(mooringv1.DocumentService_InsertOne_FullMethodName, "application/proto",
				message, authorization)
			post("/action/insertOne", "application/json", []byte(`{"dataSource": "s", `+
				`"database": "db", "collection": "c", "document": `+document+`}`), authorization)
		}
		_ = cc.Close()
		browser.CloseIdleConnections()
		g.stop()

		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		if len(lines) != 10 {
			t.Errorf("%s: %d lines, want 10: %s", row.name, len(lines), text)
		}
		for _, line := range lines {
			var entry map[string]any
			if err := json.Unmarshal(line, &entry); err != nil || entry["client"] != row.want {
				t.Errorf("%s: client %v, want %v: %s (%v)",
					row.name, entry["client"], row.want, line, err)
			}
		}
	}
}
