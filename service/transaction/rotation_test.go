package transaction_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/hub"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/servicetest"
)

// office is a replica whose keys change while it runs.
type office struct {
	*bank
	ring    *seal.Ring
	tickets *changestream.Tickets
}

// newOffices returns replicas before one deployment that forward calls to each other.
func newOffices(t *testing.T, n int, keys string, key seal.Key) (offices []*office,
	start func() *office,
) {
	t.Helper()
	d := newDeployment(t, deployment.ReplicaSet)
	between := links{}
	start = func() *office {
		t.Helper()
		ring, err := seal.NewRing(key)
		if err != nil {
			t.Fatal(err)
		}
		var cfg servicetest.Config
		cfg.Handles.Keys, cfg.Handles.Replica = ring, fmt.Sprintf("%c:1", 'a'+len(between))
		cfg.Handles.Deployment = "test" // as in the other tokens
		cfg.Idempotency, cfg.Replicas = schedule(t, keys), between
		b := newBranch(t, d, cfg)
		between[cfg.Handles.Replica] = &link{answer: b.Answer}
		return &office{b, ring, changestream.NewTickets(ring, "test")}
	}
	for range n {
		offices = append(offices, start())
	}
	return offices, start
}

func schedule(t *testing.T, keys string) idempotency.Schedule {
	t.Helper()
	s, err := idempotency.ParseSchedule([]byte(keys))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newKey(t *testing.T, c string) seal.Key {
	t.Helper()
	key, err := seal.NewKey([]byte(strings.Repeat(c, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// pay makes a call with a key, which adds 1 to an account.
func (o *office) pay(ctx context.Context, key, account string) error {
	req := add("", account, nil)
	req.Transaction = nil
	_, err := o.Document.UpdateOne(metadata.AppendToOutgoingContext(ctx, "idempotency-key", key),
		req)
	return err
}

// ask reads in a session, and returns its renewed token.
func (o *office) ask(session string) string {
	o.t.Helper()
	res, err := o.Document.FindOne(o.t.Context(), &mooringv1.FindOneRequest{
		Database: "bank", Collection: "accounts", Session: &session,
	})
	if err != nil {
		o.t.Errorf("a call in a session: %s", told(err))
	}
	return res.GetSession()
}

// holding is what a client got before a step of the procedure.
type holding struct {
	cursor, session, transaction, committed, ticket string
	owner                                           *office // of the cursor, which stays there
}

// hold takes one of each kind from a replica. Its open transaction changes that account.
func (o *office) hold(account string) holding {
	o.t.Helper()
	ctx := o.t.Context()
	page, err := o.Document.Find(ctx, &mooringv1.FindRequest{
		Database: "bank", Collection: "accounts", BatchSize: proto.Int32(1),
	})
	if err != nil {
		o.t.Fatal(err)
	}
	started, err := o.Session.Start(ctx, &mooringv1.SessionServiceStartRequest{})
	if err != nil {
		o.t.Fatal(err)
	}
	h := holding{
		cursor: page.GetCursor(), session: started.GetSession(), ticket: o.ticket(), owner: o,
		transaction: o.begin(), committed: o.begin(),
	}
	for _, err := range []error{
		o.add(h.transaction, account), o.add(h.committed, "a"), o.commit(h.committed),
	} {
		if err != nil {
			o.t.Fatal(err)
		}
	}
	return h
}

func (o *office) ticket() string {
	o.t.Helper()
	s := changestream.New(changestream.Config{
		Client: o.Client, Tickets: o.tickets, Hub: hub.New(hub.Config{}),
	})
	res, err := s.CreateTicket(&call.Context{Context: o.t.Context()},
		&mooringv1.CreateTicketRequest{
			Watch: &mooringv1.WatchRequest{Database: "bank", Collection: proto.String("accounts")},
		})
	if err != nil {
		o.t.Fatal(err)
	}
	return res.GetUrl()[strings.LastIndexAny(res.GetUrl(), "=/")+1:]
}

// use uses what a client holds, at any replica; what is used up is not checked again.
func (o *office) use(step string, h *holding, age time.Duration) {
	o.t.Helper()
	ctx := o.t.Context()
	if age <= time.Minute && h.transaction != "" {
		if err := o.commit(h.transaction); err != nil {
			o.t.Errorf("%s: Commit = %s", step, told(err))
		}
		h.committed, h.transaction = h.transaction, ""
	}
	if age < 10*time.Minute && h.cursor != "" {
		page, err := h.owner.Cursor.NextPage(ctx, &mooringv1.NextPageRequest{Cursor: h.cursor})
		if err != nil || len(page.GetDocuments()) == 0 {
			o.t.Errorf("%s: NextPage = %s", step, told(err))
		}
		h.cursor = ""
	}
	if age < 25*time.Minute {
		if err := o.commit(h.committed); err != nil {
			o.t.Errorf("%s: Commit again = %s", step, told(err))
		}
	}
	h.session = o.ask(h.session)
	if _, _, err := o.tickets.Open(h.ticket); err != nil {
		o.t.Errorf("%s: a ticket = %v", step, err)
	}
}

// TestRotation follows the procedure of docs/operations.md: three steps for the handle keys, with
// an hour before the third. What clients got before each step works at all replicas until its life
// ends, and a call with a key is one write, also at a replica that is started meanwhile.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newKey(t, "1"), newKey(t, "2")
		offices, start := newOffices(t, 3, keyOne, one)
		const payment = "payment-1"
		documents := []bson.Raw{raw(t, `{"_id": "a", "n": 0}`), raw(t, `{"_id": "b", "n": 0}`)}
		for i := range offices {
			documents = append(documents, raw(t, fmt.Sprintf(`{"_id": "t%d", "n": 0}`, i)))
		}
		offices[0].deployment.SetDocuments(accounts, documents...)
		pay := func(step string, o *office) {
			t.Helper()
			if err := o.pay(t.Context(), payment, "b"); err != nil {
				t.Errorf("%s: the call with a key = %s", step, told(err))
			}
		}
		pay("before", offices[0])
		want := func(account string, n int) {
			t.Helper()
			if got := fmt.Sprintf(`{"_id":"%s","n":%d}`, account,
				n); !strings.Contains(offices[0].balances(), got) {
				t.Errorf("there is %s, want %s", offices[0].balances(), got)
			}
		}
		want("b", 1)
		steps := []struct {
			name string
			keys []seal.Key
			wait time.Duration // before the step
		}{
			{"step 1", []seal.Key{one, two}, 0},
			{"step 2", []seal.Key{two, one}, time.Minute},
			{"step 3", []seal.Key{two}, changestream.TicketLife},
		}
		var last holding
		for n, step := range steps {
			if step.wait > time.Minute { // sessions are used, or else they end after half an hour
				for range 2 {
					time.Sleep(29 * time.Minute) //nolint:forbidigo // fake time
					last.session = offices[0].ask(last.session)
				}
				time.Sleep(2*time.Minute - time.Second) //nolint:forbidigo // fake time
				offices[1].use("before "+step.name, &last, time.Hour)
				time.Sleep(time.Second) //nolint:forbidigo // fake time
			} else {
				time.Sleep(step.wait) //nolint:forbidigo // fake time
			}
			held := make([]holding, len(offices))
			for i, o := range offices {
				held[i] = o.hold(fmt.Sprint("t", i))
			}
			for i, o := range offices {
				if step.name == "step 2" && i == 2 {
					last = o.hold("b") // the last tokens of the old key
				}
				if err := o.ring.Replace(step.keys...); err != nil {
					t.Fatal(err)
				}
				for j := range held {
					offices[(i+j)%len(offices)].use(step.name, &held[j], 0)
				}
				if step.wait <= time.Minute {
					pay(step.name, o)
				}
			}
			want("b", 1)
			for i := range offices {
				want(fmt.Sprint("t", i), n+1)
			}
			if step.wait <= time.Minute {
				fresh := start()
				if err := fresh.ring.Replace(step.keys...); err != nil {
					t.Fatal(err)
				}
				pay("a new replica after "+step.name, fresh)
				want("b", 1)
			}
		}
		last.session = offices[2].ask(last.session)
	})
}

const (
	keyOne = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	keyTwo = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
)

// TestIdempotencyKeyChanges changes the idempotency key while clients make a payment each minute
// and repeat it at other replicas, for half an hour: no payment is made twice. Replicas read the
// file at different times before the change, and one is started in the middle of it.
func TestIdempotencyKeyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offices, start := newOffices(t, 3, keyOne, newKey(t, "1"))
		const before, payments = 40, 120
		change := time.Now().Add(before * time.Minute)
		changed := keyOne + "\n" + change.Format(time.RFC3339) + " " + keyTwo
		var documents []bson.Raw
		for i := range payments {
			documents = append(documents, raw(t, fmt.Sprintf(`{"_id": "p%d", "n": 0}`, i)))
		}
		offices[0].deployment.SetDocuments(accounts, documents...)
		accepted, refused := make([]int, payments), 0
		for minute := range payments + 30 {
			if i := minute - (before - 3); i >= 0 && i < 3 {
				if late, err := offices[i].Exact.Replace(schedule(t, changed)); err != nil ||
					late > 0 {
					t.Fatalf("Replace = %v, %v", late, err)
				}
			}
			if minute == before+10 {
				o := start()
				if _, err := o.Exact.Replace(schedule(t, changed)); err != nil {
					t.Fatal(err)
				}
				offices[1] = o
			}
			for _, age := range []int{0, 1, 5, 15, 29, 30} {
				p := minute - age
				if p < 0 || p >= payments {
					continue
				}
				err := offices[(p+age)%3].pay(t.Context(), fmt.Sprint("payment-", p),
					fmt.Sprint("p", p))
				switch {
				case err == nil:
					accepted[p]++
				case told(err) == "Unavailable IdempotencyUnavailable same-request" &&
					minute >= before && minute < before+31:
					refused++
				default:
					t.Errorf("payment %d after %d minutes: %s", p, age, told(err))
				}
			}
			time.Sleep(time.Minute) //nolint:forbidigo // fake time
		}
		balances := offices[0].balances()
		for p := range payments {
			want := `{"_id":"p` + fmt.Sprint(p) + `","n":` + fmt.Sprint(min(accepted[p], 1)) + "}"
			if !strings.Contains(balances, want) {
				t.Errorf("payment %d was accepted %d times; there is no %s", p, accepted[p], want)
			}
		}
		if refused < 100 {
			t.Errorf("%d calls were refused", refused)
		}
	})
}
