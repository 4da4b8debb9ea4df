package attack_test

import (
	"flag"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) {
	if play() {
		return
	}
	_ = os.Setenv("GOMEMLIMIT", memory) // of the gateways; this process has started without it
	// The attacks that run at the same time mostly wait.
	_ = flag.Set("test.parallel", "16") // a flag of every test: this cannot fail
	os.Exit(suite.Run(m))
}

// rounds returns how often each whole attack is asked for; 0: the short forms, once.
func rounds() int {
	n, _ := strconv.Atoi(os.Getenv("LAB_ATTACK"))
	return n
}

func isFull() bool { return rounds() > 0 }

// of returns how often to do something: in the whole attack, and in its short form.
func of(whole, short int) int {
	if isFull() {
		return whole
	}
	return short
}

// seconds is of, for times.
func seconds(whole, short float64) time.Duration {
	n := short
	if isFull() {
		n = whole
	}
	return time.Duration(n * float64(time.Second))
}

const (
	// memory is GOMEMLIMIT of the gateway, and mostRSS what it may use at the peak.
	memory  = "192MiB"
	mostRSS = 256 << 20
	// mostRatio is how many times longer p99 may be during an attack.
	mostRatio = 5
	// patience is how long the gateway waits for a client that makes no progress.
	patience = 30 * time.Second
	// slack is how much later the tests expect the end, on a busy machine.
	slack = 30 * time.Second
)

const documents = "/mooring.v1.DocumentService/"

// target is a gateway under attack, before a server with canned replies.
type target struct {
	*gateway.Gateway
	http *http.Client
	setup
}

// attacker is the address of the attacker, which is another client than the one at 127.0.0.1.
var attacker = net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

func newTarget(g *gateway.Gateway, s setup) *target {
	return &target{g, &http.Client{Transport: &http.Transport{
		DialContext: attacker.DialContext, MaxIdleConnsPerHost: 200,
	}}, s}
}

// connect opens a connection of the attacker to a port.
func connect(t testing.TB, address string) (net.Conn, error) {
	return attacker.DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "http://"))
}

// attack is one row of the table: run attacks, and returns what became of the attacker.
type attack struct {
	name string
	run  func(t *testing.T, g *target) string
}

func all() []attack {
	return slices.Concat(grpcAttacks, restAttacks, clientAttacks, strangerAttacks)
}

// busy has the attacks that keep a processor busy. In short forms the others, which mostly wait,
// run at the same time, but each of these alone: they would take the processors from each other's
// gateways.
var busy = map[string]bool{
	"gRPC InsertMany of 1,000,000 {}": true, "REST streams not read": true,
	"100 finds of 3 MiB":             true,
	"32 finds of control characters": true, "insertMany of 1,000,000 {}": true,
	"insertMany of 100,000 {}": true, "import lines": true, "nested stages under a policy": true,
	"health watches": true, "rapid reset": true, "tokens of strangers": true,
}

// TestAttacks runs each attack on a gateway of its own, and compares what it costs: the gateway's
// memory at the peak, and the time that a findOne of another client takes.
func TestAttacks(t *testing.T) {
	var mu sync.Mutex
	table := heading
	defer func() { t.Log("\n" + table) }()
	t.Run("each", func(t *testing.T) {
		for _, a := range all() {
			t.Run(a.name, func(t *testing.T) {
				if !isFull() && !busy[a.name] {
					t.Parallel()
				}
				var results []result
				for range max(1, rounds()) {
					results = append(results, measure(t, prepared(t, a), func(g *target) string {
						return a.run(t, g)
					}))
				}
				sum := summarize(results)
				mu.Lock()
				defer mu.Unlock()
				table += sum.row(a)
				t.Log("\n" + sum.row(a)) // if a later attack ends the test, this row is there
				sum.judge(t)
				if sum.refused > 0 {
					t.Errorf("%d of %d calls of another client failed: %s", sum.refused, sum.calls,
						sum.why)
				}
			})
		}
	})
}

// prepared returns how the gateway is started for an attack.
func prepared(t *testing.T, a attack) setup {
	t.Helper()
	if prepare := setups[a.name]; prepare != nil {
		return prepare(t)
	}
	return setup{}
}

// measure runs an attack on a gateway of its own, and returns what it has cost.
func measure(t *testing.T, with setup, run func(g *target) string) (r result) {
	t.Helper()
	server := start(t, serverRole, with.server)
	uri, err := server.Line(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	started, err := gateway.Start(t.Context(), gateway.Config{
		Binary: onProcessor(t, suite.Gateway(t), "1"), URI: uri, Directory: t.TempDir(),
		Args: with.args,
	})
	if err != nil {
		t.Fatal(err)
	}
	g := newTarget(started, with)
	defer g.http.CloseIdleConnections()
	defer func() { _ = g.Stop(time.Second) }()
	if isFull() {
		pin(t, os.Getpid(), "0")
	}
	direct := strings.Trim(strings.TrimPrefix(uri, "mongodb://"), "/")
	direct, err = url.QueryUnescape(direct)
	if err != nil {
		t.Fatal(err)
	}
	client := start(t, clientRole, strings.Join([]string{g.GRPC, g.REST, direct, with.key}, " "))
	if _, err := client.Line(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-time.After(seconds(1, 0.3)) // until all is warm
	ask(t, client)
	<-time.After(seconds(5, 0.5))
	r.alone = p99(ask(t, client).Times)
	begun, before := time.Now(), cpu(t, g)
	r.attacker = run(g)
	during := ask(t, client)
	r.share = float64(cpu(t, g)-before) / float64(time.Since(begun))
	r.during, r.direct = p99(during.Times), p99(during.Direct)
	r.calls, r.refused = len(during.Times), len(during.Failed)
	if r.refused > 0 {
		r.why = during.Failed[0]
	}
	if r.peak, err = proc.PeakRSS(g.Pid()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.Done():
		t.Errorf("the gateway has ended: %s", g.Tail())
	default:
	}
	return r
}

func cpu(t *testing.T, g *target) time.Duration {
	t.Helper()
	used, err := proc.CPU(g.Pid())
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// onProcessor returns a program that runs another one on a processor, in whole attacks.
func onProcessor(t *testing.T, binary, processor string) string {
	t.Helper()
	if !isFull() {
		return binary
	}
	script := filepath.Join(t.TempDir(), "run")
	text := "#!/bin/sh\nexec taskset -c " + processor + " " + binary + " \"$@\"\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// pin binds a process to a processor.
func pin(t *testing.T, pid int, processor string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "taskset", "-a", "-c", "-p", processor,
		strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		t.Fatalf("taskset: %v: %s", err, out)
	}
}
