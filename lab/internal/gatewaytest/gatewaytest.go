// Package gatewaytest gives lab's tests what they run against, as processes: the gateway, built
// without -race from ../cmd/gateway, and a MongoDB server behind it. It does not judge what they
// answer.
//
// MOORING_TEST_URI names the server. Without it, the server is the embedded database. Binaries are
// built once per test run; LAB_GATEWAY_BIN and LAB_EMBEDDED_BIN name ones that are there already.
package gatewaytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooringdb/mooring/core/connstring"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/contract/safeguard"
	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// maxReceive lets a client take the largest document that there is, with room for its frame.
const maxReceive = 17 << 20

// Suite holds what the tests of one package share. It is made once, in TestMain:
//
//	var suite = gatewaytest.New()
//
//	func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }
type Suite struct {
	gateway  func() (string, error)
	embedded func() (string, error)
	server   func() (string, error)

	// mu guards the fields below.
	mu  sync.Mutex
	dir string
	db  *proc.Process
}

// New makes a suite; nothing is built or started before a test asks for it.
func New() *Suite {
	s := &Suite{}
	s.gateway = sync.OnceValues(func() (string, error) {
		return s.build("LAB_GATEWAY_BIN", ".", "./cmd/gateway")
	})
	s.embedded = sync.OnceValues(func() (string, error) {
		return s.build("LAB_EMBEDDED_BIN", "lab", "./cmd/embedded")
	})
	s.server = sync.OnceValues(s.startServer)
	return s
}

// Without returns a suite of its own for a test, whose gateway is built without a safeguard
// (internal/contract/safeguard).
func Without(t testing.TB, name string) *Suite {
	t.Helper()
	off, err := safeguard.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := safeguard.Overlay(root, t.TempDir(), []safeguard.Safeguard{off})
	if err != nil {
		t.Fatal(err)
	}
	s := New()
	s.gateway = sync.OnceValues(func() (string, error) {
		return s.build("", ".", "./cmd/gateway", "-overlay", overlay)
	})
	t.Cleanup(s.end)
	return s
}

// Run runs the tests and then stops and removes what they shared.
func (s *Suite) Run(m *testing.M) int {
	defer s.end()
	return m.Run()
}

// end stops and removes what the tests shared.
func (s *Suite) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db != nil {
		_ = s.db.Stop(10 * time.Second)
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// IsEmbedded says whether the server is the embedded database, which lacks much.
func (s *Suite) IsEmbedded() bool { return os.Getenv("MOORING_TEST_URI") == "" }

// URI returns the connection string of the server.
func (s *Suite) URI(t testing.TB) string { return must(t, s.server) }

// Address returns host and port of the server, the first one if there are several.
func (s *Suite) Address(t testing.TB) string {
	t.Helper()
	cfg, err := connstring.Parse(s.URI(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(cfg.Hosts[0])
}

// Direct connects the official driver to the server, past the gateway: the witness of what is
// really there.
func (s *Suite) Direct(t testing.TB) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(s.URI(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
	return c
}

// Database gives the name of a database that no other test uses, and drops it at the end.
func (s *Suite) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("mooring_%x", time.Now().UnixNano())
	c := s.Direct(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Database(name).Drop(ctx); err != nil {
			t.Logf("drop %s: %v", name, err)
		}
	})
	return name
}

// Gateway builds the gateway, if that was not done yet, and gives the binary's path.
func (s *Suite) Gateway(t testing.TB) string { return must(t, s.gateway) }

// Embedded builds the embedded database, if that was not done yet, and gives the binary's path.
func (s *Suite) Embedded(t testing.TB) string { return must(t, s.embedded) }

// Key makes an API key of a principal, and returns it and its line for the file of keys.
func (s *Suite) Key(t testing.TB, principal string) (key, line string) {
	t.Helper()
	out, err := exec.Command(s.Gateway(t), "key", "api", "new", "--principal", principal).Output()
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(text), " ")
		switch name {
		case "key":
			key = strings.TrimSpace(value)
		case "line":
			line = strings.TrimSpace(value)
		}
	}
	return key, line
}

// Command builds one of lab's own commands and gives the binary's path.
func (s *Suite) Command(t testing.TB, name string) string {
	return must(t, func() (string, error) { return s.build("", "lab", "./cmd/"+name) })
}

func must(t testing.TB, get func() (string, error)) string {
	t.Helper()
	v, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Gateway represents a running gateway.
type Gateway struct {
	*gateway.Gateway
	killed bool
}

// Kill ends the gateway as a crash does, and waits for its end.
func (g *Gateway) Kill(t testing.TB) {
	t.Helper()
	g.killed = true
	if err := g.Gateway.Kill(); err != nil {
		t.Fatal(err)
	}
	<-g.Done()
}

// Start starts a gateway before the server that uri names, and stops it at the end of the test.
// Its log is printed when the test fails.
func (s *Suite) Start(t testing.TB, uri string, args ...string) *Gateway {
	t.Helper()
	return s.StartLogging(t, nil, uri, args...)
}

// StartLogging starts a gateway as Start does, and writes all of its log to log, too.
func (s *Suite) StartLogging(
	t testing.TB, log io.Writer, uri string, args ...string,
) *Gateway {
	t.Helper()
	started, err := gateway.Start(t.Context(), gateway.Config{
		Binary:    s.Gateway(t),
		URI:       uri,
		Directory: t.TempDir(),
		Log:       log,
		Args:      append([]string{"--debug-address", "127.0.0.1:0"}, args...),
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{Gateway: started}
	t.Cleanup(func() {
		if err := g.Stop(gateway.StartTime); err != nil && !g.killed {
			t.Errorf("stop the gateway: %v", err)
		}
		if t.Failed() {
			t.Logf("end of the gateway's log:\n%s", g.Tail())
		}
	})
	return g
}

// Dial connects a gRPC client that takes messages of every size.
func (g *Gateway) Dial(t testing.TB, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
	}, opts...)
	c, err := grpc.NewClient(g.GRPC, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Documents connects a client of the DocumentService.
func (g *Gateway) Documents(t testing.TB) mooringv1.DocumentServiceClient {
	t.Helper()
	return mooringv1.NewDocumentServiceClient(g.Dial(t))
}

func (s *Suite) startServer() (string, error) {
	if uri := os.Getenv("MOORING_TEST_URI"); uri != "" {
		return uri, nil
	}
	binary, err := s.embedded()
	if err != nil {
		return "", err
	}
	p, err := proc.Start(proc.Config{Path: binary})
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.db = p
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), gateway.StartTime)
	defer cancel()
	return p.Line(ctx)
}

// build builds a program with the flags that make uses, so that they share Go's build cache.
func (s *Suite) build(env, module, pkg string, flags ...string) (string, error) {
	if path := os.Getenv(env); env != "" && path != "" {
		return filepath.Abs(path)
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir, err := s.binaries()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	args := append([]string{"build", "-trimpath", "-o", path}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = filepath.Join(root, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// binaries returns the directory of the programs that were built.
func (s *Suite) binaries() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "mooring-lab-")
		if err != nil {
			return "", err
		}
		s.dir = dir
	}
	return s.dir, nil
}

// Root returns the directory of the product: the nearest one above the working directory that
// holds lab/.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "lab", "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside a checkout of the product")
		}
		dir = parent
	}
}
