package client_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The prose tests of Retryable Reads, Retryable Writes and Client Backpressure.

var overloaded = []string{mongoerr.LabelSystemOverloaded, mongoerr.LabelRetryable}

// answers has all hosts together give these replies to commands of a name, one after the other, and
// then the last again and again; nil stands for the host's own.
func answers(cluster *fakemongo.Cluster, name string, replies ...fakemongo.Handler) {
	var mu sync.Mutex
	n := 0
	for _, h := range cluster.Hosts() {
		h.Handle(name, func(cmd *fakemongo.Command) fakemongo.Reply {
			mu.Lock()
			defer mu.Unlock()
			i := min(n, len(replies)-1)
			n++
			if replies[i] == nil {
				return h.Default(cmd)
			}
			return replies[i](cmd)
		})
	}
}

// own stands for the host's own reply: see answers.
var own fakemongo.Handler

// attempts holds where the commands of a name went, and how they ended: "a:1 ok", "a:1 91".
type attempts struct {
	mu   sync.Mutex
	name string
	all  []string
	at   []time.Time
	on   []address.Address
}

func (a *attempts) sink() *event.Sink {
	note := func(e event.Command, how string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if e.Name == a.name {
			a.all, a.on = append(a.all, how), append(a.on, e.Address)
		}
	}
	return &event.Sink{
		CommandStarted: func(e event.CommandStarted) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if e.Name == a.name {
				a.at = append(a.at, time.Now())
			}
		},
		CommandSucceeded: func(e event.CommandSucceeded) { note(e.Command, "ok") },
		CommandFailed: func(e event.CommandFailed) {
			note(e.Command, strconv.Itoa(int(mongoerr.Code(e.Err))))
		},
	}
}

// retried is one test on a cluster, with fake time.
func retried(
	t *testing.T, roles []fakemongo.Role, uri, name string, replies []fakemongo.Handler,
	test func(t *testing.T, c *client.Client, a *attempts),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, roles...)
		a := &attempts{name: name}
		c := connect(t, cluster, uri, client.Options{
			Sink: a.sink(), Jitter: func() float64 { return 1 },
		})
		synctest.Wait()
		answers(cluster, name, replies...)
		test(t, c, a)
	})
}

func (a *attempts) want(t *testing.T, how ...string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.all, how) {
		t.Errorf("attempts ended with %q on %v, want %q", a.all, a.on, how)
	}
}

// same reports whether the first two attempts were on one server.
func (a *attempts) same() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.on) > 1 && a.on[0] == a.on[1]
}

var (
	twoMongoses = []fakemongo.Role{fakemongo.Mongos, fakemongo.Mongos}
	oneMongos   = []fakemongo.Role{fakemongo.Mongos}
	replicaSet  = []fakemongo.Role{fakemongo.Primary, fakemongo.Secondary}
)

func findsOne(t *testing.T, c *client.Client) error {
	_, _, err := c.FindOne(t.Context(), orders, client.FindOptions{})
	return err
}

func insertsOne(t *testing.T, c *client.Client) error {
	_, err := c.InsertOne(t.Context(), orders, doc(t, `{"_id":1}`), client.InsertOneOptions{})
	return err
}

// poolCleared is the test that a check-out that a cleared pool refuses is retried.
func poolCleared(
	t *testing.T, name string, labels []string, run func(*testing.T, *client.Client) error,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var h happened
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		var mu sync.Mutex
		var sent int
		sink := h.sink()
		sink.CommandStarted = func(e event.CommandStarted) {
			mu.Lock()
			defer mu.Unlock()
			if e.Name == name {
				sent++
			}
		}
		c := connect(t, cluster, "maxPoolSize=1", client.Options{Sink: sink})
		synctest.Wait()
		answers(cluster, name,
			fakemongo.Always(fakemongo.Error(91, "ShutdownInProgress", "bye", labels...).
				After(time.Second)),
			own)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := run(t, c); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if sent != 3 {
			t.Errorf("%d commands, want 3", sent)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		out := slices.Index(h.events, "out")
		cleared := slices.Index(h.events, "pool cleared")
		failed := slices.Index(h.events, "failed: connectionError")
		if out < 0 || cleared < out || failed < cleared {
			t.Errorf("events = %q, want a check-out, a clear and a failed check-out", h.events)
		}
	})
}

func TestRetryableReadsProse1(t *testing.T) { poolCleared(t, "find", nil, findsOne) }

func TestRetryableWritesProse2(t *testing.T) {
	poolCleared(t, "insert", []string{mongoerr.LabelRetryableWrite}, insertsOne)
}

func unreachable(labels ...string) fakemongo.Handler {
	return fakemongo.Always(fakemongo.Error(6, "HostUnreachable", "unreachable", labels...))
}

// TestRetryableReadsProse2 is "Retrying Reads in a Sharded Cluster".
func TestRetryableReadsProse2(t *testing.T) {
	retried(t, twoMongoses, "", "find", []fakemongo.Handler{unreachable(), unreachable(), own},
		func(t *testing.T, c *client.Client, a *attempts) {
			if err := findsOne(t, c); mongoerr.Code(err) != 6 || a.same() {
				t.Errorf("FindOne() = %v, want 6 from two servers", err)
			}
			a.want(t, "6", "6")
		})
	retried(t, oneMongos, "", "find", []fakemongo.Handler{unreachable(), own},
		func(t *testing.T, c *client.Client, a *attempts) {
			if err := findsOne(t, c); err != nil || !a.same() {
				t.Errorf("FindOne() = %v, want success at the same server", err)
			}
			a.want(t, "6", "ok")
		})
}

// TestRetryableReadsProse3 is "Retrying Reads in a Replica Set".
func TestRetryableReadsProse3(t *testing.T) {
	const preferred = "readPreference=primaryPreferred"
	for _, tt := range []struct {
		name, uri string
		labels    []string
		same      bool
	}{
		{"1: overloaded", preferred + "&enableOverloadRetargeting=true", overloaded, false},
		{"2: not overloaded", preferred + "&enableOverloadRetargeting=true", overloaded[1:], true},
		{"3: without retargeting", preferred, overloaded, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			retried(t, replicaSet, tt.uri, "find",
				[]fakemongo.Handler{unreachable(tt.labels...), own},
				func(t *testing.T, c *client.Client, a *attempts) {
					if err := findsOne(t, c); err != nil || a.same() != tt.same {
						t.Errorf("FindOne() = %v on %v, the same: want %v", err, a.on, tt.same)
					}
					a.want(t, "6", "ok")
				})
		})
	}
}

// TestRetryableReadsProse4 checks that one overload error limits all further retries.
func TestRetryableReadsProse4(t *testing.T) {
	retried(t, oneMongos, "timeoutMS=60000", "find",
		[]fakemongo.Handler{unreachable(overloaded...), unreachable(overloaded[1:]...)},
		func(t *testing.T, c *client.Client, a *attempts) {
			if err := findsOne(t, c); mongoerr.Code(err) != 6 {
				t.Errorf("FindOne() = %v, want code 6", err)
			}
			a.want(t, "6", "6", "6")
		})
}

// TestRetryableReadsProse5 checks that only overload errors cause a wait.
func TestRetryableReadsProse5(t *testing.T) {
	retried(t, oneMongos, "", "find", []fakemongo.Handler{unreachable(overloaded[1:]...), own},
		func(t *testing.T, c *client.Client, a *attempts) {
			if err := findsOne(t, c); err != nil {
				t.Error(err)
			}
			a.want(t, "6", "ok")
			if wait := a.at[1].Sub(a.at[0]); wait != 0 {
				t.Errorf("the retry came after %v, want none", wait)
			}
		})
}

// TestRetriesUnderTimeoutHaveAPace checks that a server that answers at once with an error that
// may be repeated gets two commands a second, not as many as it can answer.
func TestRetriesUnderTimeoutHaveAPace(t *testing.T) {
	retried(t, oneMongos, "timeoutMS=60000", "find", []fakemongo.Handler{unreachable()},
		func(t *testing.T, c *client.Client, a *attempts) {
			err := findsOne(t, c)
			if !errors.Is(err, context.DeadlineExceeded) || mongoerr.Code(err) != 6 {
				t.Errorf("FindOne() = %v, want the end of its time, and code 6", err)
			}
			if n := len(a.all); n < 120 || n > 130 {
				t.Errorf("one operation of a minute sent %d commands, want about 2 a second", n)
			}
			if first := a.at[1].Sub(a.at[0]); first != 0 {
				t.Errorf("the first retry came after %v, want none", first)
			}
		})
}

// TestRetryableWritesProse1 checks the message about storage engines without retryable writes.
func TestRetryableWritesProse1(t *testing.T) {
	refused := fakemongo.Always(fakemongo.Error(20, "IllegalOperation",
		"Transaction numbers are only allowed on a replica set member or mongos"))
	retried(t, replicaSet, "", "insert", []fakemongo.Handler{refused},
		func(t *testing.T, c *client.Client, _ *attempts) {
			err := insertsOne(t, c)
			failed, ok := errors.AsType[*mongoerr.CommandError](err)
			const want = "This MongoDB deployment does not support retryable writes. " +
				"Please add retryWrites=false to your connection string."
			if !ok || failed.Message != want || failed.Code != 20 {
				t.Errorf("InsertOne() = %v, want %q with code 20", err, want)
			}
		})
}

// TestRetryableWritesProse3 checks that the error of a retry that wrote nothing does not hide the
// first.
func TestRetryableWritesProse3(t *testing.T) {
	concern := fakemongo.Always(fakemongo.Document(doc(t, `{"n":1,"ok":1,
		"writeConcernError":{"code":91,"errmsg":"bye"},"errorLabels":["RetryableWriteError"]}`)))
	nothing := fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "no",
		mongoerr.LabelRetryableWrite, mongoerr.LabelNoWritesPerformed))
	retried(t, replicaSet, "", "insert", []fakemongo.Handler{concern, nothing},
		func(t *testing.T, c *client.Client, a *attempts) {
			res, err := c.InsertOne(t.Context(), orders, doc(t, `{"_id":1}`),
				client.InsertOneOptions{})
			if err != nil || res.WriteConcernError == nil || res.WriteConcernError.Code != 91 {
				t.Errorf("InsertOne() = %+v, %v, want the write concern error 91", res, err)
			}
			a.want(t, "ok", "10107")
		})
}

// TestRetryableWritesProse4And5 is "another mongos" and "the same mongos if there is one only".
func TestRetryableWritesProse4And5(t *testing.T) {
	failed := unreachable(mongoerr.LabelRetryableWrite)
	retried(t, twoMongoses, "", "insert", []fakemongo.Handler{failed, failed, own},
		func(t *testing.T, c *client.Client, a *attempts) {
			if err := insertsOne(t, c); mongoerr.Code(err) != 6 || a.same() {
				t.Errorf("InsertOne() = %v, want 6 from two servers", err)
			}
			a.want(t, "6", "6")
		})
	retried(t, oneMongos, "", "insert", []fakemongo.Handler{failed, own},
		func(t *testing.T, c *client.Client, a *attempts) {
			if err := insertsOne(t, c); err != nil || !a.same() {
				t.Errorf("InsertOne() = %v, want success at the same server", err)
			}
			a.want(t, "6", "ok")
		})
}

// TestRetryableWritesProse6 is "the error that is returned" after several errors, and the limits of
// retries after an overload error.
func TestRetryableWritesProse6(t *testing.T) {
	const nothing, retry = mongoerr.LabelNoWritesPerformed, mongoerr.LabelRetryableWrite
	failed := func(code int32, labels ...string) fakemongo.Handler {
		return fakemongo.Always(fakemongo.Error(code, "", "no", append(labels, retry)...))
	}
	over := func(code int32, labels ...string) fakemongo.Handler {
		return failed(code, append(labels, overloaded...)...)
	}
	for _, tt := range []struct {
		name    string
		replies []fakemongo.Handler
		want    int32
		how     []string
	}{
		{"1: the last", []fakemongo.Handler{over(91), over(10107), over(189)}, 189, []string{"91", "10107", "189"}},
		{"2: the first", []fakemongo.Handler{over(91, nothing), over(10107, nothing)}, 91, []string{"91", "10107", "10107"}},
		{"3: the last that may have written", []fakemongo.Handler{over(91), over(10107, nothing)}, 91, []string{"91", "10107", "10107"}},
		{"4: the limit", []fakemongo.Handler{over(91), failed(91)}, 91, []string{"91", "91", "91"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			retried(t, oneMongos, "", "insert", tt.replies,
				func(t *testing.T, c *client.Client, a *attempts) {
					if err := insertsOne(t, c); mongoerr.Code(err) != tt.want {
						t.Errorf("InsertOne() = %v, want code %d", err, tt.want)
					}
					a.want(t, tt.how...)
				})
		})
	}
	t.Run("5: no wait without overload", func(t *testing.T) {
		retried(t, oneMongos, "", "insert", []fakemongo.Handler{unreachable(retry), own},
			func(t *testing.T, c *client.Client, a *attempts) {
				if err := insertsOne(t, c); err != nil {
					t.Error(err)
				}
				if wait := a.at[1].Sub(a.at[0]); wait != 0 {
					t.Errorf("the retry came after %v, want none", wait)
				}
			})
	})
}

// TestClientBackpressureProse1 checks how long the waits are: 200 ms and 400 ms at most, and
// nothing at least.
func TestClientBackpressureProse1(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{0: 0, 1: 600 * time.Millisecond} {
		if got := overloadedFor(t, jitter, connstring.Config{}, bson.Raw{}); got != want {
			t.Errorf("with jitter %v the insert took %v, want %v", jitter, got, want)
		}
	}
}

// TestClientBackpressureProse5 checks that the server's baseBackoffMS counts.
func TestClientBackpressureProse5(t *testing.T) {
	got := overloadedFor(t, 1, connstring.Config{}, doc(t, `{"baseBackoffMS":50}`))
	if want := 300 * time.Millisecond; got != want {
		t.Errorf("the insert took %v, want %v", got, want)
	}
}

// TestClientBackpressureProse3And4 checks the number of attempts, and the labels of the error.
func TestClientBackpressureProse3And4(t *testing.T) {
	overloadedFor(t, 0, connstring.Config{}, nil)
	overloadedFor(t, 0, connstring.Config{MaxAdaptiveRetries: new(int32(1))}, nil)
	overloadedFor(t, 0, connstring.Config{MaxAdaptiveRetries: new(int32(0))}, nil)
}

// overloadedFor inserts at a server that is always overloaded, and returns how long that took.
func overloadedFor(
	t *testing.T, jitter float64, cfg connstring.Config, more bson.Raw,
) (took time.Duration) {
	t.Helper()
	opt := client.Options{Jitter: func() float64 { return jitter }}
	refusal := fakemongo.Error(462, "IngressRequestRateLimitExceeded", "busy", overloaded...)
	handlers := fakemongo.Handlers{"insert": fakemongo.Always(refusal.With(more))}
	runWith(t, handlers, cfg, opt, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		began := time.Now()
		err := insertsOne(t, c)
		took = time.Since(began)
		want := 3
		if cfg.MaxAdaptiveRetries != nil {
			want = int(*cfg.MaxAdaptiveRetries) + 1
		}
		if n := len(srv.Commands("insert")); n != want {
			t.Errorf("%d attempts, want %d", n, want)
		}
		for _, label := range overloaded {
			if !mongoerr.HasLabel(err, label) {
				t.Errorf("InsertOne() = %v has no label %s", err, label)
			}
		}
	})
	return took
}
