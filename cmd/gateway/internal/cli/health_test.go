package cli_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/certtest"
)

// TestHealth checks what health says of the two ports of a gateway, in plain text and with TLS.
func TestHealth(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	authorities := certtest.File(t, "ca", ca.CertificateBlock())
	empty := certtest.File(t, "empty")
	// The name in this certificate differs from the name in the URL.
	other := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "db.example").TLS(nil)}}
	own := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "127.0.0.1").TLS(nil)}}
	const ready, slow, starting = 0, 1, 2 // how often /readyz is 503 before it is 200; starting: always
	for _, row := range []struct {
		name   string
		secure *tls.Config
		state  int64
		args   []string // REST and GRPC stand for the URLs
		code   int
		want   string
	}{
		{"both", nil, ready, []string{"--rest=REST", "--grpc=GRPC"}, 0, "rest at REST is ready\ngrpc at GRPC is ready\n"},
		{"REST", nil, ready, []string{"--rest=REST/"}, 0, "rest at REST/ is ready\n"},
		{"gRPC", nil, ready, []string{"--grpc=GRPC"}, 0, "grpc at GRPC is ready\n"},
		{"after a while", nil, slow, []string{"--rest=REST"}, 0, "rest at REST is ready\n"},
		{"REST is not ready", nil, starting, []string{"--rest=REST", "--timeout=3s"}, 1, "mooring: rest at REST: 503 Service Unavailable: no server\n"},
		{"gRPC is not ready", nil, starting, []string{"--grpc=GRPC", "--timeout=3s"}, 1, "mooring: grpc at GRPC: the health service says NOT_SERVING\n"},
		{"TLS", own, ready, []string{"--rest=REST", "--grpc=GRPC", "--ca-file", authorities}, 0, "rest at REST is ready\ngrpc at GRPC is ready\n"},
		{"TLS of another name", other, ready, []string{"--rest=REST", "--timeout=3s", "--ca-file", authorities}, 1, "x509"},
		{"gRPC of another name", other, ready, []string{"--grpc=GRPC", "--timeout=3s", "--ca-file", authorities}, 1, "x509"},
		{"TLS of any name", other, ready, []string{"--rest=REST", "--grpc=GRPC", "--any-certificate"}, 0, "grpc at GRPC is ready"},
		{"an unknown authority", own, ready, []string{"--rest=REST", "--timeout=3s"}, 1, "x509"},
		{"no file", own, ready, []string{"--rest=REST", "--ca-file=/nosuch"}, 1, "/nosuch"},
		{"a file without a certificate", own, ready, []string{"--rest=REST", "--ca-file", empty}, 1, "has no certificate"},
		{"no gateway", nil, ready, []string{"--rest=http://127.0.0.1:1", "--timeout=3s"}, 1, "connection refused"},
		{"no time", nil, ready, []string{"--rest=REST", "--timeout=0s"}, 1, "no answer"},
		{"nothing to ask", nil, ready, nil, 2, "--rest or --grpc is required"},
		{"no URL", nil, ready, []string{"--grpc=host:1"}, 2, "--grpc must be http:// or https:// and a host"},
		{"no host", nil, ready, []string{"--rest=http://"}, 2, "--rest must be"},
		{"no HTTP", nil, ready, []string{"--rest=ftp://host"}, 2, "--rest must be"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // those that fail try until their time is over
			var left atomic.Int64
			left.Store(row.state)
			rest := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" || row.state == starting || left.Add(-1) >= 0 {
					http.Error(w, "no server", http.StatusServiceUnavailable)
				}
			}))
			rest.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			scheme, creds := "http://", insecure.NewCredentials()
			if row.secure != nil {
				rest.TLS = row.secure.Clone()
				rest.StartTLS()
				scheme, creds = "https://", credentials.NewTLS(row.secure)
			} else {
				rest.Start()
			}
			defer rest.Close()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			g, h := grpc.NewServer(grpc.Creds(creds)), health.NewServer()
			healthpb.RegisterHealthServer(g, h)
			state := healthpb.HealthCheckResponse_SERVING
			if row.state == starting {
				state = healthpb.HealthCheckResponse_NOT_SERVING
			}
			h.SetServingStatus(mooringv1.DocumentService_ServiceDesc.ServiceName, state)
			go func() { _ = g.Serve(l) }()
			defer g.Stop()

			urls := strings.NewReplacer("REST", rest.URL, "GRPC", scheme+l.Addr().String())
			args := []string{"health"}
			for _, arg := range row.args {
				args = append(args, urls.Replace(arg))
			}
			code, stdout, stderr := run(nil, args...)
			if said := stdout + stderr; code != row.code || !strings.Contains(said, urls.Replace(row.want)) {
				t.Errorf("%q = %d, %q; want %d, %q", args, code, said, row.code, urls.Replace(row.want))
			}
		})
	}
}
