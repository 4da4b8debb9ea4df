package rolling_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// office has clients at replicas whose keys are changed, as docs/operations.md says.
type office struct {
	*gatewaytest.Replicas
	t *testing.T

	mu      sync.Mutex
	done    map[string]int // calls, by what they are
	refused int
	waits   []int // Retry-After of calls with a key that were refused
}

// reply is what a client reads of any response.
type reply struct {
	status               int
	wait                 int // Retry-After
	Session, Transaction string
	MatchedCount         int
	Error                *failure
}

func (o *office) post(path, key string, body any) (r reply) {
	text, err := json.Marshal(body)
	if err != nil {
		o.t.Error(err)
		return r
	}
	req, err := http.NewRequest(http.MethodPost, o.Any().REST+path, bytes.NewReader(text))
	if err != nil {
		o.t.Error(err)
		return r
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Errorf("%s: %v", path, err)
		return r
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		o.t.Errorf("%s: %v", path, err)
	}
	r.status = resp.StatusCode
	r.wait, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	return r
}

// ok is post for a call that must succeed.
func (o *office) ok(what, path, key string, body any) reply {
	r := o.post(path, key, body)
	if r.status != http.StatusOK {
		o.t.Errorf("%s: %d %+v", what, r.status, r.Error)
		return r
	}
	o.mu.Lock()
	o.done[what]++
	o.mu.Unlock()
	return r
}

type fields = map[string]any

func add(account int) fields {
	return fields{"filter": fields{"_id": account}, "update": fields{"$inc": fields{"n": 1}}}
}

const (
	updateOne = "/v1/databases/bank/collections/accounts/documents:updateOne"
	findOne   = "/v1/databases/bank/collections/accounts/documents:findOne"
)

// suspended is the error of calls with a key while the idempotency key changes.
var suspended = failure{Reason: "IdempotencyUnavailable", Retry: "same-request"}

// pay makes payments with a key, each several times. It returns how many were accepted.
func (o *office) pay(ctx context.Context, account int) (accepted int) {
	for n := 0; ctx.Err() == nil; n++ {
		is := false
		for range 1 + rand.IntN(3) {
			r := o.post(updateOne, fmt.Sprintf("%d-%d", account, n), add(account))
			o.mu.Lock()
			switch {
			case r.status == http.StatusOK:
				is = true
				o.done["payment"]++
			case r.Error != nil && *r.Error == suspended:
				o.refused++
				o.waits = append(o.waits, r.wait)
			default:
				o.t.Errorf("payment: %d %+v", r.status, r.Error)
			}
			o.mu.Unlock()
		}
		if is {
			accepted++
		}
	}
	return accepted
}

// read reads in one session, all the time.
func (o *office) read(ctx context.Context) {
	session := o.ok("session", "/v1/sessions:start", "", fields{}).Session
	for ctx.Err() == nil && session != "" {
		session = o.ok("read", findOne, "", fields{"session": session}).Session
		pause(20 * time.Millisecond)
	}
}

// transact makes transactions, each call at any replica. It returns how many are committed.
func (o *office) transact(ctx context.Context, account int) (committed int) {
	for ctx.Err() == nil {
		token := o.ok("begin", "/v1/transactions:begin", "", fields{}).Transaction
		body := add(account)
		body["transaction"], body["statement"] = token, 1
		o.ok("statement", updateOne, "", body)
		pause(50 * time.Millisecond)
		o.ok("commit", "/v1/transactions:commit", "", fields{"transaction": token})
		committed++
	}
	return committed
}

// change has each replica read a file that is changed, one after the other, and waits for its log.
func (o *office) change(file, log string, lines ...string) {
	o.t.Helper()
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		o.t.Fatal(err)
	}
	for i := range replicas {
		if err := o.Replica(i).Signal(syscall.SIGHUP); err != nil {
			o.t.Fatal(err)
		}
		o.says(i, log, fmt.Sprintf("keys=%d", len(lines)))
		pause(200 * time.Millisecond) // in which replicas have different keys
	}
}

// says waits until the log of a replica has a line with both texts, the last of those with the
// first.
func (o *office) says(i int, text, also string) {
	o.t.Helper()
	gatewaytest.Eventually(o.t, time.Minute, func() error {
		log := o.Replica(i).Tail()
		last := log[max(strings.LastIndex(log, text), 0):]
		line, _, _ := strings.Cut(last, "\n")
		if strings.HasPrefix(line, text) && strings.Contains(line, also) {
			return nil
		}
		return fmt.Errorf("replica %d does not log %s %s", i, text, also)
	})
}

// TestKeys changes the handle keys of three replicas by steps 1 and 2 of the procedure, and then
// announces another idempotency key, while clients make payments with a key, read in sessions and
// make transactions: no call fails. From the time of the change on only calls with a key are
// refused, also by a replica that is restarted, for 31 minutes; the change is then taken back, and
// no payment was made twice. Half an hour later is for service/transaction, in fake time.
func TestKeys(t *testing.T) {
	d := deployment.ListenUnrecorded(t, deployment.ReplicaSet, deployment.Versions[0])
	const clients = 4 // of each kind
	var docs []bson.Raw
	for i := range 2 * clients {
		docs = append(docs, bson.NewBuilder(nil).Int32("_id", int32(i)).Int32("n", 0).Finish())
	}
	d.SetDocuments("bank.accounts", docs...)
	all := suite.StartReplicas(t, replicas, d.URI(true, nil))
	o := &office{t: t, Replicas: all, done: map[string]int{}}
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	handle, key := read(o.HandleKeys), read(o.IdempotencyKey)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var want [2 * clients]int
	var working sync.WaitGroup
	for i := range clients {
		working.Go(func() { want[i] = o.pay(ctx, i) })
		working.Go(func() { o.read(ctx) })
		working.Go(func() { want[clients+i] = o.transact(ctx, clients+i) })
	}
	second, other := suite.NewKey(t), suite.NewKey(t)
	const handleRead, keyRead = `msg="handle keys read"`, `msg="idempotency key read"`
	o.change(o.HandleKeys, handleRead, handle, second)
	third := suite.NewKey(t) // so that the log tells this step from the last
	o.change(o.HandleKeys, handleRead, second, handle, third)
	o.refusedOnly(0, 0)
	change := time.Now().Add(25 * time.Second).Truncate(time.Second)
	o.change(o.IdempotencyKey, keyRead, key, change.UTC().Format(time.RFC3339)+" "+other)
	pause(time.Until(change) - 5*time.Second)
	o.refusedOnly(0, 0)
	pause(time.Until(change) + time.Second)
	o.forget()
	pause(time.Second)
	gatewaytest.Eventually(t, 15*time.Second, func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.refused == 0 {
			return errors.New("no call is refused")
		}
		return nil
	})
	o.refusedOnly(1, 31*60)
	stop()
	working.Wait()
	o.Replace(t.Context(), 0, true)
	o.forget()
	for range 10 * replicas {
		if r := o.post(updateOne, "new", add(0)); r.Error == nil || *r.Error != suspended {
			t.Errorf("a call with a key after a restart: %d %+v", r.status, r.Error)
		}
	}
	o.change(o.IdempotencyKey, keyRead, key)
	for i := range clients { // the first call of each, again
		o.ok("payment again", updateOne, fmt.Sprintf("%d-0", i), add(i))
	}
	t.Logf("calls: %v; refused: %d", o.done, o.refused)
	found, _ := d.Documents("bank.accounts")
	for i, doc := range found {
		n, _ := doc.Lookup("n")
		if got, _ := n.AsInt64(); int(got) != want[i] || got == 0 {
			t.Errorf("account %d has %d, want %d", i, got, want[i])
		}
	}
}

// forget forgets what was refused before.
func (o *office) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused, o.waits = 0, nil
}

// refusedOnly checks that so many calls with a key at least were refused, or none, and that they
// were told to wait that long at most, and half a minute less at least.
func (o *office) refusedOnly(least, longest int) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refused < least || least == 0 && o.refused > 0 {
		o.t.Errorf("%d calls were refused", o.refused)
	}
	for _, wait := range o.waits {
		if wait > longest || wait < longest-30 {
			o.t.Errorf("Retry-After is %d, want %d or a little less", wait, longest)
		}
	}
}
