// Package contract is an experiment with what the gateway says of failed calls: a machine makes
// calls through a client, and does to the letter what retry, Retry-After and the reason of each
// error say, while commands are lost, refused or interrupted and callers leave. In the end the
// effect of each operation is there exactly once, or the machine was told that it is unknown. It
// starts no gateway and knows no client: a test gives it both.
package contract

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// Way names how an operation is made. What is safe to repeat depends on it.
type Way uint8

// The ways.
const (
	Plain     Way = iota // a write without a key
	Key                  // with an Idempotency-Key
	Statement            // numbered statements of a transaction
	Commit               // the commit of a transaction
	Run                  // a transaction in one call
	Page                 // a result in pages
	Stream               // a result as a stream
	Import               // documents as a stream
)

var ways = [...]string{"plain", "key", "statement", "commit", "run", "page", "stream", "import"}

func (w Way) String() string { return ways[w] }

// Config configures an experiment.
type Config struct {
	Seed uint64
	// Deployment is what the gateway stands before.
	Deployment *deployment.Deployment
	// Hands are the clients. Each makes one operation after the other.
	Hands []Hands
	// Operations is how many operations are made.
	Operations int
	// Ways are made by turns; nil: all.
	Ways    []Way
	Profile Profile
	// Wait is the longest wait before a call is repeated, where the gateway says nothing of it.
	Wait time.Duration
}

// Profile says what surrounds an operation.
type Profile uint8

// The profiles.
const (
	// Alone has one client, so that each operation is judged by what has happened to itself.
	Alone Profile = iota
	// Crowd has many clients that share few connections, and nothing fails in a server.
	Crowd
	// Storm has many clients, and elections all the time.
	Storm
	// Late has one client, and a gateway that waits for a server no longer than Deadline.
	Late
)

var profiles = [...]string{"alone", "crowd", "storm", "late"}

func (p Profile) String() string { return profiles[p] }

// Profiles are all of them.
var Profiles = []Profile{Alone, Crowd, Storm, Late}

// Clients returns how many clients make operations at once.
func (p Profile) Clients() int {
	if p == Crowd || p == Storm {
		return 8
	}
	return 1
}

// URIOptions returns options of the gateway's connection string.
func (p Profile) URIOptions() string {
	if p == Crowd {
		return "&maxPoolSize=2&waitQueueTimeoutMS=30"
	}
	return ""
}

// Hands holds a client, and its connection to the gateway.
type Hands struct {
	Client Client
	// Cut ends the connection after so many more bytes of the gateway's: 0 at once, below 0 never.
	Cut func(after int)
	// MayLeave says that the client's calls end with their context.
	MayLeave bool
}

// experiment holds what one run needs.
type experiment struct {
	cfg Config

	// mu guards the fields below.
	mu     sync.Mutex
	open   map[string]*operation // the operations under way, by their collections
	txns   map[string]*operation // those of transactions, by their sessions and numbers
	report *Report
}

// Perform makes the operations, and judges them once nothing runs any more.
func Perform(ctx context.Context, cfg Config) *Report {
	x := &experiment{
		cfg: cfg, open: map[string]*operation{}, txns: map[string]*operation{},
		report: NewReport(),
	}
	cfg.Deployment.Disturb(x.disturb)
	calm := x.elect(ctx)
	work := make(chan *operation)
	var working sync.WaitGroup
	for i := range cfg.Hands {
		working.Go(func() {
			for op := range work {
				x.perform(ctx, op, &cfg.Hands[i])
				// What its caller has left may still run, and servers be looked for.
				if len(op.end()) > 0 && cfg.Profile.Clients() == 1 {
					sleep(ctx, 20*cfg.Wait)
				}
			}
		})
	}
	var all []*operation
	for n := range cfg.Operations {
		op := newOperation(cfg, n)
		op.prepare(cfg.Deployment)
		x.mu.Lock()
		x.open[op.collection] = op
		x.mu.Unlock()
		all = append(all, op)
		work <- op
	}
	close(work)
	working.Wait()
	calm()
	cfg.Deployment.Disturb(nil)
	for _, op := range all {
		x.report.judge(op, cfg)
	}
	return x.report
}

// elect holds elections, if there is a storm, until the function that it returns is called.
func (x *experiment) elect(ctx context.Context) (calm func()) {
	if x.cfg.Profile != Storm {
		return func() {}
	}
	over, stop := context.WithCancel(ctx)
	var electing sync.WaitGroup
	cluster := x.cfg.Deployment.Cluster()
	electing.Go(func() {
		for n := 1; sleep(over, 20*x.cfg.Wait); n++ {
			cluster.StepDown()
			sleep(over, x.cfg.Wait)
			cluster.Elect(cluster.Host(n % len(cluster.Hosts())))
			x.mu.Lock()
			x.report.Elections++
			x.mu.Unlock()
		}
	})
	return func() {
		stop()
		electing.Wait()
	}
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// turn returns the way of an operation.
func turn(all []Way, n int) Way {
	if all == nil {
		return Way(n % len(ways))
	}
	return all[n%len(all)]
}

// newOperation makes the operation with a number, which depends on the seed, the profile and the
// number alone.
func newOperation(cfg Config, n int) *operation {
	random := rand.New(rand.NewPCG(cfg.Seed, uint64(n)<<8|uint64(cfg.Profile)))
	op := &operation{
		number: n, way: turn(cfg.Ways, n), collection: fmt.Sprintf("c%d-%d", cfg.Seed, n),
		key: fmt.Sprintf("key-%d-%d", cfg.Seed, n), random: random,
	}
	op.duplicate = op.way <= Key && random.IntN(10) == 0
	op.planned = planned[op.way]
	if random.IntN(2) == 0 {
		op.planned = later[op.way]
	}
	op.plan = drawPlan(op, cfg.Profile, random)
	return op
}
