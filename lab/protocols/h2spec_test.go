package protocols

import (
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// TestH2spec checks that the listeners fail no case of h2spec that a plain server of the library
// below them passes.
func TestH2spec(t *testing.T) {
	h2spec := suite(t, "github.com/summerwind/h2spec/cmd/h2spec")
	secure := selfSigned(t)
	ours := stack{register: registerInterop, services: []string{interopService}}.serve(t)
	within := stack{
		register: registerInterop, services: []string{interopService}, tls: secure,
		rest: true,
	}.serve(t)

	t.Run("gRPC", func(t *testing.T) {
		judge(t, h2spec, plainGRPC(t), ours.GRPC)
	})
	t.Run("REST", func(t *testing.T) {
		judge(t, h2spec, plainHTTP(t), within.REST, "--tls", "--insecure")
	})
}

// judge runs h2spec on both servers, and compares.
func judge(t *testing.T, h2spec, plain, ours string, options ...string) {
	t.Parallel()
	var theirs, mine map[string]bool
	var both sync.WaitGroup
	both.Go(func() { theirs = runH2spec(t, h2spec, plain, options) })
	both.Go(func() { mine = runH2spec(t, h2spec, ours, options) })
	both.Wait()
	var failed int
	for name, passed := range mine {
		alone := func(address string) int { return passesAlone(t, h2spec, address, name, options) }
		switch {
		case passed || theirs[name] && alone(ours) > 0:
			continue
		case theirs[name] && alone(plain) == attempts:
			t.Errorf("fails, and a plain server passes: %s", name)
		default:
			t.Logf("fails, as a plain server does: %s", name)
		}
		failed++
	}
	failedThere := 0
	for _, passed := range theirs {
		if !passed {
			failedThere++
		}
	}
	t.Logf("%d cases: %d fail, %d of a plain server", len(mine), failed, failedThere)
	if len(mine) < leastCases || len(mine) != len(theirs) {
		t.Errorf("%d cases and %d of a plain server: not all have run", len(mine), len(theirs))
	}
}

// attempts is how often a case runs alone.
const attempts = 5

// passesAlone returns in how many attempts a case passes alone. In some cases h2spec sends the next
// frame while the server answers the last one: any server passes them now and then.
func passesAlone(t *testing.T, h2spec, address, name string, options []string) (passes int) {
	t.Helper()
	id, _, _ := strings.Cut(name, ": ")
	for range attempts {
		for _, passed := range runH2spec(t, h2spec, address, append(slices.Clone(options), id)) {
			if passed {
				passes++
			}
		}
	}
	return passes
}

// leastCases is how many cases h2spec 2.2.1 has at least.
const leastCases = 145

// report is the part of h2spec's report that is read.
type report struct {
	Suites []struct {
		Package string `xml:"package,attr"`
		ID      string `xml:"id,attr"`
		Cases   []struct {
			Name    string    `xml:"classname,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// runH2spec returns the names of all cases, and whether they pass.
func runH2spec(t *testing.T, h2spec, address string, options []string) map[string]bool {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.xml")
	args := slices.Concat([]string{"-h", host, "-p", port, "-j", file, "-o", "1"}, options)
	out, err := exec.CommandContext(t.Context(), h2spec, args...).CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err) // it exits with 1 if a case fails
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r report
	if err := xml.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	passed := map[string]bool{}
	for _, s := range r.Suites {
		for i, c := range s.Cases {
			passed[fmt.Sprintf("%s/%d: %s", s.Package, i+1, c.Name)] = c.Failure == nil &&
				c.Error == nil && c.Skipped == nil
		}
	}
	return passed
}

const interopService = "grpc.testing.TestService"

func registerInterop(r grpc.ServiceRegistrar) {
	testpb.RegisterTestServiceServer(r, interop.NewTestServer())
}

// plainGRPC serves with grpc-go alone.
func plainGRPC(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.MaxConcurrentStreams(maxStreams))
	registerInterop(g)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(l)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-served
	})
	return l.Addr().String()
}

// plainHTTP serves with net/http alone.
func plainHTTP(t *testing.T) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.EnableHTTP2 = true
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// selfSigned returns the configuration of a listener for loopback, as the gateway's is.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: s.TLS.Certificates,
	}
}
