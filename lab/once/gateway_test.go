package once_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/history"
	"github.com/mooringdb/mooring/lab/internal/mischief"
)

const (
	// repeated is the share of calls that a client makes again although they have succeeded.
	repeated = 0.2
	// patience is how long a client repeats a call that fails.
	patience = 2 * time.Minute
	// uptime is how long both replicas run before one of them is restarted.
	uptime = 1500 * time.Millisecond
	// perCaller is how many writes each client makes, unless that is too many clients or too few.
	// After each dropped connection a gateway waits for the next check of the server, for up to
	// half a second. So the time of the experiment depends on how many calls are made at once.
	perCaller, mostCallers = 10, 1000
)

// replicas are two gateways with the same keys. Each is replaced from time to time.
type replicas struct {
	*gatewaytest.Replicas
	t        *testing.T
	client   http.Client
	restarts int
	recorder *history.Recorder
}

// steps returns what a write does to its document, as a history has it: an update that counts up
// appends to it, and makes it.
func (w write) steps(done bool) []history.Step {
	if w%2 == 1 {
		return []history.Step{
			{Kind: history.Append, Document: w.name(), Value: int(w), Upsert: true},
		}
	}
	return []history.Step{{Kind: history.Insert, Document: w.name(), Value: int(w), Done: done}}
}

func (w write) name() string { return fmt.Sprintf("write %d", w) }

// record records an operation of a write, whose document is judged by itself.
func (r *replicas) record(w write, called time.Duration, o history.Operation) {
	o.Group = w.name()
	r.recorder.Add(int(w), called, o)
}

// judge has porcupine look for an order that explains what is there in the end.
func (r *replicas) judge(done []int64) {
	for w, n := range done {
		seen := &history.Contents{}
		if n > 0 {
			seen = &history.Contents{
				Exists: true, Items: history.Items(slices.Repeat([]int{w}, int(n))),
			}
		}
		r.record(write(w), r.recorder.Now(), history.Operation{Steps: []history.Step{{
			Kind: history.Read, Document: write(w).name(), Seen: seen,
		}}})
	}
	v := r.recorder.Judge(history.Contents{}, time.Second)
	r.t.Log(v)
	for _, complaint := range slices.Concat(v.Violations, v.Undecided) {
		r.t.Error(complaint)
	}
}

// answer is what a client reads of a response.
type answer struct {
	status int
	Error  *struct{ Reason, Retry, Message string }
	after  time.Duration // Retry-After
}

// isDuplicate reports whether the answer is the server's error of a document that is there.
func (a answer) isDuplicate() bool { return a.Error != nil && a.Error.Reason == "DuplicateKey" }

// keepRestarting ends one replica after the other, by turns as an operator and as a crash does, and
// starts it again, until ctx ends.
func (r *replicas) keepRestarting(ctx context.Context) {
	for {
		select {
		case <-time.After(uptime):
		case <-ctx.Done():
			return
		}
		r.Replace(ctx, r.restarts%2, r.restarts%4 >= 2)
		r.restarts++
	}
}

// call makes a write's call with its key once.
func (r *replicas) call(ctx context.Context, w write) (answer, error) {
	verb, body := "insertOne", fmt.Sprintf(`{"document": {"_id": %d, "n": 1}}`, w)
	if w%2 == 1 {
		verb = "updateOne"
		body = fmt.Sprintf(`{"filter": {"_id": %d}, "update": {"$inc": {"n": 1}}, "upsert": true}`,
			w)
	}
	url := r.Any().REST + gatewaytest.Documents(database, w.collection(), verb)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("write-%d-of-the-experiment", w))
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	a := answer{status: resp.StatusCode, after: time.Duration(seconds) * time.Second}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return answer{}, err
	}
	return a, nil
}

// perform makes the call until it succeeds, and sometimes again. It does what retry says: a call
// with a key, or a call whose answer is lost, is repeated after the time that the gateway says, and
// nothing else is.
func (r *replicas) perform(ctx context.Context, w write) (done result, calls int) {
	called := r.recorder.Now()
	defer func() {
		if done == unknown {
			r.record(w, called, history.Operation{Unknown: true, Steps: w.steps(true)})
		}
	}()
	for begun := time.Now(); time.Since(begun) < patience; {
		calls++
		a, err := r.call(ctx, w)
		switch {
		case err == nil && a.status == http.StatusOK:
			if done != acknowledged {
				r.record(w, called, history.Operation{Steps: w.steps(true)})
			}
			done = acknowledged
			if rand.Float64() >= repeated {
				return done, calls
			}
		case err == nil && a.isDuplicate():
			r.record(w, called, history.Operation{Steps: w.steps(false)})
			return duplicate, calls
		case err == nil && (a.Error == nil || a.Error.Retry != "same-request"):
			r.t.Errorf("write %d: %d %+v", w, a.status, a.Error)
			return done, calls
		default:
			wait := a.after + 20*time.Millisecond
			time.Sleep(wait) //nolint:forbidigo // a client that waits
		}
	}
	return done, calls
}

// TestOnceThroughGateway has clients repeat calls with an Idempotency-Key on two replicas of the
// gateway, which are restarted meanwhile, in front of the same mischief.
func TestOnceThroughGateway(t *testing.T) {
	testThroughGateway(t, count(t, 2000), func(*deployment.Deployment) {})
}

// TestOnceThroughGatewayOnEngine is the same with PostgreSQL and DocumentDB behind it.
func TestOnceThroughGatewayOnEngine(t *testing.T) {
	testThroughGateway(t, count(t, 1000), func(d *deployment.Deployment) { docdb.Serve(t, d) })
}

func testThroughGateway(t *testing.T, n int, serve func(*deployment.Deployment)) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	callers := min(max(workers, n/perCaller), mostCallers)
	d := deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	serve(d)
	disturber := newDisturber(1)
	d.Disturb(disturber.Disturb)
	uri := d.URI(false, nil) + "&maxPoolSize=500&maxConnecting=16"
	r := &replicas{
		Replicas: suite.StartReplicas(t, 2, uri), t: t, recorder: history.NewRecorder(),
	}
	r.client.Transport = &http.Transport{MaxIdleConnsPerHost: mostCallers}
	over, stop := context.WithCancel(t.Context())
	var background, running sync.WaitGroup
	held := 0
	background.Go(func() { held = mischief.Elect(over, d.Cluster(), term, vacancy) })
	background.Go(func() { r.keepRestarting(over) })
	results, calls := make([]result, n), make([]int, n)
	begun := time.Now()
	for first := range callers {
		running.Go(func() {
			for w := first; w < n; w += callers {
				results[w], calls[w] = r.perform(t.Context(), write(w))
			}
		})
	}
	running.Wait()
	elapsed := time.Since(begun)
	stop()
	background.Wait()
	made := 0
	for _, c := range calls {
		made += c
	}
	there := read(t, d, n)
	r.judge(there)
	all := sum(results, there)
	dropped, refused := disturber.Counts()
	happened(t, map[string]events{
		"dropped connections": {dropped.Before + dropped.Between + dropped.After, n / 40},
		"refused commands":    {refused, n / 100},
		"elections":           {held, int(elapsed / (term + vacancy) / 2)},
		"restarts":            {r.restarts, int(elapsed / (uptime + 2*time.Second) / 4)},
		"repeated calls":      {made - n, n / 10},
	})
	t.Logf("%d writes by %d clients in %d calls and %v; dropped %v, refused %d; %d elections, "+
		"%d restarts: %+v", n, callers, made, elapsed.Round(time.Second), dropped,
		refused, held, r.restarts, all)
	if all.lost > 0 || all.twice > 0 || all.unknown > 0 {
		t.Errorf("%d acknowledged writes are lost, %d are there twice, %d have no outcome",
			all.lost,
			all.twice, all.unknown)
	}
}
