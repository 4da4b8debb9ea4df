package once_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/unified/deployment"
	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

const (
	// repeated is the share of calls that a client makes again although they have succeeded.
	repeated = 0.2
	// patience is how often a client makes a call that fails.
	patience = 100
	// uptime is how long both replicas run before one of them is restarted.
	uptime = 1500 * time.Millisecond
)

// replicas are two gateways with one handle key. Each is replaced from time to time.
type replicas struct {
	t    *testing.T
	uri  string
	args [2][]string

	// mu guards the fields below.
	mu       sync.Mutex
	running  [2]*gateway.Gateway
	restarts int
}

func startReplicas(t *testing.T, uri string) *replicas {
	t.Helper()
	key, err := exec.Command(suite.Gateway(t), "key", "new").Output()
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, key, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &replicas{t: t, uri: uri}
	addresses := []string{freeAddress(t), freeAddress(t)}
	for i := range r.args {
		r.args[i] = []string{
			"--handle-keys-file", keys, "--replica-address", addresses[i],
			"--replica-peers", strings.Join(addresses, ","),
		}
		r.start(t.Context(), i)
	}
	t.Cleanup(func() {
		for _, g := range r.running {
			_ = g.Stop(gateway.StartTime) // the end of the test
		}
	})
	return r
}

// freeAddress returns an address on which no process listens now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// start starts a replica in the place of one that has ended.
func (r *replicas) start(ctx context.Context, i int) {
	g, err := gateway.Start(ctx, gateway.Config{
		Binary: suite.Gateway(r.t), URI: r.uri, Directory: r.t.TempDir(), Args: r.args[i],
	})
	if err != nil {
		r.t.Error(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[i] = g
}

// keepRestarting ends one replica after the other, by turns as an operator and as a crash does, and
// starts it again, until ctx ends.
func (r *replicas) keepRestarting(ctx context.Context) {
	for {
		select {
		case <-time.After(uptime):
		case <-ctx.Done():
			return
		}
		i := r.restarts % 2
		r.mu.Lock()
		g := r.running[i]
		r.mu.Unlock()
		if r.restarts%4 < 2 {
			_ = g.Stop(gateway.StartTime) // it may take its time
		} else {
			_ = g.Kill() // it has not ended by itself
			<-g.Done()
		}
		r.start(context.WithoutCancel(ctx), i) // the end of the experiment is no reason not to
		r.restarts++
	}
}

// address returns where one of the replicas, by chance, is or was.
func (r *replicas) address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[rand.IntN(2)].REST
}

// call makes a write's call with its key once, and returns the status.
func (r *replicas) call(ctx context.Context, w write) (status int, answer string, err error) {
	verb, body := "insertOne", fmt.Sprintf(`{"document": {"_id": %d, "n": 1}}`, w)
	if w%2 == 1 {
		verb = "updateOne"
		body = fmt.Sprintf(`{"filter": {"_id": %d}, "update": {"$inc": {"n": 1}}, "upsert": true}`, w)
	}
	url := r.address() + gatewaytest.Documents(database, w.collection(), verb)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("write-%d-of-the-experiment", w))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// perform makes the call until it succeeds, and sometimes again.
func (r *replicas) perform(ctx context.Context, w write) (done result, calls int) {
	for range patience {
		calls++
		status, answer, err := r.call(ctx, w)
		switch {
		case err == nil && status == http.StatusOK:
			done = acknowledged
			if rand.Float64() >= repeated {
				return done, calls
			}
		case err == nil && status == http.StatusConflict && strings.Contains(answer, "11000"):
			return duplicate, calls
		case err == nil && status < http.StatusInternalServerError &&
			strings.Contains(answer, `"retry":"never"`):
			r.t.Errorf("write %d: %d %s", w, status, answer)
			return done, calls
		default:
			time.Sleep(20 * time.Millisecond) //nolint:forbidigo // a client that waits
		}
	}
	return done, calls
}

// TestOnceThroughGateway has clients repeat calls with an Idempotency-Key on two replicas of the
// gateway, which are restarted meanwhile, in front of the same mischief.
func TestOnceThroughGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	n := count(t) / 2
	d := deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	mischief := &disturber{random: rand.New(rand.NewPCG(seed, 1)), failed: map[string]int{}}
	d.Disturb(mischief.disturb)
	r := startReplicas(t, d.URI(false, nil))
	over, stop := context.WithCancel(t.Context())
	var background, running sync.WaitGroup
	held := 0
	background.Go(func() { held = elect(over, d.Cluster()) })
	background.Go(func() { r.keepRestarting(over) })
	results, calls := make([]result, n), make([]int, n)
	for first := range workers {
		running.Go(func() {
			for w := first; w < n; w += workers {
				results[w], calls[w] = r.perform(t.Context(), write(w))
			}
		})
	}
	running.Wait()
	stop()
	background.Wait()
	made := 0
	for _, c := range calls {
		made += c
	}
	all := sum(results, read(t, d, n))
	t.Logf("%d writes by %d calls; dropped %v, refused %d; %d elections, %d restarts: %+v", n, made,
		mischief.dropped, mischief.refused, held, r.restarts, all)
	if all.lost > 0 || all.twice > 0 || all.unknown > 0 {
		t.Errorf("%d acknowledged writes are lost, %d are there twice, %d have no outcome", all.lost,
			all.twice, all.unknown)
	}
}
