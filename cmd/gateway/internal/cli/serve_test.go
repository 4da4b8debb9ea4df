package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mooringdb/mooring/cmd/gateway/internal/cli"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// gateway is `mooring serve` as a process.
type gateway struct {
	cmd    *exec.Cmd
	GRPC   string
	REST   string
	exited chan struct{}
	// mu guards the field below.
	mu  sync.Mutex
	log bytes.Buffer
}

// start runs the gateway with kernel ports and waits for the line that says where it listens.
func start(t *testing.T, args ...string) *gateway {
	t.Helper()
	return startIn(t, nil, args...)
}

// startIn is start with more variables of the environment.
func startIn(t *testing.T, environment []string, args ...string) *gateway {
	t.Helper()
	args = append([]string{
		"serve", "--grpc-address=127.0.0.1:0", "--rest-address=127.0.0.1:0", "--drain-linger=0s", "--log-format=json",
	}, args...)
	g := &gateway{cmd: exec.Command(os.Args[0], args...), exited: make(chan struct{})}
	g.cmd.Env = append([]string{asGateway + "=1"}, environment...)
	stderr, err := g.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan struct{})
	go func() {
		defer close(g.exited)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			g.mu.Lock()
			g.log.Write(append(lines.Bytes(), '\n'))
			g.mu.Unlock()
			var line struct{ Msg, GRPC, REST string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
				g.GRPC, g.REST = line.GRPC, line.REST
				close(listening)
			}
		}
		_ = g.cmd.Wait() // its code is in ProcessState
	}()
	t.Cleanup(func() {
		_ = g.cmd.Process.Kill() // a no-op where the test has stopped it
		<-g.exited
		if t.Failed() {
			t.Logf("the gateway said:\n%s", g.said())
		}
	})
	select {
	case <-listening:
	case <-g.exited:
		t.Fatalf("the gateway ended with %d", g.cmd.ProcessState.ExitCode())
	case <-time.After(30 * time.Second):
		t.Fatal("the gateway does not listen after 30 s")
	}
	return g
}

func (g *gateway) said() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

func (g *gateway) signal(t *testing.T) { g.send(t, syscall.SIGTERM) }

func (g *gateway) send(t *testing.T, s os.Signal) {
	t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// says waits until the log contains a text.
func (g *gateway) says(t *testing.T, text string) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	late := time.After(30 * time.Second)
	for !strings.Contains(g.said(), text) {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("the log has no %q after 30 s", text)
		}
	}
}

// wait waits for the end and returns the exit code.
func (g *gateway) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-g.exited:
	case <-time.After(30 * time.Second):
		t.Fatal("the gateway is still there after 30 s")
	}
	return g.cmd.ProcessState.ExitCode()
}

// status asks once; 0 means no answer.
func (g *gateway) status(path string) int {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + g.REST + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// eventually asks /readyz until the answer has that status.
func (g *gateway) eventually(t *testing.T, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for got := g.status("/readyz"); got != want; got = g.status("/readyz") {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("GET /readyz = %d after 30 s, want %d", got, want)
		}
	}
}

func TestServe(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	file := filepath.Join(t.TempDir(), "addresses.json")
	g := start(t, "--uri", mongo.URI(), "--addresses-file", file)
	g.eventually(t, http.StatusOK)
	if got := g.status("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz = %d", got)
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var addresses struct{ GRPC, REST string }
	if err := json.Unmarshal(text, &addresses); err != nil || addresses.GRPC != g.GRPC ||
		addresses.REST != g.REST {
		t.Errorf("the addresses file says %s, the log %s and %s", text, g.GRPC, g.REST)
	}

	cc, err := grpc.NewClient("passthrough:///"+g.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	h, err := healthpb.NewHealthClient(cc).
		Check(t.Context(), &healthpb.HealthCheckRequest{Service: "mooring.v1.DocumentService"})
	if err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("Check = %v, %v", h, err)
	}

	g.signal(t)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if !strings.Contains(g.said(), "handle.keys") {
		t.Error("no warning that there is no handle key")
	}
}

// TestHangup checks that SIGHUP has the handle keys read again, and stops nothing.
func TestHangup(t *testing.T) {
	const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(key)
	g := start(t, "--uri", fakemongo.NewTCPServer(t, nil).URI(), "--handle-keys-file", file,
		"--idempotency-key", strings.TrimSpace(key), "--replica-address", "127.0.0.1:0")
	if !strings.Contains(g.said(), `"replica":"127.0.0.1:`) {
		t.Error("the line about listening does not name the port for replicas")
	}
	write("nonsense!\n")
	g.send(t, syscall.SIGHUP)
	g.says(t, "keeping the old ones")
	write(key + key)
	g.send(t, syscall.SIGHUP)
	g.says(t, "handle keys read")
	if got := g.status("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz = %d", got)
	}
	g.signal(t)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestServeWithoutMongoDB checks that the gateway starts, is not ready, becomes ready when a
// server starts, and stops.
func TestServeWithoutMongoDB(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDown(true)
	g := start(t, "--uri", mongo.URI()+"&serverSelectionTimeoutMS=100&heartbeatFrequencyMS=500")
	if got := g.status("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz = %d without MongoDB, want 200", got)
	}
	if got := g.status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz = %d without MongoDB, want 503", got)
	}
	mongo.SetDown(false)
	g.eventually(t, http.StatusOK)
	g.signal(t)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestSecondSignal checks that, with a call in flight that does not end, the first signal drains
// and the second ends the process.
func TestSecondSignal(t *testing.T) {
	reached := make(chan struct{}, 1)
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{"slow": func(
		*fakemongo.Command,
	) fakemongo.Reply {
		reached <- struct{}{}
		return fakemongo.Hang()
	}})
	g := start(t, "--uri", mongo.URI(), "--drain-timeout", "1h")
	go func() {
		resp, err := http.Post("http://"+g.REST+"/v1/databases/db:runCommand", "application/json", strings.NewReader(`{"command":{"slow":1}}`))
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	<-reached
	g.eventually(t, http.StatusOK) // or the next status would not say that it is stopping
	g.signal(t)
	g.eventually(t, http.StatusServiceUnavailable)
	g.signal(t)
	if code := g.wait(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

// TestKilled checks that a gateway that SIGKILL has ended, with a call in flight, leaves nothing
// to repair: one that starts with the same files becomes ready, serves, and adds to its audit log.
func TestKilled(t *testing.T) {
	reached := make(chan struct{}, 1)
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{
		"slow": func(*fakemongo.Command) fakemongo.Reply {
			reached <- struct{}{}
			return fakemongo.Hang()
		},
	})
	dir := t.TempDir()
	keys, addresses, log := filepath.Join(dir, "keys"), filepath.Join(dir, "addresses.json"),
		filepath.Join(dir, "audit.log")
	const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"
	if err := os.WriteFile(keys, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--uri", mongo.URI(), "--handle-keys-file", keys, "--idempotency-key-file", keys, "--replica-address", "127.0.0.1:0",
		"--addresses-file", addresses, "--audit-file", log,
	}
	run := func(g *gateway, command string) (int, error) {
		resp, err := http.Post("http://"+g.REST+"/v1/databases/db:runCommand", "application/json",
			strings.NewReader(`{"command":{"`+command+`":1}}`))
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp.StatusCode, err
	}
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	serves := func(g *gateway) {
		t.Helper()
		g.eventually(t, http.StatusOK)
		if code, err := run(g, "ping"); code != http.StatusOK || err != nil {
			t.Errorf("ping: %d, %v; want 200", code, err)
		}
		if text := read(addresses); !strings.Contains(text, g.REST) {
			t.Errorf("the addresses file has %s, want %s in it", text, g.REST)
		}
	}

	first := start(t, args...)
	serves(first)
	ended := make(chan error, 1)
	go func() {
		_, err := run(first, "slow")
		ended <- err
	}()
	<-reached
	first.send(t, syscall.SIGKILL)
	first.wait(t)
	if err := <-ended; err == nil {
		t.Error("the call in flight has an answer, want an error")
	}
	audited := read(log)

	second := start(t, args...)
	serves(second)
	second.signal(t)
	if code := second.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if text := read(log); !strings.HasPrefix(text, audited) || len(text) == len(audited) {
		t.Errorf("the audit log was\n%s\nand is\n%s\nwant it longer", audited, text)
	}
}

func TestServePortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	code, _, stderr := run(nil, "serve", "--uri", "mongodb://127.0.0.1:1", "--grpc-address=127.0.0.1:0", "--log-level=error",
		"--rest-address", taken.Addr().String())
	if code != 1 || !strings.HasPrefix(stderr, "mooring: option rest.address: ") ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("serve on a taken port = %d, %q; want 1 and one line that names rest.address",
			code, stderr)
	}
}

// TestRaiseProcs checks that one processor counts as two, unless the environment says what counts.
func TestRaiseProcs(t *testing.T) {
	for _, test := range []struct {
		before  int
		environ []string
		want    int
	}{
		{1, []string{"HOME=/"}, 2},
		{1, []string{"HOME=/", "GOMAXPROCS=1"}, 1},
		{2, nil, 2},
		{3, nil, 3},
	} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(test.before))
			cli.RaiseProcs(test.environ)
			if got := runtime.GOMAXPROCS(0); got != test.want {
				t.Errorf("%d with %v: %d, want %d", test.before, test.environ, got, test.want)
			}
		}()
	}
}
