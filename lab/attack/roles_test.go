package attack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// The test program also runs as the MongoDB server behind the gateway, and as the client beside the
// attacker. As processes of their own, with a higher priority, they lose no time to the attacker,
// with which they share a processor: what the client measures is the gateway.
const (
	roleVariable = "LAB_ATTACK_ROLE"
	serverRole   = "server"
	clientRole   = "client"
	// shardedServer, as the target of a server, makes it a mongos, which has transactions.
	shardedServer = "sharded"
	// targetVariable holds the addresses of gRPC, REST and the server for the client, and its key.
	targetVariable = "LAB_ATTACK_TARGET"
)

// play runs the process in its role, until it is stopped, and reports whether it has one.
func play() bool {
	switch os.Getenv(roleVariable) {
	case serverRole:
		serve()
	case clientRole:
		if err := call(os.Getenv(targetVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	default:
		return false
	}
	return true
}

// start starts this program in a role.
func start(t *testing.T, role, target string) *proc.Process {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path, args := own, []string(nil)
	if isFull() {
		path, args = "taskset", []string{"-c", "0", "nice", "-n", "-19", own}
	}
	p, err := proc.Start(proc.Config{
		Path: path, Args: args,
		Env: append(os.Environ(), roleVariable+"="+role, targetVariable+"="+target,
			"GOMEMLIMIT=off"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(slack) })
	return p
}

// serve serves canned replies, and prints the connection string. It has a thread for each of its
// connections, as a real server has, so that no reply waits until another one is written.
func serve() {
	runtime.GOMAXPROCS(serverThreads)
	s, err := canned.Listen("127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	s.SetSharded(os.Getenv(targetVariable) == shardedServer)
	fmt.Println(s.URI()) //nolint:forbidigo // for the process that started this one
	<-make(chan struct{})
}

const (
	// every is the time between two calls of the client.
	every = 10 * time.Millisecond
	// waitsLong is the time after which a call that has not ended counts as one that has.
	waitsLong = 100 * time.Millisecond
	// serverThreads is as many as the gateway has connections.
	serverThreads = 128
)

// sample is what the client has measured since the last time that it was asked.
type sample struct {
	Times  []time.Duration
	Direct []time.Duration // of the same command at the server, without the gateway
	Failed []string
}

// p99 returns the time that 99 of 100 calls did not exceed.
func p99(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[int(math.Ceil(float64(len(times))*0.99))-1]
}

// call makes a findOne every few milliseconds, over gRPC and REST in turn, and at the same time one
// directly at the server, as a control: how long it takes is not the gateway's. A call that waits
// makes no other one wait. On each SIGUSR1 it prints a sample.
func call(target string) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	addresses := append(strings.Fields(target), "") // without a key
	through, err := callers(addresses[0], addresses[1], addresses[3])
	if err != nil {
		return err
	}
	direct := newDirect(addresses[2])
	r := recorder{waiting: map[*pending]bool{}}
	fmt.Println("ready") //nolint:forbidigo // for the process that started this one
	tick := time.NewTicker(every)
	for i := 0; ; i++ {
		select {
		case <-tick.C:
			go r.record(false, through[i%len(through)])
			go r.record(true, direct.findOne)
		case <-asked:
			text, err := json.Marshal(r.take())
			if err != nil {
				return err
			}
			fmt.Println(string(text)) //nolint:forbidigo // for the process that started this one
		}
	}
}

// callers returns the calls through the gateway.
func callers(grpcAddress, restAddress, key string) ([]func() error, error) {
	cc, err := grpc.NewClient("passthrough:///"+grpcAddress,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	documents := mooringv1.NewDocumentServiceClient(cc)
	ctx := context.Background()
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "api-key", key)
	}
	path := restAddress + "/v1/databases/d/collections/orders_1/documents:findOne"
	return []func() error{
		func() error {
			_, err := documents.FindOne(ctx,
				&mooringv1.FindOneRequest{Database: "d", Collection: "orders_1"})
			return err
		},
		func() error {
			r, err := http.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", jsonBody)
			if key != "" {
				r.Header.Set("Api-Key", key)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("status %d", resp.StatusCode)
			}
			return nil
		},
	}, nil
}

// recorder collects a sample.
type recorder struct {
	// mu guards the fields below.
	mu      sync.Mutex
	sample  sample
	waiting map[*pending]bool // the calls that have not ended
}

// pending is a call that has not ended.
type pending struct {
	begun  time.Time
	direct bool
}

// record makes a call and records how long it takes.
func (r *recorder) record(direct bool, call func() error) {
	p := &pending{time.Now(), direct}
	r.mu.Lock()
	r.waiting[p] = true
	r.mu.Unlock()
	err := call()
	took := time.Since(p.begun)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, p)
	r.addLocked(direct, took)
	if err != nil {
		r.sample.Failed = append(r.sample.Failed, err.Error())
	}
}

func (r *recorder) addLocked(direct bool, took time.Duration) {
	if direct {
		r.sample.Direct = append(r.sample.Direct, took)
		return
	}
	r.sample.Times = append(r.sample.Times, took)
}

// take returns the sample, and begins a new one.
func (r *recorder) take() sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.waiting {
		if took := time.Since(p.begun); took > waitsLong {
			r.addLocked(p.direct, took)
		}
	}
	s := r.sample
	r.sample = sample{}
	return s
}

// direct holds connections to the server.
type direct struct {
	address string
	command wire.Message
	free    chan net.Conn
}

func newDirect(address string) *direct {
	find := bson.NewBuilder(nil).String("find", "orders_1").Int32("limit", 1).
		Bool("singleBatch", true).String("$db", "d").Finish()
	return &direct{address, wire.Msg(wire.Header{ID: 1}, 0, find, nil), make(chan net.Conn, 1000)}
}

// findOne makes a findOne on a connection of its own.
func (d *direct) findOne() error {
	var c net.Conn
	var err error
	select {
	case c = <-d.free:
	default:
		if c, err = net.Dial("tcp", d.address); err != nil {
			return err
		}
	}
	if _, err = wire.RoundTrip(c, d.command); err == nil {
		d.free <- c
	}
	return err
}

// ask returns what the client has measured since the last time.
func ask(t *testing.T, client *proc.Process) (s sample) {
	t.Helper()
	if err := client.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), slack)
	defer cancel()
	text, err := client.Line(ctx)
	if err == nil {
		err = json.Unmarshal([]byte(text), &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}
