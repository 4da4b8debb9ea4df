package once_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/mongotest"
	"github.com/mooringdb/mooring/internal/unified/deployment"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

const (
	database = "once"
	// perCollection is the number of writes to each collection.
	perCollection = 100
	workers       = 64
	// drops and overloads are the shares of commands whose connection is dropped, and that are
	// refused with an error of overload.
	drops, overloads = 0.05, 0.02
	// term is how long a primary has its role, and vacancy how long there is none then.
	term, vacancy = 3 * time.Second, 200 * time.Millisecond
	seed          = 13
)

// count returns the number of writes: LAB_ONCE, or few.
func count(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LAB_ONCE")
	if text == "" {
		return 4000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("LAB_ONCE: %v", err)
	}
	return n
}

// disturber drops connections before a command, between a command and its reply, and after the
// reply, and refuses commands as an overloaded server does.
type disturber struct {
	mu      sync.Mutex
	random  *rand.Rand
	off     bool
	dropped [3]int
	refused int
	failed  map[string]int // errors that the driver returned, by their texts
}

func (d *disturber) disturb(cmd *mongotest.Command, next mongotest.Handler) mongotest.Reply {
	if cmd.Name != "insert" && cmd.Name != "update" {
		return next(cmd)
	}
	switch d.choose() {
	case 0:
		return mongotest.Drop()
	case 1:
		next(cmd)
		return mongotest.Drop()
	case 2:
		return next(cmd).ThenDrop()
	case 3:
		return mongotest.Error(462, "IngressRequestRateLimitExceeded", "too many requests",
			"SystemOverloadedError", "RetryableError", "NoWritesPerformed")
	}
	return next(cmd)
}

// fail counts an error that the driver returned.
func (d *disturber) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[hosts.ReplaceAllString(err.Error(), "HOST")]++
}

// hosts are the names of hosts in errors.
var hosts = regexp.MustCompile(`\b[a-c]:27017`)

// choose returns what to do with a command; -1: nothing.
func (d *disturber) choose() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.random.Float64()
	switch {
	case d.off || p >= drops+overloads:
		return -1
	case p < drops:
		when := d.random.IntN(len(d.dropped))
		d.dropped[when]++
		return when
	}
	d.refused++
	return len(d.dropped)
}

// result is what became of one write.
type result uint8

const (
	unknown result = iota // the driver returned an error
	acknowledged
	duplicate // the server had the document already, though this write is its only one
)

// write is the number of a write. Even ones insert a document, the others count one up.
type write int

func (w write) collection() string { return fmt.Sprintf("c%d", w/perCollection) }

// run carries a write out: each has a document of its own.
func (w write) run(ctx context.Context, c *client.Client) error {
	ns := client.Namespace{Database: database, Collection: w.collection()}
	id := bson.NewBuilder(nil).Int32("_id", int32(w))
	if w%2 == 0 {
		_, err := c.InsertOne(ctx, ns, id.Int32("n", 1).Finish(), client.InsertOneOptions{})
		return err
	}
	up := bson.NewBuilder(nil).OpenDocument("$inc").Int32("n", 1).Close().Finish()
	_, err := c.UpdateOne(ctx, ns, id.Finish(), bson.DocumentValue(up),
		client.UpdateOptions{Upsert: new(true)})
	return err
}

// experiment runs n writes by workers, each write by perform, while the deployment is disturbed and
// holds elections. It returns the results, and how often each write was carried out.
func experiment(
	t *testing.T, d *deployment.Deployment, options string, n int,
	perform func(context.Context, *client.Client, write) error,
) (results []result, done []int64) {
	t.Helper()
	mischief := &disturber{
		random: rand.New(rand.NewPCG(seed, 0)), failed: map[string]int{},
	}
	d.Disturb(mischief.disturb)
	cfg, err := connstring.Parse(d.URI(false, nil) + options)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Dialer: d.Dial})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	over, stop := context.WithCancel(ctx)
	var elections, running sync.WaitGroup
	held := 0
	elections.Go(func() { held = elect(over, d.Cluster()) })
	results = make([]result, n)
	begun := time.Now()
	for first := range workers {
		running.Go(func() {
			for w := first; w < n; w += workers {
				err := perform(ctx, c, write(w))
				results[w] = judge(err)
				if results[w] != acknowledged {
					mischief.fail(err)
				}
			}
		})
	}
	running.Wait()
	stop()
	elections.Wait()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	t.Logf("%d writes in %v; connections dropped before the command %d, before the reply %d, "+
		"after it %d; %d refused as overload; %d elections", n,
		time.Since(begun).Round(time.Millisecond), mischief.dropped[0], mischief.dropped[1],
		mischief.dropped[2], mischief.refused, held)
	for text, n := range mischief.failed {
		t.Logf("%d times: %s", n, text)
	}
	return results, read(t, d, n)
}

func judge(err error) result {
	if err == nil {
		return acknowledged
	}
	failed, ok := errors.AsType[*mongoerr.WriteException](err)
	if ok && len(failed.WriteErrors) > 0 && failed.WriteErrors[0].Code == duplicateKey {
		return duplicate
	}
	return unknown
}

const duplicateKey = 11000

// elect has one host after the other be primary until ctx ends, and none for a while between. It
// returns the number of elections.
func elect(ctx context.Context, c *mongotest.Cluster) (held int) {
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ctx.Done():
			return false
		}
	}
	for wait(term) {
		c.StepDown()
		if !wait(vacancy) {
			break
		}
		held++
		c.Elect(c.Host(held % len(c.Hosts())))
	}
	return held
}

// read returns how often each write was carried out.
func read(t *testing.T, d *deployment.Deployment, n int) []int64 {
	t.Helper()
	done := make([]int64, n)
	for w := 0; w < n; w += perCollection {
		docs, err := d.Contents(database, write(w).collection())
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range docs {
			id, _ := doc.Lookup("_id")
			i, _ := id.AsInt64()
			times, _ := doc.Lookup("n")
			done[i], _ = times.AsInt64()
		}
	}
	return done
}

// tally is what an experiment came to.
type tally struct{ acknowledged, unknown, lost, twice int }

func sum(results []result, done []int64) (all tally) {
	for w, r := range results {
		if r == acknowledged {
			all.acknowledged++
		} else {
			all.unknown++
		}
		if r == acknowledged && done[w] == 0 {
			all.lost++
		}
		if done[w] > 1 || r == duplicate {
			all.twice++
		}
	}
	return all
}

// TestOnce has retryable writes go through all that, on scripted servers or, if MOORING_TEST_URI is
// set, on that server behind them. LAB_ONCE is the number of writes.
func TestOnce(t *testing.T) {
	n := count(t)
	var engine *rawconn.Engine
	if !suite.IsEmbedded() {
		engine = rawconn.NewEngine(suite.Address(t))
		t.Cleanup(engine.Close)
	}
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, deployment.Versions[0])
		if engine != nil {
			d.UseEngine(engine)
			if err := d.Prepare(database); err != nil {
				t.Fatal(err)
			}
		}
		all := sum(experiment(t, d, "&timeoutMS=60000", n,
			func(ctx context.Context, c *client.Client, w write) error { return w.run(ctx, c) }))
		t.Logf("%+v", all)
		if all.lost > 0 || all.twice > 0 {
			t.Errorf("%d acknowledged writes are lost, and %d are there twice", all.lost, all.twice)
		}
		if all.acknowledged < n*95/100 {
			t.Errorf("only %d of %d writes are acknowledged", all.acknowledged, n)
		}
	})
}

// TestControl has callers repeat writes that are not retryable: some are there twice. It shows that
// the experiment finds what it looks for.
func TestControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, deployment.Versions[0])
		all := sum(experiment(t, d, "&retryWrites=false", 1000,
			func(ctx context.Context, c *client.Client, w write) error {
				var err error
				for range 3 {
					if err = w.run(ctx, c); err == nil {
						break
					}
				}
				return err
			}))
		t.Logf("%+v", all)
		if all.twice == 0 {
			t.Error("no write is there twice, though all were repeated blindly")
		}
	})
}
