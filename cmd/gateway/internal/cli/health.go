package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

const (
	// healthInterval is the pause between two attempts.
	healthInterval = 500 * time.Millisecond
	// healthAnswer is how much of an answer is read.
	healthAnswer = 4 << 10
)

func healthFlags(flags *pflag.FlagSet) {
	flags.String("rest", "", "URL of REST: http://host:port, or https:// with TLS (default port "+
		"80 or 443). Without it and --grpc, both are asked at their default addresses")
	flags.String("grpc", "", "URL of gRPC, in the same form")
	flags.String("ca-file", "", "authorities of the certificate (the system's unless given)")
	flags.Bool("any-certificate", false, "do not verify the certificate: it may have other names")
	flags.Duration("timeout", 30*time.Second, "how long to try")
}

// probe asks one port. It returns nil if the gateway is ready.
type probe func(ctx context.Context) error

// checkHealth runs the command health.
func checkHealth(c call) error {
	timeout, err := c.flags.GetDuration("timeout")
	if err != nil {
		return err
	}
	secure, err := healthTLS(c.flags)
	if err != nil {
		return err
	}
	kinds := [...]struct {
		flag  string
		ask   func(u *url.URL, secure *tls.Config, dial dialer) probe
		url   string // if none is given
		given string
	}{
		{"rest", restProbe, "http://" + config.DefaultRESTAddress, ""},
		{"grpc", grpcProbe, "http://" + config.DefaultGRPCAddress, ""},
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	isGiven := false
	for i := range kinds {
		text, err := c.flags.GetString(kinds[i].flag)
		if err != nil {
			return err
		}
		kinds[i].given, isGiven = text, isGiven || text != ""
	}
	for _, kind := range kinds {
		text := kind.given
		if !isGiven {
			text = kind.url
		}
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			return &usageError{fmt.Sprintf("health: --%s must be http:// or https:// and a host",
				kind.flag)}
		}
		if err := untilReady(ctx, kind.ask(u, secure, c.dial)); err != nil {
			return fmt.Errorf("%s at %s: %w%s", kind.flag, text, err, healthHint(err, kind.flag))
		}
		if _, err := fmt.Fprintf(c.stdout, "%s at %s is ready\n", kind.flag, text); err != nil {
			return err
		}
	}
	return nil
}

// healthHint returns a line that says what to do about a failure; empty: the error says enough.
func healthHint(err error, flag string) string {
	text := err.Error()
	other := map[string]string{"rest": "gRPC, which --grpc asks", "grpc": "REST, which --rest asks"}
	tlsOrOther := "is it a port with TLS (write https:// and --ca-file), or the port of " +
		other[flag] + "?"
	for _, row := range []struct{ sign, hint string }{
		{"x509: certificate signed by unknown authority", "name the certificate's authorities by " +
			"--ca-file, or do not verify it: --any-certificate"},
		{"x509: certificate is valid for", "use a host that the certificate names, or do not " +
			"verify it: --any-certificate"},
		{"x509:", "--ca-file names the certificate's authorities; --any-certificate does not " +
			"verify it"},
		{"HTTP request to an HTTPS server", "the port has TLS: write https://, and name the " +
			"certificate's authorities by --ca-file"},
		{"HTTP response to HTTPS client", "the port has no TLS: write http://"},
		{"first record does not look like a TLS handshake", "the port has no TLS: write http://"},
		{"malformed HTTP", "is it the port of " + other[flag] + "?"},
		{"unexpected HTTP status code", "is it the port of " + other[flag] + "?"},
		{"server preface", tlsOrOther},
		{" pipe", tlsOrOther}, // the server had closed before all was written
		{"reset by peer", tlsOrOther},
	} {
		if strings.Contains(text, row.sign) {
			return "\n" + row.hint
		}
	}
	return ""
}

func healthTLS(flags *pflag.FlagSet) (*tls.Config, error) {
	anyCertificate, err := flags.GetBool("any-certificate")
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: anyCertificate, //nolint:gosec // the operator says so
	}
	path, err := flags.GetString("ca-file")
	if err != nil || path == "" {
		return c, err
	}
	text, err := watch.Read(path)
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM([]byte(text)) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return c, nil
}

// untilReady asks until the gateway is ready or ctx ends, and returns the last reason.
func untilReady(ctx context.Context, ask probe) error {
	again := time.NewTicker(healthInterval)
	defer again.Stop()
	for last := errors.New("no answer"); ; {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // else the error is only that the time is over
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-again.C:
		}
	}
}

func restProbe(u *url.URL, secure *tls.Config, dial dialer) probe {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: secure, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &askFirst{Conn: conn, asked: make(chan struct{})}, nil
		},
	}}
	return func(ctx context.Context) error {
		url := u.JoinPath("readyz").String()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, healthAnswer))
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
		}
		return err
	}
}

// askFirst reads only after something was written. The port of gRPC speaks first: if that arrives
// before the request was sent, net/http logs it and its error does not say what was wrong.
type askFirst struct {
	net.Conn
	asked chan struct{}
	once  sync.Once
}

func (c *askFirst) Read(b []byte) (int, error) {
	<-c.asked
	return c.Conn.Read(b)
}

func (c *askFirst) Write(b []byte) (int, error) {
	c.once.Do(func() { close(c.asked) })
	return c.Conn.Write(b)
}

func (c *askFirst) Close() error {
	c.once.Do(func() { close(c.asked) })
	return c.Conn.Close()
}

func grpcProbe(u *url.URL, secure *tls.Config, dial dialer) probe {
	creds, port := insecure.NewCredentials(), "80"
	if u.Scheme == "https" {
		creds, port = credentials.NewTLS(secure), "443"
	}
	if p := u.Port(); p != "" {
		port = p
	}
	target := "passthrough:///" + net.JoinHostPort(u.Hostname(), port)
	return func(ctx context.Context) error {
		cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return dial(ctx, "tcp", address)
			}))
		if err != nil {
			return err
		}
		defer func() { _ = cc.Close() }() // it fails only if it was closed before
		resp, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{
			Service: mooringv1.DocumentService_ServiceDesc.ServiceName,
		})
		if err == nil && resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			err = fmt.Errorf("the health service says %s", resp.GetStatus())
		} else if err != nil {
			err = errors.New(status.Convert(err).Message())
		}
		return err
	}
}
