package metrics_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// world is what a Prometheus looks at: two replicas before a replica set that compresses messages,
// and a gateway with TLS before a server behind a load balancer.
type world struct {
	t        *testing.T
	set      *deployment.Deployment
	replicas [2]*gateway.Gateway
	balanced *gateway.Gateway
	rest     []string // of the replicas and of balanced
	http     *http.Client
	orphan   string // a cursor of a replica that is gone

	elections    int // only its activity uses it
	running      sync.WaitGroup
	sent, failed tally
}

func (w *world) gateways() []*gateway.Gateway { return append(w.replicas[:], w.balanced) }

// patiently waits until a condition holds.
func (w *world) patiently(condition func() error) {
	w.t.Helper()
	gatewaytest.Eventually(w.t, 2*time.Minute, condition)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	tr := &http.Transport{
		MaxIdleConnsPerHost: 20,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test's own
	}
	t.Cleanup(tr.CloseIdleConnections)
	w := &world{t: t, http: &http.Client{Transport: tr, Timeout: patience}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sent %v\nfailed %v", w.sent.all(), w.failed.all())
		}
	})
	w.startReplicas()
	w.startBalanced()
	for _, g := range w.gateways() {
		w.rest = append(w.rest, g.REST)
	}
	w.rest[2] = strings.Replace(w.rest[2], "http:", "https:", 1)
	return w
}

func (w *world) startGateway(uri string, args ...string) *gateway.Gateway {
	w.t.Helper()
	g, err := gateway.Start(w.t.Context(), gateway.Config{
		Binary: suite.Gateway(w.t), URI: uri, Directory: w.t.TempDir(),
		Args: append([]string{"--admin-address", "127.0.0.1:0", "--drain-timeout", "1s"}, args...),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = g.Stop(gateway.StartTime) // it may take its time
		if w.t.Failed() {
			w.t.Logf("end of a gateway's log:\n%.3000s", g.Tail())
		}
	})
	return g
}

// startReplicas starts three replicas, of which one is killed when it holds a cursor.
func (w *world) startReplicas() {
	w.set = deployment.ListenUnrecorded(w.t, deployment.ReplicaSet, "8.0.0")
	w.set.SetDocuments("shop.many", fakemongo.Numbered(0, 100, 100)...)
	w.set.SetDocuments("shop.watched")
	w.set.Disturb(disturb())
	key, err := exec.CommandContext(w.t.Context(), suite.Gateway(w.t), "key", "new").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	file := filepath.Join(w.t.TempDir(), "keys")
	if err := os.WriteFile(file, key, 0o600); err != nil {
		w.t.Fatal(err)
	}
	uri := w.set.URI(false, nil) + "&compressors=zlib&minPoolSize=1&heartbeatFrequencyMS=500"
	args := []string{
		"--handle-keys-file", file, "--idempotency-key-file", file, "--replica-address", "127.0.0.1:0",
		"--cursors-max-per-principal", "none",
	}
	gone := w.startGateway(uri, args...)
	w.rest = []string{gone.REST}
	w.patiently(func() (err error) {
		w.orphan, err = w.open(w.t.Context(), 0)
		return err
	})
	if err := gone.Kill(); err != nil {
		w.t.Fatal(err)
	}
	<-gone.Done()
	w.rest = nil
	// The disk of its audit log is full.
	w.replicas[0] = w.startGateway(uri, append(args, "--audit-file", "/dev/full")...)
	w.replicas[1] = w.startGateway(uri, append(args, "--replica-peers", w.replicas[0].Replica)...)
}

// disturb returns what makes a replica set compress messages, be slow, overloaded or cut off for
// some collections, and end change streams.
func disturb() deployment.Disturbance {
	var cuts, refusals, pages atomic.Int64
	return func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		collection, _ := cmd.Body.Lookup("find")
		watched, _ := cmd.Body.Lookup("collection")
		switch name, of := text(collection), text(watched); {
		case strings.EqualFold(cmd.Name, "hello") || cmd.Name == "isMaster":
			return fakemongo.WithZlib(next(cmd))
		case name == "slow":
			return next(cmd).After(300 * time.Millisecond)
		case name == "cut" && cuts.Add(1)%2 == 1:
			return fakemongo.Drop()
		case name == "overloaded" && refusals.Add(1)%2 == 1:
			return fakemongo.Error(462, "IngressRequestRateLimitExceeded", "too many requests",
				"SystemOverloadedError", "RetryableError")
		case of == "watched" && pages.Add(1)%20 == 0:
			return fakemongo.Error(43, "CursorNotFound", "cursor id not found")
		}
		return next(cmd)
	}
}

func text(v bson.Value) string {
	s, _ := v.Str()
	return s
}

// startBalanced starts a gateway before a server that looks like a mongos behind a load balancer,
// which takes time for connections and for finds. The gateway has few connections and admits few
// calls.
func (w *world) startBalanced() {
	id := bson.NewObjectID()
	server := fakemongo.NewTCPServer(w.t, nil)
	server.SetDocuments("shop.many", fakemongo.Numbered(0, 100, 100)...)
	server.Handle("hello", func(cmd *fakemongo.Command) fakemongo.Reply {
		return fakemongo.Hello(cmd, func(b *bson.Builder) {
			b.String("msg", "isdbgrid").ObjectID("serviceId", id)
		}).After(300 * time.Millisecond)
	})
	var finds atomic.Int64
	server.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if name, _ := cmd.Body.Lookup("find"); text(name) != "slow" {
			return next(cmd)
		}
		if finds.Add(1)%5 == 0 { // another connection is made
			return fakemongo.Drop()
		}
		return next(cmd).After(300 * time.Millisecond)
	})
	pair := certtest.Authority(w.t, certtest.ECDSA).Issue(w.t, "127.0.0.1")
	w.balanced = w.startGateway("mongodb://"+string(server.Address())+
		"/?loadBalanced=true&maxPoolSize=3&waitQueueTimeoutMS=100",
		"--requests-max-in-flight", "6", "--requests-queue-time", "200ms",
		"--audit-file", filepath.Join(w.t.TempDir(), "audit"),
		"--tls-key-file", certtest.File(w.t, "key", pair.KeyBlock(w.t)),
		"--tls-certificate-file", certtest.File(w.t, "certificate", pair.CertificateBlock()))
}

// startStopping starts a gateway that has been told to stop, and lingers for many scrapes.
func (w *world) startStopping() *gateway.Gateway {
	g := w.startGateway(w.set.URI(false, nil), "--drain-linger", "1m")
	if err := g.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	return g
}
