package transaction_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
	"github.com/mooringdb/mooring/service/transaction"
)

// seen records the commands of a name that the deployment gets from now on.
type seen struct {
	mu  sync.Mutex
	all []bson.Raw
}

// watch answers the commands of that name with the replies first, and then as the deployment does.
func (b *bank) watch(name string, replies ...fakemongo.Reply) *seen {
	s := &seen{}
	b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name != name {
			return next(cmd)
		}
		s.mu.Lock()
		n := len(s.all)
		s.all = append(s.all, slices.Clone(cmd.Body))
		s.mu.Unlock()
		if n < len(replies) {
			return replies[n]
		}
		return next(cmd)
	})
	return s
}

// take returns the commands since the last call, each with the fields at these paths only.
func (s *seen) take(t *testing.T, keys ...string) (texts []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cmd := range s.all {
		b := bson.NewBuilder(nil)
		for _, key := range keys {
			if v, ok := cmd.Lookup(key); ok {
				b.Value(key, v)
			}
		}
		text, err := extjson.Append(nil, b.Finish(), extjson.Relaxed)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	s.all = nil
	return texts
}

// TestRecoveredConcern checks that a commit and an abort of a transaction whose owner is gone wait
// for the majority: another member might know nothing of the first commit.
func TestRecoveredConcern(t *testing.T) {
	for name, end := range map[string]func(*bank, string) error{
		"commitTransaction": (*bank).commit, "abortTransaction": (*bank).abort,
	} {
		a, b, between := newReplicas(t, deployment.ReplicaSet)
		token := a.begin()
		if err := a.add(token, "a"); err != nil {
			t.Fatal(err)
		}
		between["a:1"].lost = refused
		commands := b.watch(name)
		if err := end(b, token); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := []string{`{"writeConcern":{"w":"majority","wtimeout":10000}}`}
		if got := commands.take(t, "writeConcern"); !slices.Equal(got, want) {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
}

// TestRecoveredAbortIsRepeated checks that Abort tells of a commit also if its first command got no
// answer.
func TestRecoveredAbortIsRepeated(t *testing.T) {
	a, b, between := newReplicas(t, deployment.ReplicaSet)
	token := a.begin()
	if err := errors.Join(a.add(token, "a"), a.commit(token)); err != nil {
		t.Fatal(err)
	}
	between["a:1"].lost = refused
	b.watch("abortTransaction", fakemongo.Drop())
	if got := told(b.abort(token)); got != "Aborted TransactionCommitted never" {
		t.Errorf("Abort = %s", got)
	}
}

// TestOutcomeIsForgotten checks that the servers are asked for 25 minutes, and not later: they
// forget the outcome, and would say of a committed transaction that there is none.
func TestOutcomeIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const unknown = "Unavailable UnknownTransactionCommitResult never"
		a, b, between := newReplicas(t, deployment.ReplicaSet)
		begun, token := time.Now(), a.begin()
		if err := errors.Join(a.add(token, "a"), a.commit(token)); err != nil {
			t.Fatal(err)
		}
		between["a:1"].lost = refused
		time.Sleep(time.Until(begun.Add(25*time.Minute - time.Second))) //nolint:forbidigo // fake time
		if err := b.commit(token); err != nil {
			t.Errorf("Commit before 25 minutes have passed = %v", err)
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // time is fake
		commits := b.watch("commitTransaction")
		for what, err := range map[string]error{
			"Commit": b.commit(token), "Abort": b.abort(token),
		} {
			if got := told(err); got != unknown {
				t.Errorf("%s after 25 minutes = %s, want %s", what, got, unknown)
			}
		}
		if got := commits.take(t); len(got) > 0 {
			t.Errorf("the servers are asked %d times after 25 minutes", len(got))
		}
	})
}

// TestRecoveryIsUnknown checks that a transaction whose owner is gone is not called aborted as long
// as its commit is unknown, whatever other label the error has.
func TestRecoveryIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, between := newReplicas(t, deployment.ReplicaSet)
		token := a.begin()
		if err := a.add(token, "a"); err != nil {
			t.Fatal(err)
		}
		between["a:1"].lost = refused
		both := fakemongo.Error(50, "MaxTimeMSExpired", "late",
			"TransientTransactionError", "UnknownTransactionCommitResult")
		b.watch("commitTransaction", both)
		const unknown = "Unavailable UnknownTransactionCommitResult same-request"
		if got := told(b.commit(token)); got != unknown {
			t.Errorf("Commit = %s, want %s", got, unknown)
		}
		if err := b.commit(token); err != nil {
			t.Errorf("Commit again = %v", err)
		}
		if got := b.balances(); got != onlyA {
			t.Errorf("there is %s, want %s", got, onlyA)
		}
	})
}

// TestCommitRunsOn checks that a commit that was sent runs to its end although its client leaves:
// its connection stays open, and the owner knows what came of it.
func TestCommitRunsOn(t *testing.T) {
	for name, row := range map[string]struct {
		gone bool // the owner is
		want int  // commands, for two calls
	}{"at its owner": {false, 1}, "without its owner": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, between := newReplicas(t, deployment.ReplicaSet)
				token := a.begin()
				if err := a.add(token, "a"); err != nil {
					t.Fatal(err)
				}
				g := a
				if row.gone {
					g, between["a:1"].lost = b, refused
				}
				if _, err := g.Document.FindOne(t.Context(), &mooringv1.FindOneRequest{
					Database: "bank", Collection: "accounts",
				}); err != nil {
					t.Fatal(err) // the servers are known now
				}
				var mu sync.Mutex
				var on []int // connections
				g.deployment.Disturb(func(
					cmd *fakemongo.Command, next fakemongo.Handler,
				) fakemongo.Reply {
					reply := next(cmd)
					if cmd.Name == "commitTransaction" {
						mu.Lock()
						on = append(on, cmd.Connection)
						mu.Unlock()
						reply = reply.After(time.Second)
					}
					return reply
				})
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(500*time.Millisecond, leave)
				_, err := g.Transaction.Commit(ctx, &mooringv1.TransactionServiceCommitRequest{
					Transaction: &token,
				})
				if status.Code(err) != codes.Canceled {
					t.Errorf("the Commit whose client leaves = %v", err)
				}
				settle()
				if err := g.commit(token); err != nil {
					t.Errorf("Commit again = %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if len(on) != row.want || on[0] != on[len(on)-1] {
					t.Errorf("commits were sent on the connections %v, want %d on one", on,
						row.want)
				}
			})
		})
	}
}

// TestOtherLife checks that a replica makes no call that was meant for an earlier life of it, whose
// transactions it does not have.
func TestOtherLife(t *testing.T) {
	a, b, between := newReplicas(t, deployment.ReplicaSet)
	token := a.begin()
	if err := a.add(token, "a"); err != nil {
		t.Fatal(err)
	}
	next := newReplica(t, a.deployment, "a:1", between)
	local := call.Local{Forwarded: true, Owner: a.Handles.Self().Instance}
	_, err := next.Answer(t.Context(), &call.Forwarding{
		Method: mooringv1.DocumentService_CountDocuments_FullMethodName,
		Request: &mooringv1.CountDocumentsRequest{
			Database: "bank", Collection: "accounts", Transaction: &token,
		},
		Answer: (&mooringv1.CountDocumentsResponse{}).ProtoReflect().Type(), Local: local,
	})
	if !errors.Is(err, paging.ErrNotHere) {
		t.Errorf("a call for the earlier life = %v, want %v", err, paging.ErrNotHere)
	}
	reply, err := next.Answer(t.Context(), &call.Forwarding{
		Method: mooringv1.DocumentService_StreamFind_FullMethodName, Streams: true,
		Request: &mooringv1.StreamFindRequest{
			Database: "bank", Collection: "accounts", Transaction: &token,
		},
		Answer: (&mooringv1.StreamFindResponse{}).ProtoReflect().Type(), Local: local,
	})
	if err == nil {
		_, err = reply.Stream.Recv()
	}
	if !errors.Is(err, paging.ErrNotHere) {
		t.Errorf("a stream for the earlier life = %v, want %v", err, paging.ErrNotHere)
	}
	for name, g := range map[string]*bank{"the new life": next, "another replica": b} {
		if got := told(g.add(token, "b")); got != "Aborted TransactionOwnerGone transaction" {
			t.Errorf("UpdateOne at %s = %s", name, got)
		}
		if err := g.commit(token); err != nil {
			t.Errorf("Commit at %s = %v", name, err)
		}
	}
	if got := b.balances(); got != onlyA {
		t.Errorf("there is %s, want %s", got, onlyA)
	}
}

// TestNoCallToItself checks that a replica does not forward a call to its own address, which an
// earlier life of it had.
func TestNoCallToItself(t *testing.T) {
	a, _, between := newReplicas(t, deployment.ReplicaSet)
	token := a.begin()
	next := newReplica(t, a.deployment, "a:1", between)
	between["a:1"].answer = func(ctx context.Context, f *call.Forwarding) (call.Reply, error) {
		t.Error("a call is forwarded")
		return next.Answer(ctx, f)
	}
	if got := told(next.add(token, "b")); got != "Aborted TransactionOwnerGone transaction" {
		t.Errorf("UpdateOne at the new life = %s", got)
	}
}

// TestOtherDeployment checks that a token is valid for one deployment only, though the keys are the
// same: the session in it means another transaction elsewhere, or none.
func TestOtherDeployment(t *testing.T) {
	a, _, _ := newReplicas(t, deployment.ReplicaSet)
	token := a.begin()
	for name, want := range map[string]string{
		"test": "Aborted TransactionOwnerGone transaction", "other": "NotFound TransactionNotFound never",
	} {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
		other := transaction.New(transaction.Config{
			Client: b.Client, Cursors: b.Handles, Keys: newRing(t), Deployment: name,
		})
		in := call.InTransaction{
			Token: token, Method: mooringv1.DocumentService_UpdateOne_FullMethodName,
			Request: add(token, "a", nil),
		}
		ctx := &call.Context{Context: t.Context()}
		run := func(context.Context) (proto.Message, error) { return nil, errors.New("it runs") }
		_, err := other.Run(ctx, in, run)
		if away, ok := errors.AsType[call.Elsewhere](err); ok {
			_, err = away.Route(ctx, nil, func(context.Context, page.Replica) (call.Reply, error) {
				return call.Reply{}, refused
			})
		}
		if got := told(rpcerr.Status(err).Err()); got != want {
			t.Errorf("deployment %s: %s, want %s", name, got, want)
		}
	}
}

// unknownCommit is the error of a call that is to be repeated until the outcome is known.
const unknownCommit = "Unavailable UnknownTransactionCommitResult same-request"

// late is the reply to a commit that the majority has not confirmed.
const late = `{"ok": 1, "writeConcernError":
	{"code": 64, "codeName": "WriteConcernFailed", "errmsg": "late"}}`

// TestAbortWithoutMajority: a transaction that a server has aborted is aborted, although the
// majority has not confirmed that.
func TestAbortWithoutMajority(t *testing.T) {
	a, b, _ := newReplicas(t, deployment.ReplicaSet)
	for name, at := range map[string]*bank{"the owner": a, "another replica": b} {
		token := a.begin()
		if err := a.add(token, "a"); err != nil {
			t.Fatal(err)
		}
		a.disturb("abortTransaction", 1, fakemongo.Document(raw(t, late)))
		if err := at.abort(token); err != nil {
			t.Errorf("Abort at %s = %v", name, err)
		}
		if got := told(a.commit(token)); got != "Aborted TransactionAborted transaction" {
			t.Errorf("Commit after Abort at %s = %s", name, got)
		}
	}
}

// TestSessionOfUnknownCommit checks that the session of a transaction whose commit is unknown is
// not used again: another number of it would make the servers forget what became of the commit.
func TestSessionOfUnknownCommit(t *testing.T) {
	for name, row := range map[string]struct {
		reply  fakemongo.Reply
		commit string
		again  bool
	}{
		"committed": {fakemongo.OK(nil), "OK", true},
		"unknown": {
			fakemongo.Document(raw(t, late)),
			"Unavailable UnknownTransactionCommitResult same-request", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
				token := b.begin()
				updates := b.watch("update")
				if err := b.add(token, "a"); err != nil {
					t.Fatal(err)
				}
				used := updates.take(t, "lsid")
				b.watch("commitTransaction", row.reply)
				if got := told(b.commit(token)); got != row.commit {
					t.Errorf("Commit = %s, want %s", got, row.commit)
				}
				time.Sleep(transaction.DefaultIdle + time.Second) //nolint:forbidigo // time is fake
				synctest.Wait()
				if got := told(b.abort(token)); got != "Aborted TransactionCommitted never" {
					t.Errorf("Abort = %s", got)
				}
				updates = b.watch("update")
				if err := b.add(b.begin(), "b"); err != nil {
					t.Fatal(err)
				}
				if got := updates.take(t, "lsid"); slices.Equal(got, used) != row.again {
					t.Errorf("the next transaction has the session %s after %s", got, used)
				}
			})
		})
	}
}
