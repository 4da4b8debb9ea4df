package transaction_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/session"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/servicetest"
	"github.com/mooringdb/mooring/service/transaction"
)

// links are the ways between the replicas of a test, by address.
type links map[string]*link

// link leads to a replica. If lost is set, that is how calls fail.
type link struct {
	answer func(context.Context, *call.Forwarding) (call.Reply, error)
	lost   error
}

var _ interceptor.Replicas = links(nil)

func (l links) Forward(ctx context.Context, f *call.Forwarding) (call.Reply, error) {
	if lost := l[f.To.Address].lost; lost != nil {
		return call.Reply{}, lost
	}
	return l[f.To.Address].answer(ctx, f)
}

// newReplicas returns two gateways before one deployment that forward calls to each other.
func newReplicas(t *testing.T, topology deployment.Topology) (a, b *bank, between links) {
	t.Helper()
	d := newDeployment(t, topology)
	between = links{}
	return newReplica(t, d, "a:1", between), newReplica(t, d, "b:1", between), between
}

// newReplica returns a gateway that forwards calls to the others, and gets theirs from now on.
func newReplica(t *testing.T, d *deployment.Deployment, address string, between links) *bank {
	t.Helper()
	return newReplicaWith(t, d, address, between, servicetest.Config{})
}

// newReplicaWith returns one that is configured otherwise, too.
func newReplicaWith(
	t *testing.T, d *deployment.Deployment, address string, between links, cfg servicetest.Config,
) *bank {
	t.Helper()
	cfg.Handles.Keys, cfg.Handles.Replica, cfg.Replicas = newRing(t), address, between
	g := newBranch(t, d, cfg)
	between[address] = &link{answer: g.Answer}
	return g
}

// newRing returns the keys of all replicas.
func newRing(t *testing.T) *seal.Ring {
	t.Helper()
	key, err := seal.NewKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := seal.NewRing(key)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// TestForwardedClient checks that the owner learns the address of a client, with a name or without
// one, and that the call is forwarded.
func TestForwardedClient(t *testing.T) {
	a, b, between := newReplicas(t, deployment.ReplicaSet)
	var local call.Local
	between["a:1"].answer = func(_ context.Context, f *call.Forwarding) (call.Reply, error) {
		local = f.Local
		return call.Reply{Response: &mooringv1.UpdateOneResponse{}}, nil
	}
	client := netip.MustParseAddr("192.0.2.1")
	for _, name := range []string{"", "key:a"} {
		local = call.Local{}
		ctx := t.Context()
		var identity *caller.Identity
		if name != "" {
			ctx, identity = servicetest.As(ctx, name), &caller.Identity{Principal: name}
		}
		begun, err := a.Transaction.Begin(ctx, &mooringv1.TransactionServiceBeginRequest{})
		if err != nil {
			t.Fatal(err)
		}
		ctx = inproc.WithIncoming(t.Context(), call.Local{Identity: identity, Client: client}, nil)
		err = b.Local.Invoke(ctx, mooringv1.DocumentService_UpdateOne_FullMethodName,
			add(begun.GetTransaction(), "a", nil), &mooringv1.UpdateOneResponse{})
		if err != nil || !local.Forwarded || local.Client != client || local.Identity != identity {
			t.Errorf("UpdateOne = %v; forwarded %t, for %s, %v", err, local.Forwarded, local.Client,
				local.Identity)
		}
	}
}

// refused is the end of a way to a replica that is gone.
var refused = &paging.UnreachableError{Address: "a:1", Refused: true, Err: errors.New("refused")}

// TestForwarding runs a transaction at the replica that does not keep it.
func TestForwarding(t *testing.T) {
	for _, topology := range []deployment.Topology{
		deployment.ReplicaSet, deployment.Sharded, deployment.LoadBalanced,
	} {
		t.Run(string(topology), func(t *testing.T) {
			a, b, _ := newReplicas(t, topology)
			token := a.begin()
			n := int32(1)
			for range 2 { // the second one gets the result of the first
				res, err := b.Document.UpdateOne(t.Context(), add(token, "a", &n))
				if err != nil || res.GetMatchedCount() != 1 {
					t.Fatalf("UpdateOne = %v, %v", res, err)
				}
			}
			if code, body := b.post(updateOne, token, addB); code != 200 ||
				!strings.Contains(body, `"matchedCount":1`) {
				t.Fatalf("updateOne = %d %s", code, body)
			}
			find := &mooringv1.FindRequest{
				Database: "bank", Collection: "accounts", Transaction: &token,
				BatchSize: proto.Int32(1),
			}
			page, err := b.Document.Find(t.Context(), find)
			if err != nil || len(page.GetDocuments()) != 1 || page.GetCursor() == "" {
				t.Fatalf("Find = %v, %v", page, err)
			}
			next := &mooringv1.NextPageRequest{Cursor: page.GetCursor(), Transaction: &token}
			if page, err := b.Cursor.NextPage(t.Context(), next); err != nil ||
				len(page.GetDocuments()) != 1 {
				t.Errorf("NextPage = %v, %v", page, err)
			}
			ss, err := b.Document.StreamFind(t.Context(), &mooringv1.StreamFindRequest{
				Database: "bank", Collection: "accounts", Transaction: &token,
			})
			if err != nil {
				t.Fatal(err)
			}
			if m, err := ss.Recv(); err != nil || len(m.GetDocuments()) != 2 {
				t.Errorf("StreamFind = %v, %v", m, err)
			}
			if m, err := ss.Recv(); !errors.Is(err, io.EOF) { // until then the call is running
				t.Errorf("StreamFind = %v, %v, want its end", m, err)
			}
			if got := told(b.add("x", "a")); got != "NotFound TransactionNotFound never" {
				t.Errorf("a wrong token = %s", got)
			}
			for range 2 {
				if err := b.commit(token); err != nil {
					t.Errorf("Commit = %v", err)
				}
			}
			if got := a.balances(); got != after {
				t.Errorf("there is %s, want %s", got, after)
			}
			if got := told(b.abort(token)); got != "Aborted TransactionCommitted never" {
				t.Errorf("Abort after Commit = %s", got)
			}
		})
	}
}

// TestOwnerIsGone ends transactions whose owner is gone. On a replica set the servers tell what
// has become of them.
func TestOwnerIsGone(t *testing.T) {
	const (
		unknown   = "Unavailable UnknownTransactionCommitResult never"
		gone      = "Aborted TransactionOwnerGone transaction"
		committed = "Aborted TransactionCommitted never"
	)
	for _, row := range []struct {
		name     string
		topology deployment.Topology
		before   func(a *bank, token string) error // the owner goes
		commit   string
		there    string
		abort    string // after the commits
	}{
		{"open", deployment.ReplicaSet, nil, "OK", onlyA, committed},
		{"committed", deployment.ReplicaSet, (*bank).commit, "OK", onlyA, committed},
		{"aborted", deployment.ReplicaSet, (*bank).abort, gone, before, "OK"},
		{
			"committed, and the session used again", deployment.ReplicaSet,
			usedAgain((*bank).commit), unknown, onlyA, unknown,
		},
		{
			"aborted, and the session used again", deployment.ReplicaSet,
			usedAgain((*bank).abort), unknown, before, unknown,
		},
		{"sharded", deployment.Sharded, nil, unknown, before, unknown},
		{"sharded, committed", deployment.Sharded, (*bank).commit, unknown, onlyA, unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, b, between := newReplicas(t, row.topology)
			token := a.begin()
			if err := b.add(token, "a"); err != nil {
				t.Fatal(err)
			}
			if row.before != nil {
				if err := row.before(a, token); err != nil {
					t.Fatal(err)
				}
			}
			between["a:1"].lost = refused
			if got := told(b.add(token, "b")); got != gone {
				t.Errorf("UpdateOne = %s, want %s", got, gone)
			}
			for range 2 {
				if got := told(b.commit(token)); got != row.commit {
					t.Errorf("Commit = %s, want %s", got, row.commit)
				}
			}
			if got := b.balances(); got != row.there {
				t.Errorf("there is %s, want %s", got, row.there)
			}
			for range 2 {
				if got := told(b.abort(token)); got != row.abort {
					t.Errorf("Abort = %s, want %s", got, row.abort)
				}
			}
		})
	}
}

// usedAgain ends a transaction, and uses its session on the server for a write outside of it.
func usedAgain(end func(*bank, string) error) func(*bank, string) error {
	return func(b *bank, token string) error {
		if err := end(b, token); err != nil {
			return err
		}
		_, err := b.Document.InsertOne(b.t.Context(), &mooringv1.InsertOneRequest{
			Database: "bank", Collection: "others", Document: doc(`{}`),
		})
		return err
	}
}

// TestAbortWithoutOwner aborts an open transaction on the servers after its owner is gone.
func TestAbortWithoutOwner(t *testing.T) {
	a, b, between := newReplicas(t, deployment.ReplicaSet)
	token := a.begin()
	if err := b.add(token, "a"); err != nil {
		t.Fatal(err)
	}
	between["a:1"].lost = refused
	if err := b.abort(token); err != nil {
		t.Errorf("Abort = %v", err)
	}
	if got := told(b.commit(token)); got != "Aborted TransactionOwnerGone transaction" {
		t.Errorf("Commit after Abort = %s", got)
	}
	if got := b.balances(); got != before {
		t.Errorf("there is %s, want %s", got, before)
	}
}

// TestAbortNotConfirmed checks that Abort is not a success without the answer of a server, once the
// owner is gone: the transaction may be committed. Repeated, it is.
func TestAbortNotConfirmed(t *testing.T) {
	// So answers a primary that does not know yet that there is another one.
	alone := `{"ok": 0, "code": 251, "codeName": "NoSuchTransaction", "errmsg": "no",
		"writeConcernError": {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "late"}}`
	for name, row := range map[string]struct {
		times int64
		reply fakemongo.Reply
	}{
		"no answer":             {2, fakemongo.Drop()},
		"an overloaded server":  {3, overloaded()},
		"none by one member":    {1, fakemongo.Document(raw(t, alone))},
		"a server's own reason": {1, fakemongo.Error(11601, "Interrupted", "no")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, between := newReplicas(t, deployment.ReplicaSet)
				token := a.begin()
				if err := a.add(token, "a"); err != nil {
					t.Fatal(err)
				}
				between["a:1"].lost = refused
				b.disturb("abortTransaction", row.times, row.reply)
				const want = "Unavailable UnknownTransactionCommitResult same-request"
				if got := told(b.abort(token)); got != want {
					t.Errorf("Abort = %s, want %s", got, want)
				}
				if err := b.abort(token); err != nil {
					t.Errorf("Abort again = %v", err)
				}
				if got := told(b.commit(token)); got != "Aborted TransactionOwnerGone transaction" {
					t.Errorf("Commit after Abort = %s", got)
				}
				if got := b.balances(); got != before {
					t.Errorf("there is %s, want %s", got, before)
				}
			})
		})
	}
}

// TestAddressesAreConcealed checks that the errors of Commit and Abort tell clients that are no
// operators no addresses of servers and replicas.
func TestAddressesAreConcealed(t *testing.T) {
	replicas := func(t *testing.T) (a, b *bank, between links) {
		d, between := newDeployment(t, deployment.ReplicaSet), links{}
		cfg := servicetest.Config{Operators: []string{}}
		return newReplicaWith(t, d, "a:1", between, cfg),
			newReplicaWith(t, d, "b:1", between, cfg), between
	}
	const unknown = "Unavailable UnknownTransactionCommitResult same-request"
	lost := &paging.UnreachableError{Address: "a:1", Sent: true, Err: errors.New("reset")}
	for _, row := range []struct {
		name string
		call func(t *testing.T, a, b *bank, token string) error
		lost error // how calls to a fail
		want string
	}{
		{"Commit again", func(t *testing.T, a, _ *bank, token string) error {
			_, err := a.Document.InsertOne(t.Context(), &mooringv1.InsertOneRequest{
				Database: "bank", Collection: "accounts", Transaction: &token,
				Document: doc(`{"_id": "a"}`),
			})
			if err == nil || a.commit(token) == nil {
				t.Error("the insertion of a document that exists is committed")
			}
			return a.commit(token)
		}, nil, "Aborted TransactionAborted transaction"},
		{"Abort without an answer", func(_ *testing.T, _, b *bank, token string) error {
			b.disturb("abortTransaction", 2, fakemongo.Drop())
			return b.abort(token)
		}, refused, unknown},
		{"Abort of a member alone", func(_ *testing.T, _, b *bank, token string) error {
			b.disturb("abortTransaction", 1, fakemongo.Error(11601, "Interrupted", "no"))
			return b.abort(token)
		}, refused, unknown},
		{"Commit without an owner's answer", func(_ *testing.T, _, b *bank, token string) error {
			return b.commit(token)
		}, lost, unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, b, between := replicas(t)
			token := a.begin()
			if err := a.add(token, "a"); err != nil {
				t.Fatal(err)
			}
			between["a:1"].lost = row.lost
			err := row.call(t, a, b, token)
			said := prototext.Format(status.Convert(err).Proto())
			if told(err) != row.want || strings.Contains(said, "27017") ||
				strings.Contains(said, "a:1") {
				t.Errorf("%s, want %s without addresses:\n%s", told(err), row.want, said)
			}
		})
	}
}

// TestOwnerCutOff checks that the owner does not say that a transaction is aborted which another
// replica has committed, since that could not reach the owner. It says that it is committed once
// the majority has it.
func TestOwnerCutOff(t *testing.T) {
	const done = "Aborted TransactionCommitted never"
	for _, row := range []struct {
		name string
		end  func(t *testing.T, owner *bank, token string) // its transaction
	}{
		{"Abort", func(t *testing.T, owner *bank, token string) {
			if got := told(owner.abort(token)); got != done {
				t.Errorf("the first Abort at the owner = %s", got)
			}
		}},
		{"idle", func(*testing.T, *bank, string) {
			time.Sleep(transaction.DefaultIdle + time.Second) //nolint:forbidigo // time is fake
		}},
		{"killed", func(t *testing.T, owner *bank, _ string) { owner.kill() }},
		{"killed, and asked for before the server answers", func(
			t *testing.T, owner *bank, token string,
		) {
			asked, told := owner.slowAborts(), make(chan error, 1)
			go func() {
				<-asked
				told <- owner.commit(token)
			}()
			owner.kill()
			if err := <-told; err != nil {
				t.Errorf("Commit while it is killed = %v", err)
			}
		}},
		{"killed during Abort", func(t *testing.T, owner *bank, token string) {
			asked, aborted := owner.slowAborts(), make(chan error, 1)
			go func() { aborted <- owner.abort(token) }()
			<-asked
			owner.kill()
			if got := told(<-aborted); got != done {
				t.Errorf("the Abort while it is killed = %s", got)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, between := newReplicas(t, deployment.ReplicaSet)
				token := a.begin()
				if err := a.add(token, "a"); err != nil {
					t.Fatal(err)
				}
				between["a:1"].lost = refused
				if err := b.commit(token); err != nil {
					t.Fatal(err)
				}
				row.end(t, a, token)
				if got := told(a.add(token, "b")); got != done {
					t.Errorf("UpdateOne at the owner = %s", got)
				}
				if got := told(a.abort(token)); got != done {
					t.Errorf("Abort at the owner = %s", got)
				}
				a.watch("commitTransaction", fakemongo.Document(raw(t, late)))
				if got := told(a.commit(token)); got != unknownCommit {
					t.Errorf("Commit at the owner, before the majority has it = %s", got)
				}
				for range 2 {
					if err := usedAgain((*bank).commit)(a, token); err != nil {
						t.Errorf("Commit at the owner = %v", err)
					}
				}
				if got := a.balances(); got != onlyA {
					t.Errorf("there is %s, want %s", got, onlyA)
				}
			})
		})
	}
}

// TestOwnerCutOffWithoutAnswer: as long as no server has confirmed that a transaction is aborted,
// its owner does not say so: another replica may have committed it. If none has, nothing does any
// more.
func TestOwnerCutOffWithoutAnswer(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, owner *bank, token string){
		"Abort": func(t *testing.T, owner *bank, token string) {
			if got := told(owner.abort(token)); got != unknownCommit {
				t.Errorf("the first Abort = %s", got)
			}
		},
		"idle": func(*testing.T, *bank, string) {
			time.Sleep(transaction.DefaultIdle + time.Second) //nolint:forbidigo // time is fake
		},
		"killed": func(t *testing.T, owner *bank, _ string) { owner.kill() },
		"killed during Abort": func(t *testing.T, owner *bank, token string) {
			aborted := make(chan error, 1)
			go func() { aborted <- owner.abort(token) }()
			synctest.Wait()
			owner.kill()
			if got := told(<-aborted); got != unknownCommit {
				t.Errorf("the Abort while it is killed = %s", got)
			}
		},
	} {
		for state, want := range map[string]struct{ operation, abort, commit, there string }{
			"open": {
				"Aborted TransactionAborted transaction", "OK",
				"Aborted TransactionAborted transaction", before,
			},
			"committed": {
				"Aborted TransactionCommitted never", "Aborted TransactionCommitted never", "OK",
				onlyA,
			},
		} {
			t.Run(name+", "+state, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b, between := newReplicas(t, deployment.ReplicaSet)
					token := a.begin()
					if err := a.add(token, "a"); err != nil {
						t.Fatal(err)
					}
					between["a:1"].lost = refused
					if state == "committed" {
						if err := b.commit(token); err != nil {
							t.Fatal(err)
						}
					}
					a.disturb("abortTransaction", math.MaxInt64, fakemongo.Hang())
					end(t, a, token)
					calls := func(operation, abort, commit string) {
						t.Helper()
						for what, told := range map[string][2]string{
							"UpdateOne": {told(a.add(token, "b")), operation},
							"Abort":     {told(a.abort(token)), abort},
							"Commit":    {told(a.commit(token)), commit},
						} {
							if told[0] != told[1] {
								t.Errorf("%s = %s, want %s", what, told[0], told[1])
							}
						}
					}
					calls(unknownCommit, unknownCommit, unknownCommit)
					a.deployment.Disturb(nil)
					calls(want.operation, want.abort, want.commit)
					if got := b.balances(); got != want.there {
						t.Errorf("there is %s, want %s", got, want.there)
					}
				})
			})
		}
	}
}

// slowAborts makes aborts on the servers take a second, and says when the first one has begun.
func (b *bank) slowAborts() (begun <-chan struct{}) {
	first := make(chan struct{}, 1)
	b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "abortTransaction" {
			select {
			case first <- struct{}{}:
			default:
			}
			time.Sleep(time.Second) //nolint:forbidigo // time is fake
		}
		return next(cmd)
	})
	return first
}

// kill ends the only handle that is open, as an operator does.
func (b *bank) kill() {
	b.t.Helper()
	list, err := b.Deployment.ListHandles(b.t.Context(), &mooringv1.ListHandlesRequest{})
	if err != nil || len(list.GetHandles()) != 1 ||
		list.GetHandles()[0].GetKind() != "transaction" {
		b.t.Fatalf("ListHandles = %v, %v, want a transaction", list, err)
	}
	if _, err := b.Deployment.KillHandle(b.t.Context(),
		&mooringv1.KillHandleRequest{Id: list.GetHandles()[0].GetId()}); err != nil {
		b.t.Fatal(err)
	}
}

// TestLostAnswers: what a client may do when the owner does not answer depends on whether the call
// may have arrived, and whether it may be repeated.
func TestLostAnswers(t *testing.T) {
	a, b, between := newReplicas(t, deployment.ReplicaSet)
	token := a.begin()
	n := int32(1)
	unreachable := func(sent bool) error {
		return &paging.UnreachableError{Address: "a:1", Sent: sent, Err: errors.New("no answer")}
	}
	for _, row := range []struct {
		lost                        error
		plain, numbered, commitment string
	}{
		{
			unreachable(false), "Unavailable ReplicaUnreachable same-request", "Unavailable ReplicaUnreachable same-request",
			"Unavailable ReplicaUnreachable same-request",
		},
		{
			unreachable(true), "Unavailable ReplicaUnreachable transaction", "Unavailable ReplicaUnreachable same-request",
			"Unavailable UnknownTransactionCommitResult same-request",
		},
		{
			context.DeadlineExceeded, "DeadlineExceeded DeadlineExceeded transaction", "DeadlineExceeded DeadlineExceeded same-request",
			"Unavailable UnknownTransactionCommitResult same-request",
		},
	} {
		between["a:1"].lost = row.lost
		if got := told(b.add(token, "a")); got != row.plain {
			t.Errorf("%v: UpdateOne = %s, want %s", row.lost, got, row.plain)
		}
		if _, err := b.Document.UpdateOne(t.Context(),
			add(token, "a", &n)); told(err) != row.numbered {
			t.Errorf("%v: UpdateOne with a number = %s, want %s", row.lost, told(err),
				row.numbered)
		}
		if got := told(b.commit(token)); got != row.commitment {
			t.Errorf("%v: Commit = %s, want %s", row.lost, got, row.commitment)
		}
	}
}

// TestCutCommit: the replica that a client calls stops while the owner commits. The client must not
// run the transaction again.
func TestCutCommit(t *testing.T) {
	a, b, between := newReplicas(t, deployment.ReplicaSet)
	token := a.begin()
	answer := between["a:1"].answer
	between["a:1"].answer = func(ctx context.Context, f *call.Forwarding) (call.Reply, error) {
		over, cancel := context.WithCancel(ctx)
		cancel()
		go func() { _ = b.Gate.Drain(over) }()
		<-ctx.Done()
		_, _ = answer(context.WithoutCancel(ctx), f)
		return call.Reply{}, context.Cause(ctx)
	}
	const want = "Unavailable UnknownTransactionCommitResult same-request"
	if got := told(b.commit(token)); got != want {
		t.Errorf("Commit = %s, want %s", got, want)
	}
}

// TestQueuedCommit: the replica stops while Commit waits for its turn. Commit was not sent, so the
// client repeats it elsewhere, and need not run the transaction again.
func TestQueuedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{
			Admission: admission.New(admission.Config{
				Calls: admission.Limits{Total: 1}, Patience: time.Minute,
			}),
		})
		token := b.begin()
		if err := b.add(token, "a"); err != nil {
			t.Fatal(err)
		}
		answers := make(chan struct{})
		b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "find" {
				<-answers
			}
			return next(cmd)
		})
		found, committed := make(chan struct{}), make(chan error, 1)
		go func() {
			defer close(found)
			_, _ = b.Document.FindOne(t.Context(), // it may be cut
				&mooringv1.FindOneRequest{Database: "bank", Collection: "accounts"})
		}()
		synctest.Wait()
		go func() { committed <- b.commit(token) }()
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		drained := make(chan error, 1)
		go func() { drained <- b.Gate.Drain(over) }()
		if got := told(<-committed); got != "Unavailable ShuttingDown same-request" {
			t.Errorf("Commit = %s", got)
		}
		close(answers)
		<-found
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

// freeSession returns the id of the session that the client has used last and uses no more.
func (b *bank) freeSession() bson.UUID {
	b.t.Helper()
	s, err := b.Client.StartSession(session.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer s.End(b.t.Context())
	return s.ID()
}

// TestDrainEndsInTime checks that servers that do not answer take no more of the time to stop than
// Drain was given: the cursors of clients are handed over after it.
func TestDrainEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
		token := b.begin()
		for range 10 {
			page, err := b.Document.Find(t.Context(), &mooringv1.FindRequest{
				Database: "bank", Collection: "accounts", Transaction: &token,
				BatchSize: proto.Int32(1),
			})
			if err != nil || page.GetCursor() == "" {
				t.Fatalf("Find = %v, %v, want a cursor", page, err)
			}
		}
		answers := make(chan struct{})
		b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "abortTransaction" || cmd.Name == "killCursors" {
				<-answers
			}
			return next(cmd)
		})
		const given = 4 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), given)
		defer cancel()
		begun := time.Now()
		if err := b.Transactions.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v", err)
		}
		if took := time.Since(begun); took > given {
			t.Errorf("Drain took %s, want at most %s", took, given)
		}
		close(answers)
		settle()
	})
}

// TestDrain: a replica that stops aborts its transactions, and says so.
func TestDrain(t *testing.T) {
	a, b, between := newReplicas(t, deployment.ReplicaSet)
	token, committed := a.begin(), a.begin()
	if err := errors.Join(a.add(token, "a"), a.add(committed, "b"),
		a.commit(committed)); err != nil {
		t.Fatal(err)
	}
	if n := a.Transactions.Drained(); n != 0 {
		t.Errorf("%d were ended before the drain", n)
	}
	if err := a.Transactions.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := a.Transactions.Drained(); n != 1 {
		t.Errorf("%d were ended, want 1: the other one was committed", n)
	}
	for what, err := range map[string]error{
		"at its owner": a.add(token, "b"), "elsewhere": b.add(token, "b"), "the Commit": b.commit(token),
	} {
		if got := told(err); got != "Aborted TransactionAborted transaction" {
			t.Errorf("a call %s = %s", what, got)
		}
	}
	if err := b.commit(committed); err != nil {
		t.Errorf("Commit of what is committed = %v", err)
	}
	free := a.freeSession()
	if _, err := a.Transaction.Begin(t.Context(),
		&mooringv1.TransactionServiceBeginRequest{}); told(
		err) != "Unavailable ShuttingDown restart" {
		t.Errorf("Begin = %s", told(err))
	}
	if got := a.freeSession(); got != free {
		t.Errorf("the free session is %v, want %v: the Begin that was refused keeps one", got, free)
	}
	if err := a.Gate.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := told(b.add(token, "b")); got != "Aborted TransactionAborted transaction" {
		t.Errorf("a call behind the gate = %s", got)
	}
	if got := told(
		b.commit(token)); got != "Unavailable UnknownTransactionCommitResult same-request" {
		t.Errorf("Commit behind the gate = %s", got)
	}
	between["a:1"].lost = refused
	if got := told(b.commit(token)); got != "Aborted TransactionOwnerGone transaction" {
		t.Errorf("Commit after the end of the owner = %s", got)
	}
	if got := b.balances(); got != `{"_id":"a","n":10} {"_id":"b","n":11}` {
		t.Errorf("there is %s", got)
	}
}

// TestRefusingTable checks that no call of a transaction begins once the handles are about to end.
func TestRefusingTable(t *testing.T) {
	a, _, _ := newReplicas(t, deployment.ReplicaSet)
	token := a.begin()
	a.Handles.Table().Refuse()
	_, begin := a.Transaction.Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{})
	for what, err := range map[string]error{
		"Begin": begin, "UpdateOne": a.add(token, "a"), "Commit": a.commit(token),
	} {
		if got := told(err); got != "Unavailable ShuttingDown restart" {
			t.Errorf("%s = %s", what, got)
		}
	}
}

// TestRefusingTableAfterCommit checks that a client whose Commit got no answer repeats it until it
// knows more, also if the handles are about to end.
func TestRefusingTableAfterCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
		token := b.begin()
		if err := b.add(token, "a"); err != nil {
			t.Fatal(err)
		}
		b.watch("commitTransaction", fakemongo.Document(raw(t, late)))
		_ = b.commit(token)
		b.Handles.Table().Refuse()
		const want = "Unavailable UnknownTransactionCommitResult same-request"
		if got := told(b.commit(token)); got != want {
			t.Errorf("Commit again = %s, want %s", got, want)
		}
	})
}

// TestUncountable checks that a request which has no encoding is not run without being counted.
func TestUncountable(t *testing.T) {
	a, _, _ := newReplicas(t, deployment.ReplicaSet)
	request := add(a.begin(), "a", nil)
	request.Database = "\xff"
	in := call.InTransaction{
		Token: request.GetTransaction(), Request: request,
		Method: mooringv1.DocumentService_UpdateOne_FullMethodName, Statement: new(int32(1)),
	}
	run := func(context.Context) (proto.Message, error) { return nil, errors.New("it runs") }
	_, err := a.Transactions.Run(&call.Context{Context: t.Context()}, in, run)
	if err == nil || !strings.Contains(err.Error(), "invalid UTF-8") {
		t.Errorf("Run = %v, want that it is not UTF-8", err)
	}
}

// TestMisuse makes calls that cannot be part of their transaction, over gRPC and REST, at its
// owner and at another replica.
func TestMisuse(t *testing.T) {
	for _, row := range []struct {
		name string
		// spoil makes the next call of the transaction fail, and returns what undoes that.
		spoil     func(t *testing.T, a *bank, between links, token string) (undo func())
		elsewhere bool   // only calls at the other replica are made
		principal string // that begins the transaction
		reason    rpcerr.Reason
		code      int
	}{
		{
			name: "its owner is gone", elsewhere: true, reason: rpcerr.TransactionOwnerGone, code: 409,
			spoil: func(_ *testing.T, _ *bank, between links, _ string) func() {
				between["a:1"].lost = refused
				return nil
			},
		},
		{
			name: "it was idle", reason: rpcerr.TransactionAborted, code: 409,
			spoil: func(*testing.T, *bank, links, string) func() {
				time.Sleep(transaction.DefaultIdle + time.Second) //nolint:forbidigo // time is fake
				return nil
			},
		},
		{
			name: "an operator has killed it", reason: rpcerr.TransactionAborted, code: 409,
			spoil: func(_ *testing.T, a *bank, _ links, _ string) func() {
				a.kill()
				return nil
			},
		},
		{
			name: "another call is running", reason: rpcerr.TransactionBusy, code: 409,
			spoil: func(t *testing.T, a *bank, _ links, token string) func() {
				held := make(chan struct{})
				a.deployment.Disturb(func(
					cmd *fakemongo.Command, next fakemongo.Handler,
				) fakemongo.Reply {
					if cmd.Name == "update" {
						<-held
					}
					return next(cmd)
				})
				running := make(chan error, 1)
				go func() { running <- a.add(token, "a") }()
				synctest.Wait()
				return func() {
					close(held)
					if err := <-running; err != nil {
						t.Errorf("the call that was running = %v", err)
					}
				}
			},
		},
		{name: "it is another client's", principal: "ann", reason: rpcerr.TransactionNotFound, code: 404},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, between := newReplicas(t, deployment.ReplicaSet)
				ctx := t.Context()
				if row.principal != "" {
					ctx = servicetest.As(ctx, row.principal)
				}
				begun, err := a.Transaction.Begin(ctx, &mooringv1.TransactionServiceBeginRequest{})
				if err != nil {
					t.Fatal(err)
				}
				token := begun.GetTransaction()
				var undo func()
				if row.spoil != nil {
					undo = row.spoil(t, a, between, token)
				}
				callers := map[string]*bank{"the owner": a, "another replica": b}
				if row.elsewhere {
					delete(callers, "the owner")
				}
				for name, g := range callers {
					if got := rpcerr.HTTP(g.add(token, "b")).Body.GetError().
						GetReason(); got != string(row.reason) {
						t.Errorf("gRPC at %s: %s, want %s", name, got, row.reason)
					}
					code, body := g.post(updateOne, token, addB)
					if code != row.code ||
						!strings.Contains(body, `"reason":"`+string(row.reason)+`"`) {
						t.Errorf("REST at %s: %d %s, want %d %s", name, code, body, row.code,
							row.reason)
					}
				}
				if undo != nil {
					undo()
				}
				if got := a.balances(); got != before {
					t.Errorf("there is %s, want %s", got, before)
				}
			})
		})
	}
}
