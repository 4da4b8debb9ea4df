package transaction_test

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/servicetest"
)

// TestCommitIsDecidedAgain replaces the rules while transactions are open. A commit is refused, and
// the transaction aborted, if its client would not be allowed its operations any more.
func TestCommitIsDecidedAgain(t *testing.T) {
	parse := func(text string) *policy.Policy {
		t.Helper()
		p, err := policy.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const wide = `permit (principal, action, resource);`
	e := policy.NewEnforcer(policy.Config{Policy: parse(wide)})
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{Policy: e})
	for i, row := range []struct {
		name, rules string
		want        codes.Code
	}{
		{"the same", wide, codes.OK},
		{"other rules that permit it", `permit (principal, action in Action::"write", resource in Database::"bank");`, codes.OK},
		{"no write", `permit (principal, action in Action::"read", resource);`, codes.PermissionDenied},
		{"a forbid", wide + ` forbid (principal, action == Action::"InsertOne", resource == Collection::"bank.accounts");`, codes.PermissionDenied},
		{"a limit", `@readonly("n") permit (principal, action, resource);`, codes.PermissionDenied},
	} {
		e.Replace(parse(wide))
		begun, err := b.Transaction.Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Document.InsertOne(t.Context(), &mooringv1.InsertOneRequest{
			Database: "bank", Collection: "accounts", Transaction: new(begun.Transaction),
			Document: doc(`{"_id": ` + string(rune('0'+i)) + `, "n": 1}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Replace(parse(row.rules))
		for range 2 {
			_, err = b.Transaction.Commit(t.Context(),
				&mooringv1.TransactionServiceCommitRequest{Transaction: new(begun.Transaction)})
			if row.want == codes.OK && err != nil || row.want != codes.OK && err == nil {
				t.Errorf("%s: %v", row.name, err)
			}
			if row.want != codes.OK && status.Code(err) == codes.PermissionDenied {
				continue
			}
		}
		e.Replace(parse(wide))
		found, err := b.Document.CountDocuments(t.Context(), &mooringv1.CountDocumentsRequest{
			Database: "bank", Collection: "accounts",
			Filter: doc(`{"_id": ` + string(rune('0'+i)) + `}`),
		})
		if err != nil || (found.GetCount() == 1) != (row.want == codes.OK) {
			t.Errorf("%s: %d documents, %v", row.name, found.GetCount(), err)
		}
	}
}

// TestGroundsAreCharged checks that what the policy has allowed a transaction's operations by is
// charged until the transaction ends.
func TestGroundsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.Parse([]byte(`permit (principal, action, resource);`))
		if err != nil {
			t.Fatal(err)
		}
		const operations, name = 100, 200
		a := admission.New(admission.Config{Bytes: 64 << 20})
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{
			Policy: policy.NewEnforcer(policy.Config{Policy: p}), Admission: a,
		})
		find := func(token string, n int) {
			t.Helper()
			_, err := b.Document.FindOne(t.Context(), &mooringv1.FindOneRequest{
				Database: "bank", Collection: fmt.Sprint(strings.Repeat("c", name), n),
				Transaction: &token, Statement: new(int32(n)),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for what, end := range map[string]func(token string) error{
			"Commit": b.commit, "Abort": b.abort,
		} {
			token := b.begin()
			for n := range operations {
				find(token, n+1)
			}
			find(token, operations) // again
			settle()
			got := a.Bytes().Held
			if least := int64(operations * name); got < least || got > 2*least {
				t.Errorf("%d bytes are held before %s, want %d to %d", got, what, least, 2*least)
			}
			if err := end(token); err != nil {
				t.Error(err)
			}
			settle()
			if got := a.Bytes().Held; got != 0 {
				t.Errorf("%d bytes are held after %s", got, what)
			}
		}
	})
}

// TestCommitAfterItsOwner loses the replica that keeps a transaction, and with it what the policy
// has allowed its operations by. Commit is made as long as the rules are known to be the same ones;
// else the transaction is aborted, unless it was committed.
func TestCommitAfterItsOwner(t *testing.T) {
	const same, skew = time.Hour, time.Minute
	const aborted = "Aborted TransactionAborted transaction"
	for name, row := range map[string]struct {
		// age is how long the rules are there when the transaction begins.
		age       time.Duration
		change    bool // they are replaced before Commit
		committed bool // by the owner
		want      string
		done      bool
		last      string // command that ends a transaction
	}{
		"the same rules":                      {same, false, false, "OK", true, "commitTransaction"},
		"other rules":                         {same, true, false, aborted, false, "abortTransaction"},
		"other rules after a commit":          {same, true, true, "OK", true, "commitTransaction"},
		"rules that are no older than clocks": {skew - time.Second, false, false, aborted, false, "abortTransaction"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rules = `permit (principal, action, resource);`
				parse := func(text string) *policy.Policy {
					p, err := policy.Parse([]byte(text))
					if err != nil {
						t.Fatal(err)
					}
					return p
				}
				e := policy.NewEnforcer(policy.Config{Policy: parse(rules)})
				d, between := newDeployment(t, deployment.ReplicaSet), links{}
				a := newReplicaWith(t, d, "a:1", between, servicetest.Config{Policy: e})
				b := newReplicaWith(t, d, "b:1", between, servicetest.Config{Policy: e})
				time.Sleep(row.age) //nolint:forbidigo // time is fake
				token := a.begin()
				if err := a.add(token, "a"); err != nil {
					t.Fatal(err)
				}
				if row.committed {
					if err := a.commit(token); err != nil {
						t.Fatal(err)
					}
				}
				between["a:1"].lost = refused
				if row.change {
					e.Replace(parse(rules + ` // again`))
				}
				var last atomic.Value
				d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
					majority, _ := cmd.Body.Lookup("writeConcern", "w")
					if strings.HasSuffix(cmd.Name, "Transaction") &&
						majority.Equal(bson.StringValue("majority")) {
						last.Store(cmd.Name)
					}
					return next(cmd)
				})
				for range 2 {
					if got := told(b.commit(token)); got != row.want {
						t.Errorf("Commit = %s, want %s", got, row.want)
					}
				}
				if last.Load() != row.last {
					t.Errorf("the last command for a majority is %v, want %s", last.Load(),
						row.last)
				}
				if got := b.balances(); (got == onlyA) != row.done {
					t.Errorf("there is %s, committed: %t", got, row.done)
				}
			})
		})
	}
}

// TestOwnerCutOffWithOtherRules: the owner does not say that the policy has stopped a commit which
// another replica, that could not reach it, has made.
func TestOwnerCutOffWithOtherRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parse := func(action string) *policy.Policy {
			p, err := policy.Parse([]byte(`permit (principal, ` + action + `, resource);`))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		rules := policy.NewEnforcer(policy.Config{Policy: parse("action")})
		others := policy.NewEnforcer(policy.Config{Policy: parse("action")})
		d, between := newDeployment(t, deployment.ReplicaSet), links{}
		a := newReplicaWith(t, d, "a:1", between, servicetest.Config{Policy: rules})
		b := newReplicaWith(t, d, "b:1", between, servicetest.Config{Policy: others})
		time.Sleep(time.Hour) //nolint:forbidigo // time is fake
		token := a.begin()
		if err := a.add(token, "a"); err != nil {
			t.Fatal(err)
		}
		between["a:1"].lost = refused
		if err := b.commit(token); err != nil {
			t.Fatal(err)
		}
		rules.Replace(parse(`action in [Action::"read", Action::"own"]`))
		a.disturb("abortTransaction", math.MaxInt64, fakemongo.Hang())
		for range 2 {
			if got := told(a.commit(token)); got != unknownCommit {
				t.Errorf("Commit at the owner, without an answer of the servers = %s", got)
			}
		}
		a.watch("commitTransaction", fakemongo.Document(raw(t, late)))
		if got := told(a.commit(token)); got != unknownCommit {
			t.Errorf("Commit at the owner, before the majority has it = %s", got)
		}
		for range 2 {
			if err := a.commit(token); err != nil {
				t.Errorf("Commit at the owner = %v", err)
			}
		}
		if got := b.balances(); got != onlyA {
			t.Errorf("there is %s, want %s", got, onlyA)
		}
	})
}

// TestStoppedCommitWithoutAnswer: a commit that the policy has stopped is not made by a repeated
// one, although no server has confirmed the abort yet.
func TestStoppedCommitWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parse := func(rules string) *policy.Policy {
			p, err := policy.Parse([]byte(rules))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		e := policy.NewEnforcer(policy.Config{Policy: parse(`permit (principal, action, resource);`)})
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{Policy: e})
		for _, kill := range []bool{false, true} {
			e.Replace(parse(`permit (principal, action, resource);`))
			token := b.begin()
			if err := b.add(token, "a"); err != nil {
				t.Fatal(err)
			}
			e.Replace(parse(`permit (principal, action in [Action::"read", Action::"own",
				Action::"KillHandle", Action::"ListHandles"], resource);`))
			b.disturb("abortTransaction", math.MaxInt64, fakemongo.Hang())
			stopped, meanwhile := make(chan error, 1), make(chan error, 1)
			go func() { stopped <- b.commit(token) }()
			synctest.Wait()
			time.AfterFunc(time.Second, func() { meanwhile <- b.commit(token) })
			if kill {
				b.kill()
			}
			if got := told(<-meanwhile); kill && got != unknownCommit ||
				!kill && got != "Aborted TransactionBusy same-request" {
				t.Errorf("killed %t: a Commit meanwhile = %s", kill, got)
			}
			if got := told(<-stopped); got != unknownCommit {
				t.Errorf("killed %t: the Commit that is stopped = %s", kill, got)
			}
			b.deployment.Disturb(nil)
			for range 2 {
				if got := told(b.commit(token)); got != "Aborted TransactionAborted transaction" {
					t.Errorf("killed %t: Commit again = %s", kill, got)
				}
			}
			if got := b.balances(); got != before {
				t.Errorf("killed %t: there is %s, want %s", kill, got, before)
			}
		}
	})
}
