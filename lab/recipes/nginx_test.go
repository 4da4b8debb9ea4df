package recipes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// client is the address of the tests' clients, which nginx adds to X-Forwarded-For. nginx itself
// has another one.
const client = "127.0.0.2"

// nginx is Debian's nginx with the locations of docs/operations.md.
type nginx struct{ rest, grpc string }

func startNginx(t *testing.T, g *gatewaytest.Gateway) nginx {
	t.Helper()
	path := ""
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
		}
	}
	if path == "" {
		t.Skip("nginx is not installed (apt-get install nginx-light)")
	}
	locations := between(t, page(t, "operations.md"), "    location / {", "\n\n")
	locations = strings.NewReplacer(
		"http://mooring:8080", g.REST, "grpc://mooring:27080", "grpc://"+g.GRPC,
	).Replace(locations)
	addresses := gatewaytest.FreeAddresses(t, 2)
	dir := t.TempDir()
	var temporary strings.Builder
	for _, what := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temporary, "%s_temp_path %s/%s;\n", what, dir, what)
	}
	// nginx 1.22 has no listener without TLS that speaks both versions of HTTP.
	text := fmt.Sprintf(`
daemon off;
worker_processes 1;
pid %s/pid;
error_log stderr;
events {}
http {
access_log off;
%s
server {
listen %s;
listen %s http2;
%s
}
}`, dir, &temporary, addresses[0], addresses[1], locations)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start(proc.Config{
		Path: path, Args: []string{"-p", dir, "-c", file, "-g", "user root;"},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Drain()
	t.Cleanup(func() {
		_ = p.Stop(5 * time.Second) // what it exits with does not matter
		if t.Failed() {
			t.Logf("end of nginx's log:\n%s", p.Tail())
		}
	})
	gatewaytest.Eventually(t, 10*time.Second, func() error {
		nc, err := net.Dial("tcp", addresses[1])
		if err == nil {
			_ = nc.Close()
		}
		return err
	})
	return nginx{"http://" + addresses[0], addresses[1]}
}

// dialer connects from the address of the clients.
func dialer() *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
}

// post sends a body to REST through nginx, as a client that names another address as its own.
func (n nginx) post(t *testing.T, path, body string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.rest+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "api.example"
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Forwarded-For", "203.0.113.9")
	c := &http.Client{Transport: &http.Transport{DialContext: dialer().DialContext}}
	t.Cleanup(c.CloseIdleConnections)
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// TestNginx puts nginx before the gateway, with what docs/operations.md shows: requests of both
// protocols, a body that is larger than nginx takes by default, streams that come as they happen,
// and the addresses of clients.
func TestNginx(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit")
	g := suite.Start(t, uri(t), "--proxies-addresses", "127.0.0.1/32", "--proxies-header",
		"X-Forwarded-For", "--rest-hosts", "api.example", "--audit-file", audit)
	n := startNginx(t, g)
	insert := gatewaytest.Documents("shop", "orders", "insertMany")
	large := fmt.Sprintf(`{"documents": [{"_id": 1, "text": %q}]}`, strings.Repeat("x", 2<<20))
	if r := n.post(t, insert, large); r.StatusCode != http.StatusOK {
		t.Errorf("insertMany of 2 MiB: %s", r.Status)
	}

	// The first line of a stream comes while the stream is open.
	lines := bufio.NewScanner(n.post(t, "/v1/databases/shop/collections/orders:watch", "{}").Body)
	changed := make(chan bool, 1)
	go func() {
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"operationType":"insert"`) {
				changed <- true
				return
			}
		}
		changed <- false
	}()
	id := 1
	gatewaytest.Eventually(t, 20*time.Second, func() error {
		id++
		n.post(t, insert, fmt.Sprintf(`{"documents": [{"_id": %d}]}`, id))
		select {
		case ok := <-changed:
			if !ok {
				t.Fatal("the stream ended without a change")
			}
			return nil
		default:
			return fmt.Errorf("no change has come through nginx")
		}
	})

	cc, err := grpc.NewClient("passthrough:///"+n.grpc,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer().DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	documents := mooringv1.NewDocumentServiceClient(cc)
	if _, err := documents.DeleteOne(t.Context(), &mooringv1.DeleteOneRequest{
		Database: "shop", Collection: "orders",
		Filter: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: "{}"}},
	}); err != nil {
		t.Errorf("DeleteOne over gRPC: %v", err)
	}
	wantClients(t, audit, "InsertMany", "DeleteOne")
}

// wantClients checks that the audit log has these methods, and no client but the tests' own.
func wantClients(t *testing.T, audit string, methods ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, method := range methods {
		missing[method] = true
	}
	gatewaytest.Eventually(t, 10*time.Second, func() error {
		text, err := os.ReadFile(audit)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			var entry struct{ Client, Action string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				return err
			}
			for method := range missing {
				if strings.HasSuffix(entry.Action, method) {
					delete(missing, method)
				}
			}
			if entry.Client != client {
				t.Fatalf("the audit log has %s, want the client %s", line, client)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("the audit log lacks %v:\n%s", missing, text)
		}
		return nil
	})
}
