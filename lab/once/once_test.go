package once_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/mischief"
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

// count returns the number of writes: LAB_ONCE, or the few that always run.
func count(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("LAB_ONCE")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("LAB_ONCE: %v", err)
	}
	return n
}

func newDisturber(seed2 uint64) *mischief.Disturber {
	return mischief.New(mischief.Config{
		Seed1: seed, Seed2: seed2, Commands: []string{"insert", "update"}, Drops: drops,
		Overloads: overloads,
	})
}

// failures count the errors that the driver returned, by their texts.
type failures struct {
	mu   sync.Mutex
	seen map[string]int
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[hosts.ReplaceAllString(err.Error(), "HOST")]++
}

// hosts are the names of hosts in errors.
var hosts = regexp.MustCompile(`\b[a-c]:27017`)

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
	disturber, failed := newDisturber(0), failures{seen: map[string]int{}}
	d.Disturb(disturber.Disturb)
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
	elections.Go(func() { held = mischief.Elect(over, d.Cluster(), term, vacancy) })
	results = make([]result, n)
	begun := time.Now()
	for first := range workers {
		running.Go(func() {
			for w := first; w < n; w += workers {
				err := perform(ctx, c, write(w))
				results[w] = judge(err)
				if results[w] != acknowledged {
					failed.add(err)
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
	dropped, refused := disturber.Counts()
	happened(t, map[string]events{
		"dropped connections": {dropped.Before + dropped.Between + dropped.After, n / 50},
		"refused commands":    {refused, n / 100},
		"elections":           {held, int(time.Since(begun) / (term + vacancy) / 2)},
	})
	t.Logf("%d writes in %v; connections dropped before the command %d, before the reply %d, "+
		"after it %d; %d refused as overload; %d elections", n,
		time.Since(begun).Round(time.Millisecond), dropped.Before, dropped.Between, dropped.After,
		refused, held)
	for text, n := range failed.seen {
		t.Logf("%d times: %s", n, text)
	}
	return results, read(t, d, n)
}

// events says how often something happened, and how often it must.
type events struct{ n, least int }

// happened fails if something happened too seldom for the experiment to show anything.
func happened(t *testing.T, what map[string]events) {
	t.Helper()
	for name, e := range what {
		if e.n < e.least {
			t.Errorf("%d %s, want %d or more", e.n, name, e.least)
		}
	}
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
	n := count(t, 4000)
	var engine *rawconn.Engine
	if !suite.IsEmbedded() {
		engine = rawconn.NewEngine(suite.Address(t))
		t.Cleanup(engine.Close)
	}
	testOnce(t, n, func(d *deployment.Deployment) {
		if engine != nil {
			d.UseEngine(engine)
		}
	})
}

// TestOnceOnEngine has PostgreSQL with DocumentDB remember the writes, in place of the scripted
// servers.
func TestOnceOnEngine(t *testing.T) {
	engine := rawconn.NewEngine(docdb.Start(t, docdb.Config{}).Address())
	t.Cleanup(engine.Close)
	testOnce(t, count(t, 1000), func(d *deployment.Deployment) { d.UseServer(engine) })
}

func testOnce(t *testing.T, n int, serve func(*deployment.Deployment)) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, deployment.Versions[0])
		serve(d)
		if err := d.Prepare(database); err != nil {
			t.Fatal(err)
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
		// Of 1,000, about four are; in some runs none was.
		all := sum(experiment(t, d, "&retryWrites=false", 8000,
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
