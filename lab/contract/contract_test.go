package contract_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/contract"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

const (
	// few is how many operations a client makes, unless LAB_CONTRACT says otherwise.
	few = 40
	// wait is the longest wait of the machine.
	wait = 5 * time.Millisecond
)

// debian is the Python that has Debian's packages, of which the client needs httpx.
const debian = "/usr/bin/python3"

// TestClients makes operations through each client.
func TestClients(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	count := few
	if text := os.Getenv("LAB_CONTRACT"); text != "" {
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatalf("LAB_CONTRACT: %v", err)
		}
	}
	script := func(name string) string { return filepath.Join("testdata", name) }
	for _, c := range []struct {
		name    string
		program []string
		env     string
		ways    []contract.Way
	}{
		{
			"TypeScript",
			[]string{"node", script("hands.mjs")},
			"CLIENT=" + filepath.Join(root, "clients", "typescript", "index.js"), nil,
		},
		{
			"Python",
			[]string{debian, "-B", script("hands.py")},
			"PYTHONPATH=" + filepath.Join(root, "clients", "python"),
			[]contract.Way{
				contract.Plain, contract.Key, contract.Statement, contract.Commit, contract.Run,
				contract.Page, contract.Stream,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(c.program[0]); err != nil {
				t.Skipf("%s is not installed", c.program[0])
			}
			if c.program[0] == debian && exec.Command(debian, "-c", "import httpx").Run() != nil {
				t.Skipf("%s has no httpx: apt-get install python3-httpx", debian)
			}
			d := deployment.ListenUnrecorded(t, deployment.ReplicaSet, "8.0.0")
			// A server that refuses has not changed: its hello tells nothing before the next check.
			g := suite.Start(t, d.URI(false, nil)+"&heartbeatFrequencyMS=500")
			cable := newCable(t, strings.TrimPrefix(g.REST, "http://"))
			hands := contract.Hands{
				Client: start(t, c.program, c.env, "MOORING_REST=http://"+cable.address()),
				Cut:    cable.cut,
			}
			report := contract.Perform(t.Context(), contract.Config{
				Seed: 1, Deployment: d, Hands: []contract.Hands{hands}, Operations: count,
				Ways: c.ways, Wait: wait,
			})
			t.Log("\n" + report.String())
			for _, line := range report.Violations() {
				t.Error(line)
			}
		})
	}
}

// program is a client in a process of its own.
type program struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

// start starts a program, which ends with the test.
func start(t *testing.T, command []string, env ...string) *program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &program{t, in, bufio.NewScanner(out)}
}

// Do makes a call.
func (p *program) Do(_ context.Context, call contract.Call) (answer contract.Answer) {
	line, err := json.Marshal(call)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	if err == nil && !p.out.Scan() {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = json.Unmarshal(p.out.Bytes(), &answer)
	}
	if err != nil {
		p.t.Errorf("%s: %v", line, err)
		answer.Failure = &contract.Failure{Reason: "Program", Retry: "never", Message: err.Error()}
	}
	return answer
}

// cable is a client's way to the gateway.
type cable struct {
	listener net.Listener
	gateway  string
	running  sync.WaitGroup

	// mu guards the fields below.
	mu   sync.Mutex
	open map[net.Conn]bool // the client's connections
	left int               // bytes from the gateway before they are cut; below 0: no end
}

func newCable(t *testing.T, gateway string) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{listener: listener, gateway: gateway, open: map[net.Conn]bool{}, left: -1}
	c.running.Go(c.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		c.cut(0)
		c.running.Wait()
	})
	return c
}

func (c *cable) address() string { return c.listener.Addr().String() }

func (c *cable) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		gateway, err := net.Dial("tcp", c.gateway)
		if err != nil {
			_ = client.Close()
			continue
		}
		c.mu.Lock()
		c.open[client] = true
		c.mu.Unlock()
		c.running.Go(func() {
			_, _ = io.Copy(gateway, client)
			_ = gateway.Close()
		})
		c.running.Go(func() {
			_, _ = io.Copy(&cuttable{c, client}, gateway)
			_ = client.Close()
			c.mu.Lock()
			delete(c.open, client)
			c.mu.Unlock()
		})
	}
}

// cut closes the connections that are open after so many more bytes from the gateway.
func (c *cable) cut(after int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left = after; after == 0 {
		c.closeLocked()
	}
}

func (c *cable) closeLocked() {
	for client := range c.open {
		_ = client.Close()
	}
	c.left = -1
}

// cuttable writes to a client what comes from the gateway.
type cuttable struct {
	cable  *cable
	client net.Conn
}

func (w *cuttable) Write(b []byte) (int, error) {
	c := w.cable
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < 0 || len(b) < c.left {
		if c.left >= 0 {
			c.left -= len(b)
		}
		return w.client.Write(b)
	}
	_, _ = w.client.Write(b[:c.left])
	c.closeLocked()
	return 0, net.ErrClosed
}
