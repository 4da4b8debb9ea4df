package cli_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/mooringdb/mooring/cmd/gateway/internal/cli"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/certtest"
)

// network has the listeners of its addresses.
type network map[string]*bufconn.Listener

func (n network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	l := n[address]
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return l.DialContext(ctx)
}

// readiness says how a gateway answers.
type readiness int

const (
	ready    readiness = iota
	slow               // /readyz is 503 once
	starting           // /readyz is 503, and the health service says NOT_SERVING
)

// serveHealth starts the two ports of a gateway, and returns what stops them.
func serveHealth(rest, rpc net.Listener, secure *tls.Config, state readiness) (stop func()) {
	refusals := map[readiness]int{slow: 1, starting: 1 << 30}[state]
	web := &http.Server{
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// health asks one time after the other
			if refusals--; r.URL.Path != "/readyz" || refusals >= 0 {
				http.Error(w, "no server", http.StatusServiceUnavailable)
			}
		}),
	}
	creds := insecure.NewCredentials()
	if secure != nil {
		rest, creds = tls.NewListener(rest, secure), credentials.NewTLS(secure)
	}
	g, h := grpc.NewServer(grpc.Creds(creds)), health.NewServer()
	healthpb.RegisterHealthServer(g, h)
	status := healthpb.HealthCheckResponse_SERVING
	if state == starting {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	h.SetServingStatus(mooringv1.DocumentService_ServiceDesc.ServiceName, status)
	var running sync.WaitGroup
	running.Go(func() { _ = web.Serve(rest) })
	running.Go(func() { _ = g.Serve(rpc) })
	return func() {
		_ = web.Close()
		g.Stop()
		running.Wait()
	}
}

// TestHealth checks what health says of the two ports of a gateway, in plain text and with TLS.
func TestHealth(t *testing.T) {
	// What the certificate of the ports proves.
	type certificate int
	const (
		none  certificate = iota
		own               // the name in the URL
		other             // another name
	)
	const r, g = "gateway:8080", "gateway:27080"
	for _, row := range []struct {
		name       string
		secure     certificate
		state      readiness
		rest, grpc string   // the addresses of the ports
		args       []string // CA and EMPTY stand for files
		code       int
		want       string
	}{
		{"both", none, ready, r, g, []string{"--rest=http://" + r, "--grpc=http://" + g}, 0, "rest at http://" + r + " is ready\ngrpc at http://" + g + " is ready\n"},
		{"REST", none, ready, r, g, []string{"--rest=http://" + r + "/"}, 0, "rest at http://" + r + "/ is ready\n"},
		{"gRPC", none, ready, r, g, []string{"--grpc=http://" + g}, 0, "grpc at http://" + g + " is ready\n"},
		{"after a while", none, slow, r, g, []string{"--rest=http://" + r}, 0, "rest at http://" + r + " is ready\n"},
		{"REST is not ready", none, starting, r, g, []string{"--rest=http://" + r}, 1, "mooring: rest at http://" + r + ": 503 Service Unavailable: no server\n"},
		{"gRPC is not ready", none, starting, r, g, []string{"--grpc=http://" + g}, 1, "mooring: grpc at http://" + g + ": the health service says NOT_SERVING\n"},
		{"TLS", own, ready, r, g, []string{"--rest=https://" + r, "--grpc=https://" + g, "--ca-file=CA"}, 0, "rest at https://" + r + " is ready\ngrpc at https://" + g + " is ready\n"},
		{"TLS of another name", other, ready, r, g, []string{"--rest=https://" + r, "--ca-file=CA"}, 1, "\nmooring: use a host that the certificate names, or do not verify it: --any-certificate\n"},
		{"gRPC of another name", other, ready, r, g, []string{"--grpc=https://" + g, "--ca-file=CA"}, 1, "\nmooring: use a host that the certificate names"},
		{"TLS of any name", other, ready, r, g, []string{"--rest=https://" + r, "--grpc=https://" + g, "--any-certificate"}, 0, "grpc at https://" + g + " is ready"},
		{"an unknown authority", own, ready, r, g, []string{"--rest=https://" + r}, 1, "\nmooring: name the certificate's authorities by --ca-file, or do not verify it: --any-certificate\n"},
		{"an unknown authority of gRPC", own, ready, r, g, []string{"--grpc=https://" + g}, 1, "\nmooring: name the certificate's authorities by --ca-file"},
		{"plain text at a port with TLS", own, ready, r, g, []string{"--rest=http://" + r}, 1, "\nmooring: the port has TLS: write https://, and name the certificate's authorities by --ca-file\n"},
		{"plain gRPC at a port with TLS", own, ready, r, g, []string{"--grpc=http://" + g}, 1, "\nmooring: is it a port with TLS (write https:// and --ca-file), or the port of REST, which --rest asks?\n"},
		{"TLS at a plain port", none, ready, r, g, []string{"--rest=https://" + r}, 1, "\nmooring: the port has no TLS: write http://\n"},
		{"TLS at a plain port of gRPC", none, ready, r, g, []string{"--grpc=https://" + g}, 1, "\nmooring: the port has no TLS: write http://\n"},
		{"REST at the port of gRPC", none, ready, r, g, []string{"--rest=http://" + g}, 1, "\nmooring: is it the port of gRPC, which --grpc asks?\n"},
		{"gRPC at the port of REST", none, ready, r, g, []string{"--grpc=http://" + r}, 1, "the port of REST, which --rest asks?\n"},
		{"no file", own, ready, r, g, []string{"--rest=https://" + r, "--ca-file=/nosuch"}, 1, "/nosuch"},
		{"a file without a certificate", own, ready, r, g, []string{"--rest=https://" + r, "--ca-file=EMPTY"}, 1, "has no certificate"},
		{"no gateway", none, ready, r, g, []string{"--rest=http://nosuch:1"}, 1, "connection refused"},
		{"no gateway for gRPC", none, ready, r, g, []string{"--grpc=http://nosuch:1"}, 1, "connection refused"},
		{"no time", none, ready, r, g, []string{"--rest=http://" + r, "--timeout=0s"}, 1, "no answer"},
		{"no port", none, ready, "gateway:80", "[::1]:80", []string{"--rest=http://gateway", "--grpc=http://[::1]"}, 0, "grpc at http://[::1] is ready"},
		{"no port with TLS", own, ready, "other:443", "gateway:443", []string{"--rest=https://other", "--grpc=https://gateway", "--any-certificate"}, 0, "grpc at https://gateway is ready"},
		{"an empty port", own, ready, r, "gateway:443", []string{"--grpc=https://gateway:", "--ca-file=CA"}, 0, "grpc at https://gateway: is ready"},
		{"the default addresses", none, ready, "127.0.0.1:8080", "127.0.0.1:27080", nil, 0, "rest at http://127.0.0.1:8080 is ready\ngrpc at http://127.0.0.1:27080 is ready\n"},
		{"empty addresses", none, ready, "127.0.0.1:8080", "127.0.0.1:27080", []string{"--rest=", "--grpc="}, 0, "grpc at http://127.0.0.1:27080 is ready"},
		{"no URL", none, ready, r, g, []string{"--grpc=host:1"}, 2, "--grpc must be http:// or https:// and a host"},
		{"no host", none, ready, r, g, []string{"--rest=http://"}, 2, "--rest must be"},
		{"only a port", none, ready, r, g, []string{"--grpc=http://:27080"}, 2, "--grpc must be"},
		{"no HTTP", none, ready, r, g, []string{"--rest=ftp://host"}, 2, "--rest must be"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := certtest.Authority(t, certtest.ECDSA)
				var secure *tls.Config
				if row.secure != none {
					name := map[certificate]string{own: "gateway", other: "db.example"}[row.secure]
					secure = &tls.Config{
						Certificates: []tls.Certificate{ca.Issue(t, name).TLS(nil)},
					}
				}
				// With room for what TLS says, since both sides may speak at once.
				rest, rpc := bufconn.Listen(1<<16), bufconn.Listen(1<<16)
				n := network{row.rest: rest, row.grpc: rpc}
				stop := serveHealth(rest, rpc, secure, row.state)
				files := strings.NewReplacer("CA", certtest.File(t, "ca", ca.CertificateBlock()),
					"EMPTY", certtest.File(t, "empty"))
				args := []string{"health"}
				for _, arg := range row.args {
					args = append(args, files.Replace(arg))
				}
				var said bytes.Buffer
				code := cli.RunOn(n.dial, args, &said, &said)
				stop()
				if code != row.code || !strings.Contains(said.String(), row.want) {
					t.Errorf("%q = %d, %q; want %d, %q", args, code, &said, row.code, row.want)
				}
			})
		})
	}
}

// TestHealthOnSockets checks that health uses the network unless a test gives it another.
func TestHealthOnSockets(t *testing.T) {
	var at []net.Listener
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, l)
	}
	defer serveHealth(at[0], at[1], nil, ready)()
	args := []string{"health", "--rest=http://" + at[0].Addr().String(), "--grpc=http://" + at[1].Addr().String()}
	if code, _, stderr := run(nil, args...); code != 0 {
		t.Errorf("%q = %d, %s", args, code, stderr)
	}
}
