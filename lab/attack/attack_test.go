package attack_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) {
	_ = os.Setenv("GOMEMLIMIT", memory) // of the gateways; this process has started without it
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
	t *testing.T
}

// attack is one row of the table: run attacks, and returns what became of the attacker.
type attack struct {
	name string
	run  func(t *testing.T, g *target) string
}

// TestAttacks runs each attack on a gateway of its own, and compares what it costs: the gateway's
// memory at the peak, and the time that a findOne of another client takes.
func TestAttacks(t *testing.T) {
	var mu sync.Mutex
	table := fmt.Sprintf("%-34s %-9s %-9s %-9s %-6s %s\n", "attack", "peak MiB", "p99 alone",
		"p99", "ratio", "the attacker")
	defer func() { t.Log("\n" + table) }()
	t.Run("each", func(t *testing.T) {
		for _, a := range attacks {
			t.Run(a.name, func(t *testing.T) {
				if !isFull() {
					t.Parallel() // most of them wait
				}
				var results []result
				for range max(1, rounds()) {
					results = append(results, measure(t, a))
				}
				slices.SortFunc(results, func(a, b result) int { return int(a.peak - b.peak) })
				r := results[len(results)/2]
				slices.SortFunc(results, func(a, b result) int {
					return int((a.ratio() - b.ratio()) * 1000)
				})
				ratio := results[len(results)/2]
				mu.Lock()
				defer mu.Unlock()
				table += fmt.Sprintf("%-34s %-9d %-9s %-9s %-6.1f %s\n", a.name, r.peak>>20,
					ratio.alone.Round(10*time.Microsecond), ratio.during.Round(10*time.Microsecond),
					ratio.ratio(), r.attacker)
				if r.peak > mostRSS {
					t.Errorf("the gateway used %d MiB at the peak, want at most %d", r.peak>>20,
						mostRSS>>20)
				}
				if isFull() && ratio.ratio() > mostRatio {
					t.Errorf("p99 was %.1f times that without an attack, want at most %d",
						ratio.ratio(), mostRatio)
				}
			})
		}
	})
}

// result is what one run of an attack came to.
type result struct {
	peak          int64 // bytes
	alone, during time.Duration
	attacker      string
}

func (r result) ratio() float64 { return float64(r.during) / float64(r.alone) }

func measure(t *testing.T, a attack) (r result) {
	t.Helper()
	server, err := canned.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	started, err := gateway.Start(t.Context(), gateway.Config{
		Binary: suite.Gateway(t), URI: server.URI(), Directory: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &target{started, t}
	defer func() { _ = g.Stop(10 * time.Second) }()
	if isFull() {
		pin(t, os.Getpid(), "0")
		pin(t, g.Pid(), "1")
	}
	probe := newProbe(t, g.GRPC)
	probe.run(t.Context(), of(3, 1), func() {}) // until all is warm
	r.alone = probe.run(t.Context(), of(5, 1), func() {})
	r.during = probe.run(t.Context(), 0, func() { r.attacker = a.run(t, g) })
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

// pin binds a process to a processor.
func pin(t *testing.T, pid int, processor string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "taskset", "-a", "-c", "-p", processor,
		strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		t.Fatalf("taskset: %v: %s", err, out)
	}
}

// probe is the client beside the attacker.
type probe struct {
	client mooringv1.DocumentServiceClient
	t      *testing.T
}

func newProbe(t *testing.T, address string) *probe {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return &probe{mooringv1.NewDocumentServiceClient(cc), t}
}

// run makes a call each 20 ms while work runs, and for so many seconds at least, and returns the
// p99 of their times. A call that waits makes no other one wait.
func (p *probe) run(ctx context.Context, seconds int, work func()) time.Duration {
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		work()
		<-time.After(time.Duration(seconds) * time.Second)
	}()
	var mu sync.Mutex
	var times []time.Duration
	var failed []error
	var calls sync.WaitGroup
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-stop:
			running = false
		case <-tick.C:
			calls.Go(func() {
				begun := time.Now()
				_, err := p.client.FindOne(ctx,
					&mooringv1.FindOneRequest{Database: "d", Collection: "orders_1"})
				mu.Lock()
				defer mu.Unlock()
				times = append(times, time.Since(begun))
				if err != nil {
					failed = append(failed, err)
				}
			})
		}
	}
	calls.Wait()
	if len(failed) > 0 {
		p.t.Errorf("%d of %d calls of another client failed: %v", len(failed), len(times),
			failed[0])
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)*99/100]
}

var attacks = []attack{
	{"connections", func(t *testing.T, g *target) string {
		n, refused := of(6000, 2500), 0
		for i := range n {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", g.GRPC)
			if err != nil {
				refused++
				continue
			}
			defer c.Close()
			if i < n-100 {
				continue
			}
			_ = c.SetReadDeadline(time.Now().Add(slack))
			if _, err := c.Read(make([]byte, 1)); err != nil {
				refused++
			}
		}
		if refused == 0 {
			t.Errorf("none of %d connections was refused", n)
		}
		return fmt.Sprintf("%d connections, the last ones refused", n)
	}},
	{"headers of calls, and no more", func(t *testing.T, g *target) string {
		n, conns := of(100_000, 5_000), of(40, 4)
		var clients []*rawClient
		for range conns {
			clients = append(clients, dial(t, g.GRPC, 1<<20))
		}
		for i := range n {
			clients[i%conns].open(documents + "Find")
		}
		deadline := time.Now().Add(patience + slack)
		ended := 0
		for time.Now().Before(deadline) && ended < n {
			<-time.After(100 * time.Millisecond)
			ended = 0
			for _, c := range clients {
				select {
				case <-c.done:
					ended += n / conns
				default:
					ended += c.over()
				}
			}
		}
		if ended < n {
			t.Errorf("%d of %d calls have ended", ended, n)
		}
		return fmt.Sprintf("%d calls, all ended", n)
	}},
	{"responses that are not taken", func(t *testing.T, g *target) string {
		c := dial(t, g.GRPC, 0)
		n := of(60, 4)
		for range n {
			c.call(t, documents+"Find", &mooringv1.FindRequest{Database: "d", Collection: "docs_1_15500000"})
		}
		if !c.isCut(patience + slack) {
			t.Error("the connection goes on")
		}
		return fmt.Sprintf("%d responses of 15.5 MB, cut", n)
	}},
	{"half messages", func(t *testing.T, g *target) string {
		n, size := of(12, 2), of(64<<20, 8<<20)
		c := dial(t, g.GRPC, 1<<20)
		piece := make([]byte, 16<<10)
		for range n {
			id, ok := c.open(documents + "InsertMany")
			ok = ok && c.write(func(w *http2.Framer) error { return w.WriteData(id, false, prefix(size)) })
			// It sends without regard to windows: the gateway resets what is beyond them.
			for left := size - 1; ok && left > 0; left -= len(piece) {
				ok = c.write(func(w *http2.Framer) error { return w.WriteData(id, false, piece[:min(left, len(piece))]) })
			}
		}
		deadline := time.Now().Add(patience + slack)
		for c.over() < n && time.Now().Before(deadline) && !c.isCut(100*time.Millisecond) {
		}
		if c.over() < n && !c.isCut(0) {
			t.Errorf("%d of %d calls have ended", c.over(), n)
		}
		return fmt.Sprintf("%d messages of %d MiB less a byte, ended", n, size>>20)
	}},
	{"bodies that stop", func(t *testing.T, g *target) string {
		n := of(1000, 50)
		var conns []net.Conn
		for range n {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(g.REST, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, "POST /v1/databases/d/collections/orders_1/documents:find HTTP/1.1\r\nHost: localhost\r\n"+
				"Content-Type: application/json\r\nContent-Length: 67108863\r\n\r\n{")
			conns = append(conns, c)
		}
		// Those that there is room for have their time, the others are refused before.
		answers := map[string]int{}
		for _, c := range conns {
			_ = c.SetReadDeadline(time.Now().Add(patience + slack))
			head := make([]byte, len("HTTP/1.1 408"))
			_, err := io.ReadFull(c, head)
			status := strings.TrimPrefix(string(head), "HTTP/1.1 ")
			if err != nil || status != "408" && status != "429" && status != "503" {
				t.Fatalf("the gateway answers %q, %v, want 408, 429 or 503", head, err)
			}
			answers[status]++
		}
		if answers["408"] == 0 {
			t.Error("none has been waited for")
		}
		return fmt.Sprintf("%d bodies of 64 MiB, by status: %v", n, answers)
	}},
	{"clients that go away", func(t *testing.T, g *target) string {
		n := of(140, 140)
		var calls sync.WaitGroup
		for range n {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.REST+"/v1/databases/d:runCommand", strings.NewReader(`{"command": {"find": "slow_60000"}}`))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_ = resp.Body.Close()
				}
			})
		}
		calls.Wait()
		http.DefaultClient.CloseIdleConnections()
		return fmt.Sprintf("%d commands that hang, gone after 40 ms", n)
	}},
	{"streams that are not read", func(t *testing.T, g *target) string {
		n := of(60, 4)
		for range n {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(g.REST, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, "POST /v1/databases/d/collections/docs_100_15500000/documents:streamFind HTTP/1.1\r\nHost: localhost\r\n"+
				"Content-Type: application/json\r\nAccept: application/x-ndjson\r\nContent-Length: 2\r\n\r\n{}")
		}
		<-time.After(time.Duration(of(20, 3)) * time.Second)
		return fmt.Sprintf("%d streams of 15.5 MB documents for %d s", n, of(20, 3))
	}},
	{"finds of 3 MiB", func(t *testing.T, g *target) string {
		n := of(100, 10)
		var calls sync.WaitGroup
		var mu sync.Mutex
		outcomes := map[int]int{}
		for range n {
			calls.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.REST+"/v1/databases/d/collections/docs_3000_1024/documents?batchSize=3000", nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				mu.Lock()
				defer mu.Unlock()
				outcomes[resp.StatusCode]++
			})
		}
		calls.Wait()
		http.DefaultClient.CloseIdleConnections()
		return fmt.Sprintf("%d at once, by status: %v", n, outcomes)
	}},
	{"a body of 1,000,000 documents", func(t *testing.T, g *target) string {
		n := of(1_000_000, 100_000)
		body := `{"documents": [{}` + strings.Repeat(`,{}`, n-1) + `]}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.REST+"/v1/databases/d/collections/orders_1/documents:insertMany", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		return fmt.Sprintf("%d documents: %d", n, resp.StatusCode)
	}},
}
