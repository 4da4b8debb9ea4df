package gatewaytest

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// Replicas represents gateways with the same keys that know each other. Each can be replaced
// while clients go on. All methods may be called at any time.
type Replicas struct {
	// HandleKeys and IdempotencyKey are the files of their keys, each with one key.
	HandleKeys, IdempotencyKey string

	t    *testing.T
	cfgs []gateway.Config
	// spare has a configuration with other addresses for each replica, for its successor. It is
	// empty if none has a successor.
	spare []gateway.Config

	mu      sync.Mutex // guards running
	running []*Replica
}

// Replica represents one running gateway, and a gRPC connection to it.
type Replica struct {
	*gateway.Gateway
	Conn *grpc.ClientConn
}

// StartReplicas starts n gateways before the server that uri names, and stops them at the end of
// the test. A replica that is replaced listens for REST where the old one did.
func (s *Suite) StartReplicas(t *testing.T, n int, uri string, args ...string) *Replicas {
	t.Helper()
	return s.startReplicas(t, n, n, uri, args)
}

// StartWithSpares starts gateways as StartReplicas does. Each has a second set of addresses, so
// that Succeed can start another in its place while it runs.
func (s *Suite) StartWithSpares(t *testing.T, n int, uri string, args ...string) *Replicas {
	t.Helper()
	return s.startReplicas(t, n, 2*n, uri, args)
}

// startReplicas starts n gateways, and has addresses for so many places.
func (s *Suite) startReplicas(
	t *testing.T, n, places int, uri string, args []string,
) *Replicas {
	t.Helper()
	directory := t.TempDir()
	r := &Replicas{
		t: t, running: make([]*Replica, n), HandleKeys: filepath.Join(directory, "handle-keys"),
		IdempotencyKey: filepath.Join(directory, "idempotency-key"),
	}
	for _, file := range []string{r.HandleKeys, r.IdempotencyKey} {
		if err := os.WriteFile(file, []byte(s.NewKey(t)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free := FreeAddresses(t, 2*places)
	rest, peers := free[:places], free[places:]
	for i := range places {
		r.cfgs = append(r.cfgs, gateway.Config{
			Binary: s.Gateway(t), URI: uri, REST: rest[i], Args: append([]string{
				"--handle-keys-file", r.HandleKeys, "--idempotency-key-file", r.IdempotencyKey,
				"--replica-address", peers[i], "--replica-peers", strings.Join(peers, ","),
			}, args...),
		})
	}
	r.cfgs, r.spare = r.cfgs[:n:n], r.cfgs[n:]
	for i := range n {
		r.start(t.Context(), i)
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Cleanup(func() {
		r.Stop()
		for i, replica := range r.running {
			if t.Failed() {
				t.Logf("end of replica %d's log:\n%s", i, replica.Tail())
			}
		}
	})
	return r
}

// NewKey returns what mooring key new prints.
func (s *Suite) NewKey(t *testing.T) string {
	t.Helper()
	key, err := exec.CommandContext(t.Context(), s.Gateway(t), "key", "new").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(key))
}

// Stop stops all replicas. They finish what they are doing. It may be called again.
func (r *Replicas) Stop() {
	for i := range r.cfgs {
		_ = r.Replica(i).Stop(gateway.StartTime) // it may take its time
	}
}

// RESTAddresses returns the addresses at which replicas listen for REST, or will.
func (r *Replicas) RESTAddresses() (all []string) {
	for _, cfg := range slices.Concat(r.cfgs, r.spare) {
		all = append(all, cfg.REST)
	}
	return all
}

// FreeAddresses returns n addresses on which no process listens now. Where it can, it returns those
// of a host that only this process uses: neither an outgoing connection nor another test takes such
// a port while a replica is replaced.
func FreeAddresses(t testing.TB, n int) []string {
	t.Helper()
	pid := os.Getpid()
	host := net.IPv4(127, 128|byte(pid>>16), byte(pid>>8), byte(pid)).String()
	if l, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
		host = "127.0.0.1" // only Linux has all of 127.0.0.0/8
	} else {
		_ = l.Close()
	}
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // not before all have theirs
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

// start starts a replica in the place of one that has ended. The test fails if it does not start.
func (r *Replicas) start(ctx context.Context, i int) {
	cfg := r.cfgs[i]
	cfg.Directory = r.t.TempDir()
	g, err := gateway.Start(ctx, cfg)
	if err != nil {
		r.t.Error(err)
		return
	}
	c, err := grpc.NewClient(g.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Error(err)
		return
	}
	r.t.Cleanup(func() { _ = c.Close() })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[i] = &Replica{g, c}
}

// Replica returns the one of that number, counted from 0. It may have ended just now.
func (r *Replicas) Replica(i int) *Replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[i]
}

// Any returns one of them by chance. It may have ended just now.
func (r *Replicas) Any() *Replica { return r.Replica(rand.IntN(len(r.cfgs))) }

// Replace ends a replica, as a crash does or as an operator does, and starts it again. One
// goroutine at a time may call it.
func (r *Replicas) Replace(ctx context.Context, i int, crash bool) {
	g := r.Replica(i)
	if crash {
		_ = g.Kill() // it has not ended by itself
		<-g.Done()
	} else {
		_ = g.Stop(gateway.StartTime) // it may take its time
	}
	r.start(context.WithoutCancel(ctx), i) // the end of the experiment is not a reason not to
}

// Succeed starts a replica in the place of another, which goes on, at the other addresses of the
// two. It returns the old one, which the caller stops. One goroutine at a time may call it.
func (r *Replicas) Succeed(ctx context.Context, i int) (old *Replica) {
	old = r.Replica(i)
	r.cfgs[i], r.spare[i] = r.spare[i], r.cfgs[i]
	r.start(context.WithoutCancel(ctx), i)
	return old
}
