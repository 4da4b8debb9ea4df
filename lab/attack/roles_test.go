package attack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
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
	// targetVariable holds the addresses of gRPC and REST for the client.
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

// serve serves canned replies, and prints the connection string.
func serve() {
	s, err := canned.Listen("127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(s.URI()) //nolint:forbidigo // for the process that started this one
	<-make(chan struct{})
}

const (
	// every is the time between two calls of the client.
	every = 10 * time.Millisecond
	// waitsLong is the time after which a call that has not ended counts as one that has.
	waitsLong = 100 * time.Millisecond
)

// sample is what the client has measured since the last time that it was asked.
type sample struct {
	Times  []time.Duration
	Failed []string
}

// p99 returns the time that 99 of 100 calls did not exceed.
func (s sample) p99() time.Duration {
	if len(s.Times) == 0 {
		return 0
	}
	slices.Sort(s.Times)
	return s.Times[len(s.Times)*99/100]
}

// call makes a findOne every few milliseconds, over gRPC and REST in turn. A call that waits makes
// no other one wait. On each SIGUSR1 it prints a sample.
func call(target string) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	grpcAddress, restAddress, _ := strings.Cut(target, " ")
	cc, err := grpc.NewClient("passthrough:///"+grpcAddress,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	documents := mooringv1.NewDocumentServiceClient(cc)
	path := restAddress + "/v1/databases/d/collections/orders_1/documents:findOne"
	find := []func() error{
		func() error {
			_, err := documents.FindOne(context.Background(),
				&mooringv1.FindOneRequest{Database: "d", Collection: "orders_1"})
			return err
		},
		func() error {
			resp, err := http.Post(path, "application/json", strings.NewReader("{}"))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("status %d", resp.StatusCode)
			}
			return nil
		},
	}
	var mu sync.Mutex
	var s sample
	waiting := map[int]time.Time{} // the calls that have not ended, and when they began
	fmt.Println("ready")           //nolint:forbidigo // for the process that started this one
	tick := time.NewTicker(every)
	for i := 0; ; i++ {
		select {
		case <-tick.C:
			begun := time.Now()
			mu.Lock()
			waiting[i] = begun
			mu.Unlock()
			go func() {
				err := find[i%len(find)]()
				took := time.Since(begun)
				mu.Lock()
				defer mu.Unlock()
				delete(waiting, i)
				s.Times = append(s.Times, took)
				if err != nil {
					s.Failed = append(s.Failed, err.Error())
				}
			}()
		case <-asked:
			mu.Lock()
			for _, begun := range waiting {
				if took := time.Since(begun); took > waitsLong {
					s.Times = append(s.Times, took)
				}
			}
			text, err := json.Marshal(s)
			s = sample{}
			mu.Unlock()
			if err != nil {
				return err
			}
			fmt.Println(string(text)) //nolint:forbidigo // for the process that started this one
		}
	}
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
