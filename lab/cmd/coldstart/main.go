// Command coldstart measures what one read costs a function that starts cold: as a request to the
// gateway over HTTP/1.1 without keep-alive, and through a driver connection of its own that logs in
// by SCRAM-SHA-256.
//
//	coldstart --gateway ../bin/mooring
//
// Each start is a new process, which reads one document and ends. The two kinds take turns. The
// time is the function's own: from the first statement of the function to the document, without
// the start of the process. The server answers at once, so what remains is the way to it. A third
// kind sends the same request to an HTTP server that has the answer ready: the gateway's share is
// what the first kind takes more than that. The runs are repeated with a delay before the gateway
// and before the server, because a function is seldom on the host of the database.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/loginbench"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// roles are what the program does under a first argument that is none of its flags.
var roles = map[string]func(context.Context, []string) error{
	loginbench.Role: loginbench.Serve,

	"function-http":   report(overHTTP),
	"function-driver": report(overDriver),
}

// start holds what one start of a function took.
type start struct {
	Elapsed   time.Duration // until the document is there
	Processor time.Duration // of the process, until then
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "coldstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if role, ok := roles[args[0]]; ok {
			return role(ctx, args[1:])
		}
	}
	flags := flag.NewFlagSet("coldstart", flag.ContinueOnError)
	binary := flags.String("gateway", "../bin/mooring", "the gateway's `binary`")
	starts := flags.Int("starts", 300, "how many functions of each kind start")
	delays := flags.String("delays", "0s,1ms,10ms", "`times` that the network takes one way")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *starts < 1 {
		return errors.New("--starts: want at least 1")
	}
	for text := range strings.SplitSeq(*delays, ",") {
		delay, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("--delays: %w", err)
		}
		if err := measure(ctx, os.Stdout, *binary, *starts, delay); err != nil {
			return err
		}
	}
	return nil
}

// measure prints what the functions take if the network takes delay in each direction, between
// the function and what it calls. The gateway stands beside the server.
func measure(
	ctx context.Context, w io.Writer, binary string, starts int, delay time.Duration,
) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server, err := proc.Start(proc.Config{Path: self, Args: []string{loginbench.Role}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(time.Second) }()
	address, err := server.Line(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mooring-coldstart-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	g, err := gateway.Start(ctx, gateway.Config{
		Binary: binary, URI: loginbench.URI(address), Directory: dir,
	})
	if err != nil {
		return err
	}
	defer func() { _ = g.Stop(10 * time.Second) }()

	farGateway, err := relay(ctx, strings.TrimPrefix(g.REST, "http://"), delay)
	if err != nil {
		return err
	}
	defer func() { _ = farGateway.Close() }()
	farServer, err := relay(ctx, address, delay)
	if err != nil {
		return err
	}
	defer func() { _ = farServer.Close() }()
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"document":{"_id":1,"total":42}}`)
	}))
	defer ready.Close()
	farReady, err := relay(ctx, ready.Listener.Addr().String(), delay)
	if err != nil {
		return err
	}
	defer func() { _ = farReady.Close() }()
	kinds := []struct {
		name, role, argument string
		took                 []start
	}{
		{"gateway", "function-http", "http://" + farGateway.Addr().String(), nil},
		{"ready answer", "function-http", "http://" + farReady.Addr().String(), nil},
		{"own driver", "function-driver", loginbench.URI(farServer.Addr().String()), nil},
	}
	for n := range starts + 1 {
		for i := range kinds {
			took, err := function(ctx, self, kinds[i].role, kinds[i].argument)
			if err != nil {
				return fmt.Errorf("%s: %w", kinds[i].role, err)
			}
			if n > 0 { // the first ones fill the gateway's pool
				kinds[i].took = append(kinds[i].took, took)
			}
		}
	}
	fmt.Fprintf(w, "%d starts of each kind, network %v one way\n", starts, delay)
	for _, k := range kinds {
		elapsed := func(s start) time.Duration { return s.Elapsed }
		processor := func(s start) time.Duration { return s.Processor }
		fmt.Fprintf(w, "  %-12s p50 %8v  p99 %8v  processor of the function p50 %8v\n", k.name,
			percentile(k.took, elapsed, 50), percentile(k.took, elapsed, 99),
			percentile(k.took, processor, 50))
	}
	return nil
}

// percentile returns the value that p percent of the starts do not exceed, in steps of 10 µs.
func percentile(all []start, of func(start) time.Duration, p int) time.Duration {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b start) int { return cmp.Compare(of(a), of(b)) })
	return of(sorted[min(len(sorted)-1, len(sorted)*p/100)]).Round(10 * time.Microsecond)
}

// function starts a function as a process and returns what it took.
func function(ctx context.Context, self, role, argument string) (start, error) {
	cmd := exec.CommandContext(ctx, self, role, argument)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return start{}, err
	}
	var s start
	return s, json.Unmarshal(out, &s)
}

// report returns a role: it reads a document and prints what that took.
func report(read func(context.Context, string) error) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return errors.New("want one argument, where to read")
		}
		begin, before := time.Now(), processor()
		if err := read(ctx, args[0]); err != nil {
			return err
		}
		s := start{Elapsed: time.Since(begin), Processor: processor() - before}
		return json.NewEncoder(os.Stdout).Encode(s)
	}
}

func overHTTP(ctx context.Context, url string) error {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		url+"/v1/databases/shop/collections/orders/documents:findOne",
		strings.NewReader(`{"filter": {"_id": 1}}`))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := c.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || !strings.Contains(string(body), `"total"`) {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}

func overDriver(ctx context.Context, uri string) error {
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	found, err := c.Database("shop").Collection("orders").FindOne(ctx,
		bson.D{{Key: "_id", Value: 1}}).Raw()
	if err != nil {
		return err
	}
	if _, err := found.LookupErr("total"); err != nil {
		return err
	}
	return nil // the process ends, as a function's does: nothing is left to disconnect from
}

// relay returns a listener whose connections reach address, with everything that they carry late
// by delay in each direction, the first packet of a connection included.
func relay(ctx context.Context, address string, delay time.Duration) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go connect(ctx, near, address, delay)
		}
	}()
	return l, nil
}

// connect carries one connection. A real network also delays the answer to the first packet of a
// connection, so what the caller sends first waits for one way more in each direction.
func connect(ctx context.Context, near net.Conn, address string, delay time.Duration) {
	defer near.Close()
	far, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer far.Close()
	wait(ctx, 2*delay)
	done := make(chan struct{})
	go func() {
		defer close(done)
		late(ctx, near, far, delay)
		_ = near.Close()
	}()
	late(ctx, far, near, delay)
	_ = far.Close()
	<-done
}

// late copies from one connection to the other and holds each piece back for delay. Both
// protocols take turns, so pieces do not queue up.
func late(ctx context.Context, to io.Writer, from io.Reader, delay time.Duration) {
	r := bufio.NewReader(from)
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			wait(ctx, delay)
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
