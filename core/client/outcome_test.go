package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// writeCall is a call with retryable writes, and the command that it sends.
type writeCall struct {
	command string
	run     func(*testing.T, *client.Client) error
}

// retryableWrites has a call of each kind of retryable write.
func retryableWrites(t *testing.T) map[string]writeCall {
	inc := bson.DocumentValue(doc(t, `{"$inc":{"a":1}}`))
	one, docs := doc(t, `{"_id":1}`), []bson.Raw{doc(t, `{"_id":1}`), doc(t, `{"_id":2}`)}
	insertOne := client.WriteModel{Kind: client.InsertOne, Document: one}
	return map[string]writeCall{
		"InsertOne": {"insert", func(t *testing.T, c *client.Client) error {
			_, err := c.InsertOne(t.Context(), orders, one, client.InsertOneOptions{})
			return err
		}},
		"InsertMany": {"insert", func(t *testing.T, c *client.Client) error {
			_, err := c.InsertMany(t.Context(), orders, docs, client.InsertManyOptions{})
			return err
		}},
		"UpdateOne": {"update", func(t *testing.T, c *client.Client) error {
			_, err := c.UpdateOne(t.Context(), orders, one, inc, client.UpdateOptions{})
			return err
		}},
		"DeleteOne": {"delete", func(t *testing.T, c *client.Client) error {
			_, err := c.DeleteOne(t.Context(), orders, one, client.DeleteOptions{})
			return err
		}},
		"FindOneAndUpdate": {"findAndModify", func(t *testing.T, c *client.Client) error {
			_, err := c.FindOneAndUpdate(t.Context(), orders, one, inc, client.FindOneAndOptions{})
			return err
		}},
		"FindOneAndDelete": {"findAndModify", func(t *testing.T, c *client.Client) error {
			_, err := c.FindOneAndDelete(t.Context(), orders, one, client.FindOneAndOptions{})
			return err
		}},
		"BulkWrite": {"insert", func(t *testing.T, c *client.Client) error {
			models := []client.WriteModel{insertOne}
			_, err := c.BulkWrite(t.Context(), orders, models, client.BulkWriteOptions{})
			return err
		}},
		"ClientBulkWrite": {"bulkWrite", func(t *testing.T, c *client.Client) error {
			models := []client.NamespacedWriteModel{{Namespace: orders, WriteModel: insertOne}}
			_, err := c.ClientBulkWrite(t.Context(), models, client.NamespacedBulkWriteOptions{})
			return err
		}},
	}
}

// The replies of the tests below.
var (
	lostReply  = fakemongo.Always(fakemongo.Drop())
	noPrimary  = fakemongo.Always(fakemongo.Error(10107, "", "no", mongoerr.LabelRetryableWrite))
	tooBusy    = fakemongo.Always(fakemongo.Error(462, "", "busy", overloaded...))
	killed     = fakemongo.Always(fakemongo.Error(11601, "Interrupted", "killed"))
	interrupts = fakemongo.Always(fakemongo.Error(11602, "", "no", mongoerr.LabelRetryableWrite))
)

// onPrimary runs a test on one server, whose replies to a command are given, with fake time.
func onPrimary(
	t *testing.T, command string, replies []fakemongo.Handler,
	test func(t *testing.T, cluster *fakemongo.Cluster, c *client.Client),
) {
	t.Helper()
	onServer(t, fakemongo.Primary, command, replies, test)
}

// onServer does what onPrimary does, on a server of a role.
func onServer(
	t *testing.T, role fakemongo.Role, command string, replies []fakemongo.Handler,
	test func(t *testing.T, cluster *fakemongo.Cluster, c *client.Client),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := fakemongo.ClusterConfig{WireVersion: 27}
		cluster := fakemongo.NewCluster(t, cfg, role)
		c := connect(t, cluster, "", client.Options{Jitter: func() float64 { return 1 }})
		synctest.Wait()
		for name, h := range ends() {
			cluster.Host(0).Handle(name, h)
		}
		answers(cluster, command, replies...)
		test(t, cluster, c)
	})
}

// TestOutcomeOfAllAttempts checks that the error of a write tells what all attempts together came
// to: a server that refuses a retry does not know what the first attempt did.
func TestOutcomeOfAllAttempts(t *testing.T) {
	concern := fakemongo.Always(fakemongo.Document(doc(t, `{"ok":1,"n":1,"nModified":1,
		"errorLabels":["RetryableWriteError"],
		"writeConcernError":{"code":91,"errmsg":"bye"}}`)))
	lostShard := fakemongo.Always(fakemongo.Error(6, "", "no", mongoerr.LabelRetryableWrite))
	duplicate := fakemongo.Always(fakemongo.Error(11000, "", "duplicate"))
	for name, tt := range map[string]struct {
		replies []fakemongo.Handler
		want    mongoerr.Delivery
	}{
		"lost, then no primary":        {[]fakemongo.Handler{lostReply, noPrimary}, mongoerr.Unanswered},
		"lost, then overloaded":        {[]fakemongo.Handler{lostReply, tooBusy}, mongoerr.Unanswered},
		"overloaded, then lost":        {[]fakemongo.Handler{tooBusy, lostReply}, mongoerr.Unanswered},
		"lost, then interrupted":       {[]fakemongo.Handler{lostReply, killed}, mongoerr.Unanswered},
		"a lost shard, no primary":     {[]fakemongo.Handler{lostShard, noPrimary}, mongoerr.Unanswered},
		"no write concern, no primary": {[]fakemongo.Handler{concern, noPrimary}, mongoerr.Unanswered},
		"lost, then a duplicate key":   {[]fakemongo.Handler{lostReply, duplicate}, mongoerr.Executed},
		"no primary":                   {[]fakemongo.Handler{noPrimary}, mongoerr.Refused},
		"overloaded":                   {[]fakemongo.Handler{tooBusy}, mongoerr.Refused},
	} {
		for call, write := range retryableWrites(t) {
			t.Run(call+"/"+name, func(t *testing.T) {
				onPrimary(t, write.command, tt.replies,
					func(t *testing.T, _ *fakemongo.Cluster, c *client.Client) {
						err := write.run(t, c)
						if got := mongoerr.Judge(err).Delivery; got != tt.want {
							t.Errorf("%v, which is %v, want %v", err, got, tt.want)
						}
						unknown := isA[*operation.OutcomeUnknownError](err)
						if unknown != (tt.want == mongoerr.Unanswered) {
							t.Errorf("%v: unknown outcome %v", err, unknown)
						}
						if unknown && mongoerr.IsRetryableOverload(err) {
							t.Errorf("%v has the labels %v", err, mongoerr.Labels(err))
						}
					})
			})
		}
	}
}

// TestInterruptedInTheMiddle checks that a change of the server's state leaves the outcome open of
// a command that may be done in part only.
func TestInterruptedInTheMiddle(t *testing.T) {
	for call, write := range retryableWrites(t) {
		onPrimary(t, write.command, []fakemongo.Handler{interrupts},
			func(t *testing.T, _ *fakemongo.Cluster, c *client.Client) {
				err := write.run(t, c)
				unknown := isA[*operation.OutcomeUnknownError](err)
				if unknown != (call == "InsertMany") || mongoerr.Code(err) != 11602 {
					t.Errorf("%s: %v, unknown outcome: %v", call, err, unknown)
				}
			})
	}
}

// TestStateChangeOfMongos checks that an error which a mongos may have from a shard, or which ended
// its own wait for one, leaves the outcome open, unless the retry tells.
func TestStateChangeOfMongos(t *testing.T) {
	stops := fakemongo.Always(fakemongo.Error(11600, "", "no", mongoerr.LabelRetryableWrite))
	unlabeled := fakemongo.Always(fakemongo.Error(189, "", "no"))
	duplicate := fakemongo.Always(fakemongo.Error(11000, "", "duplicate"))
	for name, tt := range map[string]struct {
		replies []fakemongo.Handler
		code    int32
		unknown bool
	}{
		"once":                 {[]fakemongo.Handler{unlabeled}, 189, true},
		"twice":                {[]fakemongo.Handler{stops, noPrimary}, 10107, true},
		"then overloaded":      {[]fakemongo.Handler{stops, tooBusy}, 11600, true},
		"then a duplicate key": {[]fakemongo.Handler{stops, duplicate}, 11000, false},
	} {
		for call, write := range retryableWrites(t) {
			t.Run(call+"/"+name, func(t *testing.T) {
				onServer(t, fakemongo.Mongos, write.command, tt.replies,
					func(t *testing.T, _ *fakemongo.Cluster, c *client.Client) {
						err := write.run(t, c)
						unknown := isA[*operation.OutcomeUnknownError](err)
						if unknown != tt.unknown || mongoerr.Code(err) != tt.code {
							t.Errorf("%v, want code %d, unknown outcome: %v", err, tt.code,
								tt.unknown)
						}
					})
			})
		}
	}
}

// TestStateChangeBehindBalancer checks the same of a mongos behind a load balancer.
func TestStateChangeBehindBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})
		for _, s := range b.Services() {
			s.Handle("insert", noPrimary)
		}
		c := startBalanced(t, b, b.URI(""), client.Options{})
		_, err := c.InsertOne(t.Context(), orders, doc(t, `{"_id":1}`), client.InsertOneOptions{})
		if !isA[*operation.OutcomeUnknownError](err) || mongoerr.Code(err) != 10107 {
			t.Errorf("InsertOne() = %v, want an unknown outcome", err)
		}
	})
}

// TestDeadlineAfterLostReply checks that a write is not taken for unsent if its time runs out
// before the retry.
func TestDeadlineAfterLostReply(t *testing.T) {
	var server *fakemongo.Server
	gone := func(*fakemongo.Command) fakemongo.Reply {
		go server.SetDown(true)
		return fakemongo.Drop()
	}
	onPrimary(t, "insert", []fakemongo.Handler{gone},
		func(t *testing.T, cluster *fakemongo.Cluster, c *client.Client) {
			server = cluster.Host(0).Server
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := c.InsertOne(ctx, orders, doc(t, `{"_id":1}`), client.InsertOneOptions{})
			if mongoerr.Judge(err).Delivery != mongoerr.Unanswered ||
				!errors.Is(err, context.DeadlineExceeded) ||
				!isA[*operation.OutcomeUnknownError](err) {
				t.Errorf("InsertOne() = %v, want an unknown outcome at the deadline", err)
			}
		})
}

// TestCommitStaysUnknown checks that a refusal does not hide that an earlier attempt of the commit
// may have been carried out, be it of the same call or of one before.
func TestCommitStaysUnknown(t *testing.T) {
	aborted := fakemongo.Always(
		fakemongo.Error(251, "", "none", mongoerr.LabelTransientTransaction))
	for name, tt := range map[string]struct {
		replies []fakemongo.Handler
		calls   int
		unknown bool
	}{
		"lost, then overloaded":        {[]fakemongo.Handler{lostReply, tooBusy}, 1, true},
		"lost, then interrupted":       {[]fakemongo.Handler{lostReply, killed}, 1, true},
		"lost, then the next refused":  {[]fakemongo.Handler{lostReply, lostReply, tooBusy}, 2, true},
		"lost, then the next one done": {[]fakemongo.Handler{lostReply, lostReply, own}, 2, false},
		"lost, then aborted":           {[]fakemongo.Handler{lostReply, lostReply, aborted}, 2, false},
		"overloaded":                   {[]fakemongo.Handler{tooBusy}, 1, false},
		"overloaded, twice":            {[]fakemongo.Handler{tooBusy}, 2, false},
		"interrupted":                  {[]fakemongo.Handler{killed}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			for i, h := range tt.replies {
				if h == nil {
					tt.replies[i] = fakemongo.Always(fakemongo.OK(nil))
				}
			}
			onPrimary(t, "commitTransaction", tt.replies,
				func(t *testing.T, _ *fakemongo.Cluster, c *client.Client) {
					s := startSession(t, c, session.Options{})
					begin(t, s, client.TransactionOptions{})
					if err := insert(t, c, client.Common{Session: s}); err != nil {
						t.Fatal(err)
					}
					var err error
					for range tt.calls {
						err = s.CommitTransaction(t.Context(), client.EndTransactionOptions{})
					}
					label := mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult)
					if label != tt.unknown ||
						isA[*operation.OutcomeUnknownError](err) != tt.unknown {
						t.Errorf("CommitTransaction() = %v, labels %v, want unknown: %v", err,
							mongoerr.Labels(err), tt.unknown)
					}
				})
		})
	}
}

// TestWithTransactionRepeatsUnknownCommit checks that the callback does not run again, and that the
// repetitions of the commit have waits, after a commit whose outcome is unknown.
func TestWithTransactionRepeatsUnknownCommit(t *testing.T) {
	onPrimary(t, "commitTransaction", []fakemongo.Handler{lostReply, killed},
		func(t *testing.T, cluster *fakemongo.Cluster, c *client.Client) {
			s := startSession(t, c, session.Options{})
			err := s.WithTransaction(t.Context(), client.WithTransactionOptions{}, inserting(c, s))
			if !mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult) {
				t.Errorf("WithTransaction() = %v, labels %v", err, mongoerr.Labels(err))
			}
			if n := len(cluster.Host(0).Commands("insert")); n != 1 {
				t.Errorf("the callback ran %d times", n)
			}
			// 120 seconds, and at most two in each after the first dozen.
			if n := len(cluster.Host(0).Commands("commitTransaction")); n < 100 || n > 260 {
				t.Errorf("%d commits", n)
			}
		})
}

// TestWithTransactionCanceledInCommit checks that the error still says that the commit may have
// been carried out.
func TestWithTransactionCanceledInCommit(t *testing.T) {
	var cancel context.CancelFunc
	leave := func(*fakemongo.Command) fakemongo.Reply {
		cancel()
		return fakemongo.Hang()
	}
	onPrimary(t, "commitTransaction", []fakemongo.Handler{leave},
		func(t *testing.T, _ *fakemongo.Cluster, c *client.Client) {
			var ctx context.Context
			ctx, cancel = context.WithCancel(t.Context())
			defer cancel()
			s := startSession(t, c, session.Options{})
			err := s.WithTransaction(ctx, client.WithTransactionOptions{}, inserting(c, s))
			if !mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult) ||
				!errors.Is(err, context.Canceled) ||
				mongoerr.Judge(err).Delivery != mongoerr.Unanswered {
				t.Errorf("WithTransaction() = %v, labels %v", err, mongoerr.Labels(err))
			}
		})
}

// TestUnacknowledgedBulkCutOff checks that a bulk without acknowledgement does not say that nothing
// was sent if that is so of its last command only.
func TestUnacknowledgedBulkCutOff(t *testing.T) {
	without := client.Common{WriteConcern: unacknowledged}
	one := doc(t, `{"_id":1}`)
	models := []client.WriteModel{
		{Kind: client.InsertOne, Document: one}, {Kind: client.DeleteOne, Filter: one},
	}
	server := bulkServer{limits: `{"maxWireVersion":25,"maxWriteBatchSize":1}`}
	for name, bulk := range map[string]func(context.Context, *client.Client) error{
		"BulkWrite": func(ctx context.Context, c *client.Client) error {
			_, err := c.BulkWrite(ctx, orders, models, client.BulkWriteOptions{Common: without})
			return err
		},
		"ClientBulkWrite": func(ctx context.Context, c *client.Client) error {
			_, err := c.ClientBulkWrite(ctx, []client.NamespacedWriteModel{
				{Namespace: orders, WriteModel: models[0]}, {Namespace: orders, WriteModel: models[1]},
			}, client.NamespacedBulkWriteOptions{Common: without, Ordered: new(false)})
			return err
		},
	} {
		for sent, want := range []mongoerr.Delivery{mongoerr.Unsent, mongoerr.Executed} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if sent == 0 {
				cancel()
			}
			leave := &event.Sink{CommandSucceeded: func(e event.CommandSucceeded) {
				if e.Name == "insert" || e.Name == "bulkWrite" {
					cancel()
				}
			}}
			runWith(t, server.handlers(t), connstring.Config{}, client.Options{Sink: leave},
				func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
					err := bulk(ctx, c)
					if got := mongoerr.Judge(err).Delivery; got != want {
						t.Errorf("%s: %v after %d commands, which is %v, want %v", name, err, sent,
							got, want)
					}
				})
		}
	}
}

// TestRefusedReads checks what the last error of a read says: that it can be sent again, unless the
// server was writing its result.
func TestRefusedReads(t *testing.T) {
	find := func(t *testing.T, c *client.Client) error {
		_, err := c.Find(t.Context(), orders, client.FindOptions{})
		return err
	}
	aggregate := func(stages string) func(*testing.T, *client.Client) error {
		return func(t *testing.T, c *client.Client) error {
			opt := client.AggregateOptions{Pipeline: array(t, stages)}
			_, err := c.Aggregate(t.Context(), orders, opt)
			return err
		}
	}
	command := func(cmd string) func(*testing.T, *client.Client) error {
		return func(t *testing.T, c *client.Client) error {
			_, err := c.RunCommand(t.Context(), "shop", doc(t, cmd), client.RunCommandOptions{})
			return err
		}
	}
	for name, tt := range map[string]struct {
		read func(*testing.T, *client.Client) error
		code int32
		want mongoerr.Delivery
	}{
		"a find, by a mongos without its shard":  {find, 6, mongoerr.Refused},
		"a find, by a member that has no master": {find, 13435, mongoerr.Refused},
		"a find that is wrong":                   {find, 2, mongoerr.Executed},
		"an aggregation, in want of a network":   {aggregate(`[{"$match":{}}]`), 9001, mongoerr.Refused},
		"$merge, by no primary": {
			aggregate(`[{"$match":{}},{"$merge":"x"}]`), 10107, mongoerr.Unanswered,
		},
		"$out, by a primary that stops": {
			aggregate(`[{"$out":"x"}]`), 11600, mongoerr.Unanswered,
		},
		"$out that is wrong": {aggregate(`[{"$out":"x"}]`), 2, mongoerr.Executed},
		"RunCommand of $merge, by no primary": {
			command(`{"aggregate":"c","pipeline":[{"$match":{}},{"$merge":"x"}],"cursor":{}}`),
			10107, mongoerr.Unanswered,
		},
		"RunCommand of an aggregation, by no primary": {
			command(`{"aggregate":"c","pipeline":[{"$match":{}}],"cursor":{}}`),
			10107, mongoerr.Refused,
		},
		"RunCommand of an aggregation, by a server that stops": {
			command(`{"aggregate":1,"cursor":{}}`), 11600, mongoerr.Refused,
		},
		"RunCommand of mapReduce, by no primary": {
			command(`{"mapReduce":"c","out":"x"}`), 10058, mongoerr.Unanswered,
		},
		"RunCommand of mapReduce into a document, by no primary": {
			command(`{"mapreduce":"c","out":{"merge":"x"}}`), 13435, mongoerr.Unanswered,
		},
		"RunCommand of mapReduce that writes nothing, by no primary": {
			command(`{"mapReduce":"c","out":{"inline":1}}`), 10107, mongoerr.Refused,
		},
		"RunCommand of an insert, by no primary": {
			command(`{"insert":"c","documents":[{"_id":1}]}`), 10107, mongoerr.Refused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			refuse := fakemongo.Error(tt.code, "x", "x")
			handlers := fakemongo.Handlers{
				"find":      func(*fakemongo.Command) fakemongo.Reply { return refuse },
				"aggregate": func(*fakemongo.Command) fakemongo.Reply { return refuse },
				"mapReduce": func(*fakemongo.Command) fakemongo.Reply { return refuse },
				"mapreduce": func(*fakemongo.Command) fakemongo.Reply { return refuse },
				"insert":    func(*fakemongo.Command) fakemongo.Reply { return refuse },
			}
			run(t, handlers, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
				err := tt.read(t, c)
				if got := mongoerr.Judge(err).Delivery; got != tt.want ||
					mongoerr.Code(err) != tt.code {
					t.Errorf("%v is %v, want %v", err, got, tt.want)
				}
			})
		})
	}
}
