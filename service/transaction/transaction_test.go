package transaction_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func raw(t testing.TB, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var doc = servicetest.JSON

// bank is a gateway before a deployment that has the accounts of a bank.
type bank struct {
	*servicetest.Gateway
	deployment *deployment.Deployment
	t          *testing.T
}

const accounts = "bank.accounts"

func newBank(t *testing.T, topology deployment.Topology, cfg servicetest.Config) *bank {
	t.Helper()
	return newBranch(t, newDeployment(t, topology), cfg)
}

// newDeployment returns a deployment that has the accounts of a bank.
func newDeployment(t *testing.T, topology deployment.Topology) *deployment.Deployment {
	t.Helper()
	d := deployment.New(t, topology, "8.0.0")
	d.SetDocuments(accounts, raw(t, `{"_id": "a", "n": 10}`), raw(t, `{"_id": "b", "n": 10}`))
	return d
}

// newBranch returns another gateway before the deployment of a bank.
func newBranch(t *testing.T, d *deployment.Deployment, cfg servicetest.Config) *bank {
	t.Helper()
	return newBranchOn(t, d, d.Dial, cfg)
}

// newBranchOn returns a gateway whose connections to the deployment are those of dial.
func newBranchOn(
	t *testing.T, d *deployment.Deployment, dial servicetest.Dialer, cfg servicetest.Config,
) *bank {
	t.Helper()
	uri := d.URI(false, nil)
	if !strings.Contains(uri, "?") {
		uri += "?"
	}
	g := servicetest.StartOn(t, uri, dial, cfg)
	return &bank{g, d, t}
}

// balances is what the deployment has, as JSON.
func (b *bank) balances() string {
	docs, _ := b.deployment.Documents(accounts)
	var texts []string
	for _, d := range docs {
		text, err := extjson.Append(nil, d, extjson.Relaxed)
		if err != nil {
			b.t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, " ")
}

func (b *bank) begin() string {
	b.t.Helper()
	res, err := b.Transaction.Begin(b.t.Context(), &mooringv1.TransactionServiceBeginRequest{})
	if err != nil {
		b.t.Fatal(err)
	}
	if res.GetTransaction() == "" || res.GetExpireTime() == nil {
		b.t.Fatalf("Begin = %v, want a token and a time", res)
	}
	return res.GetTransaction()
}

func add(transaction, account string, statement *int32) *mooringv1.UpdateOneRequest {
	return &mooringv1.UpdateOneRequest{
		Database: "bank", Collection: "accounts", Transaction: &transaction, Statement: statement,
		Filter: doc(`{"_id": "` + account + `"}`),
		Update: &mooringv1.Update{
			Kind: &mooringv1.Update_Operators{Operators: doc(`{"$inc": {"n": 1}}`)},
		},
	}
}

func (b *bank) add(transaction, account string) error {
	_, err := b.Document.UpdateOne(b.t.Context(), add(transaction, account, nil))
	return err
}

func (b *bank) commit(transaction string) error {
	_, err := b.Transaction.Commit(b.t.Context(),
		&mooringv1.TransactionServiceCommitRequest{Transaction: &transaction})
	return err
}

func (b *bank) abort(transaction string) error {
	_, err := b.Transaction.Abort(b.t.Context(),
		&mooringv1.TransactionServiceAbortRequest{Transaction: &transaction})
	return err
}

// told is what a client is told of an error: "OK", or the code, the HTTP status, the reason and
// the retry.
func told(err error) string {
	if err == nil {
		return "OK"
	}
	e := rpcerr.HTTP(err).Body.GetError()
	return strings.Join([]string{status.Code(err).String(), e.GetReason(), e.GetRetry()}, " ")
}

const (
	before = `{"_id":"a","n":10} {"_id":"b","n":10}`
	after  = `{"_id":"a","n":11} {"_id":"b","n":11}`
)

// TestCommitAndAbort runs a transaction to each of its ends, on each topology that has them.
func TestCommitAndAbort(t *testing.T) {
	for _, topology := range []deployment.Topology{
		deployment.ReplicaSet, deployment.Sharded, deployment.LoadBalanced,
	} {
		t.Run(string(topology), func(t *testing.T) {
			b := newBank(t, topology, servicetest.Config{})
			for range 2 {
				token := b.begin()
				for _, account := range []string{"a", "b"} {
					if err := b.add(token, account); err != nil {
						t.Fatal(err)
					}
				}
				if got := b.balances(); got != before {
					t.Fatalf("before the end there is %s", got)
				}
				for range 2 { // it may be repeated
					if err := b.abort(token); err != nil {
						t.Errorf("Abort = %v", err)
					}
				}
				for what, err := range map[string]error{
					"Commit": b.commit(token), "UpdateOne": b.add(token, "a"),
				} {
					if got := told(err); got != "Aborted TransactionAborted transaction" {
						t.Errorf("%s after Abort = %s", what, got)
					}
				}
			}
			token := b.begin()
			for _, account := range []string{"a", "b"} {
				if err := b.add(token, account); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := b.commit(token); err != nil {
					t.Errorf("Commit = %v", err)
				}
			}
			if got := b.balances(); got != after {
				t.Errorf("after Commit there is %s", got)
			}
			for what, err := range map[string]error{
				"Abort": b.abort(token), "UpdateOne": b.add(token, "a"),
			} {
				if got := told(err); got != "Aborted TransactionCommitted never" {
					t.Errorf("%s after Commit = %s", what, got)
				}
			}
		})
	}
}

// TestStandalone checks that no transaction begins on a standalone server, which has none.
func TestStandalone(t *testing.T) {
	b := newBank(t, deployment.Single, servicetest.Config{})
	if _, err := b.Document.CountDocuments(t.Context(), &mooringv1.CountDocumentsRequest{
		Database: "bank", Collection: "accounts",
	}); err != nil { // the gateway knows the server now
		t.Fatal(err)
	}
	const want = "InvalidArgument InvalidArgument never"
	_, err := b.Transaction.Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{})
	if told(err) != want ||
		!strings.Contains(err.Error(), "a standalone server, which has no transactions") {
		t.Errorf("Begin: %v, want %s", err, want)
	}
	update := add("", "a", nil)
	update.Transaction = nil
	_, err = b.Transaction.Run(t.Context(), &mooringv1.TransactionServiceRunRequest{
		Operations: []*mooringv1.TransactionOperation{{
			Operation: &mooringv1.TransactionOperation_UpdateOne{UpdateOne: update},
		}},
	})
	if told(err) != want || !strings.Contains(err.Error(), "a standalone server") {
		t.Errorf("Run: %v, want %s", err, want)
	}
	if got := b.balances(); got != before {
		t.Errorf("the accounts are %s", got)
	}
}

// TestTokens checks whose tokens count, and where they may be.
func TestTokens(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	token, ctx := b.begin(), t.Context()
	in := metadata.AppendToOutgoingContext(ctx, "mooring-transaction", token)
	const notFound, invalid = "NotFound TransactionNotFound never",
		"InvalidArgument InvalidArgument never"
	foreign := servicetest.As(ctx, "other")
	if _, err := b.Document.UpdateOne(foreign, add(token, "a", nil)); told(err) != notFound {
		t.Errorf("another client's call = %s", told(err))
	}
	if _, err := b.Transaction.Commit(foreign,
		&mooringv1.TransactionServiceCommitRequest{Transaction: &token}); told(err) != notFound {
		t.Errorf("another client's Commit = %s", told(err))
	}
	if err := b.add("x", "a"); told(err) != notFound {
		t.Errorf("a wrong token = %s", told(err))
	}
	stream, err := b.Document.StreamFind(ctx, &mooringv1.StreamFindRequest{
		Database: "bank", Collection: "accounts", Transaction: new("x"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); told(err) != notFound {
		t.Errorf("a stream with a wrong token = %s", told(err))
	}
	if err := b.commit("x"); told(err) != notFound {
		t.Errorf("Commit of a wrong token = %s", told(err))
	}
	if err := b.commit(""); told(err) != invalid {
		t.Errorf("Commit without a token = %s", told(err))
	}
	if _, err := b.Document.UpdateOne(in, add("x", "a", nil)); told(err) != invalid {
		t.Errorf("two tokens = %s", told(err))
	}
	if _, err := b.Transaction.Commit(in,
		&mooringv1.TransactionServiceCommitRequest{Transaction: new("x")}); told(err) != invalid {
		t.Errorf("Commit with two tokens = %s", told(err))
	}
	if _, err := b.Transaction.Begin(in,
		&mooringv1.TransactionServiceBeginRequest{}); told(err) != invalid {
		t.Errorf("Begin in a transaction = %s", told(err))
	}
	if _, err := b.Session.Start(in,
		&mooringv1.SessionServiceStartRequest{}); told(err) != invalid {
		t.Errorf("the start of a session in a transaction = %s", told(err))
	}
	if _, err := b.Document.UpdateOne(in, add("", "a", nil)); err != nil {
		t.Errorf("a token in the metadata: %v", err)
	}
	keyed := metadata.AppendToOutgoingContext(ctx, "idempotency-key", "k")
	if _, err := b.Document.UpdateOne(keyed,
		add(token, "a", nil)); told(err) != "InvalidArgument IdempotencyKeyUnsupported never" {
		t.Errorf("an idempotency key in a transaction = %s", told(err))
	}
	if _, err := b.Transaction.Commit(in,
		&mooringv1.TransactionServiceCommitRequest{}); err != nil {
		t.Errorf("Commit with a token in the metadata: %v", err)
	}
	if status.Code(b.commit(token)) != codes.OK {
		t.Error("a second Commit fails")
	}
}

// TestStatements repeats the last operation, and others.
func TestStatements(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	token := b.begin()
	run := func(n int32, account string) string {
		res, err := b.Document.UpdateOne(t.Context(), add(token, account, &n))
		if err == nil && res.GetMatchedCount() != 1 {
			t.Errorf("statement %d matches %d", n, res.GetMatchedCount())
		}
		return told(err)
	}
	const order = "Aborted StatementOutOfOrder never"
	for _, step := range []struct {
		n       int32
		account string
		want    string
	}{
		{2, "a", order},
		{0, "a", order},
		{-1, "a", order},
		{1, "a", "OK"},
		{1, "a", "OK"},
		{1, "b", order},
		{3, "b", order},
		{2, "b", "OK"},
		{1, "a", order},
		{2, "b", "OK"},
	} {
		if got := run(step.n, step.account); got != step.want {
			t.Errorf("statement %d on %s = %s, want %s", step.n, step.account, got, step.want)
		}
	}
	if err := b.commit(token); err != nil {
		t.Fatal(err)
	}
	if got := b.balances(); got != after {
		t.Errorf("there is %s, want %s", got, after)
	}
	n := int32(1)
	request := add(token, "a", &n)
	request.Transaction = nil
	if _, err := b.Document.UpdateOne(t.Context(),
		request); told(err) != "InvalidArgument InvalidArgument never" {
		t.Errorf("a statement without a transaction = %s", told(err))
	}
}

// post makes a call on REST.
func (b *bank) post(path, transaction, body string) (int, string) {
	b.t.Helper()
	return b.postWithin("", path, transaction, body)
}

// postWithin makes a call on REST that has a Request-Timeout, unless that is empty.
func (b *bank) postWithin(timeout, path, transaction, body string) (int, string) {
	b.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if transaction != "" {
		r.Header.Set("Mooring-Transaction", transaction)
	}
	if timeout != "" {
		r.Header.Set("Request-Timeout", timeout)
	}
	w := httptest.NewRecorder()
	b.REST.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const updateOne = "/v1/databases/bank/collections/accounts/documents:updateOne"

// addA is the body of an update of account a, and addB of account b.
const (
	addA = `{"filter": {"_id": "a"}, "update": {"$inc": {"n": 1}}}`
	addB = `{"filter": {"_id": "b"}, "update": {"$inc": {"n": 1}}}`
)

// TestREST runs a transaction over REST.
func TestREST(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	code, body := b.post("/v1/transactions:begin", "",
		`{"maxCommitTimeMS": 500, "readConcern": {"level": "snapshot"}}`)
	var begun struct{ Transaction, ExpireTime string }
	if err := json.Unmarshal([]byte(body), &begun); err != nil || code != 200 ||
		begun.ExpireTime == "" {
		t.Fatalf("begin = %d %s, %v", code, body, err)
	}
	inBody := `{"transaction": "` + begun.Transaction + `", "statement": 1, ` + addB[1:]
	for _, step := range []struct {
		path, token, body string
		code              int
		want              string
	}{
		{updateOne, begun.Transaction, addA, 200, `"matchedCount":1`},
		{updateOne, "", inBody, 200, `"matchedCount":1`},
		{updateOne, "", inBody, 200, `"matchedCount":1`},
		{updateOne, "x", inBody, 400, `"field":"Mooring-Transaction"`},
		{updateOne, "x", addA, 404, `"reason":"TransactionNotFound"`},
		{"/v1/transactions:commit", begun.Transaction, "{}", 200, "{}"},
		{"/v1/transactions:commit", begun.Transaction, "{}", 200, "{}"},
		{"/v1/transactions:abort", begun.Transaction, "{}", 409, `"reason":"TransactionCommitted"`},
		{updateOne, begun.Transaction, addA, 409, `"reason":"TransactionCommitted"`},
		{"/v1/transactions:begin", "", `{"database": "d"}`, 400, `"field":"database"`},
	} {
		if code, body := b.post(step.path, step.token, step.body); code != step.code ||
			!strings.Contains(body, step.want) {
			t.Errorf("POST %s %s = %d %s, want %d %s", step.path, step.body, code, body, step.code,
				step.want)
		}
	}
	if got := b.balances(); got != after {
		t.Errorf("there is %s, want %s", got, after)
	}
}

// TestRun runs lists of operations over REST: all of them take effect, or none.
func TestRun(t *testing.T) {
	b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
	update := func(body, expect string) string {
		return `{"updateOne": {"database": "bank", "collection": "accounts", ` + body[1:] + expect +
			`}`
	}
	nobody := `{"filter": {"_id": "c"}, "update": {"$inc": {"n": 1}}}`
	find := func(id, expect string) string {
		return `{"findOne": {"database": "bank", "collection": "accounts", "filter": {"_id": "` +
			id + `"}}` + expect + `}`
	}
	for name, test := range map[string]struct {
		operations string
		code       int
		want       string
	}{
		"unmet count":              {update(addA, "") + "," + update(nobody, `, "expect": {"matchedCount": 1}`), 412, `"field":"operations.1.updateOne.expect"`},
		"nothing found":            {update(addA, "") + "," + find("c", `, "expect": {"found": true}`), 412, `"reason":"ExpectationFailed"`},
		"something found":          {find("a", `, "expect": {"found": false}`), 412, `"reason":"ExpectationFailed"`},
		"no operation":             {"", 400, `"field":"operations"`},
		"an empty one":             {"{}", 400, `"field":"operations.0"`},
		"two at once":              {`{"findOne": {}, "insertOne": {}}`, 400, `"field":"operations.0.insertOne"`},
		"a token within":           {strings.Replace(find("a", ""), `"database"`, `"transaction": "x", "database"`, 1), 400, `"field":"operations.0.findOne.transaction"`},
		"a number within":          {strings.Replace(find("a", ""), `"database"`, `"statement": 1, "database"`, 1), 400, `"field":"operations.0.findOne.statement"`},
		"does not have this count": {find("a", `, "expect": {"matchedCount": 1}`), 400, `"field":"operations.0.expect.matchedCount"`},
		"no such document":         {update(addA, `, "expect": {"found": true}`), 400, `"field":"operations.0.expect.found"`},
		"no collection":            {`{"findOne": {"database": "bank"}}`, 400, `"field":"operations.0.findOne.collection"`},
		"a server's refusal": {
			update(addA, "") + `, {"insertOne": {"database": "bank", "collection": "accounts", "document": {"_id": "b"}}}`, 409, `"reason":"DuplicateKey"`,
		},
	} {
		code, body := b.post("/v1/transactions:run", "", `{"operations": [`+test.operations+`]}`)
		if code != test.code || !strings.Contains(body, test.want) {
			t.Errorf("%s: %d %s, want %d %s", name, code, body, test.code, test.want)
		}
		if got := b.balances(); got != before {
			t.Fatalf("%s: there is %s, want %s", name, got, before)
		}
	}
	all := update(addA, `, "expect": {"matchedCount": 1, "modifiedCount": 1}`) + "," +
		update(addB, "") + "," + find("a", `, "expect": {"found": true}`)
	code, body := b.post("/v1/transactions:run", "", `{"operations": [`+all+`]}`)
	if want := `{"findOne":{"document":{"_id":"a","n":11}}}]}`; code != 200 ||
		!strings.HasSuffix(body, want) {
		t.Errorf("run = %d %s, want 200 …%s", code, body, want)
	}
	if got := b.balances(); got != after {
		t.Errorf("there is %s, want %s", got, after)
	}
}

// TestDeadline: the transaction of a call whose deadline has passed is to be run again.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{})
		token := b.begin()
		if err := b.add(token, "a"); err != nil {
			t.Fatal(err)
		}
		b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			reply := next(cmd)
			if cmd.Name == "update" {
				reply = reply.After(time.Minute)
			}
			return reply
		})
		code, body := b.postWithin("500ms", updateOne, token, addB)
		var answer struct {
			Error struct{ Status, Reason, Retry string }
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		if e := answer.Error; code != 504 || e.Status != "DEADLINE_EXCEEDED" ||
			e.Retry != "transaction" {
			t.Errorf("a call whose deadline passes = %d %s", code, body)
		}
		if err := b.abort(token); err != nil {
			t.Errorf("Abort after it = %v", err)
		}
		if got := b.balances(); got != before {
			t.Errorf("there is %s, want %s", got, before)
		}
	})
}

// TestAbortedAtItsTime: the locks of a transaction end with its time, although no call comes.
func TestAbortedAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{Idle: 5 * time.Second})
		aborts := make(chan time.Time, 9)
		b.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == "abortTransaction" {
				aborts <- time.Now()
			}
			return next(cmd)
		})
		token := b.begin()
		if err := b.add(token, "a"); err != nil {
			t.Fatal(err)
		}
		last := time.Now()
		// The abort takes a moment to arrive.
		if after := (<-aborts).Sub(last); after < 5*time.Second || after > 5100*time.Millisecond {
			t.Errorf("it was aborted %s after its last call", after)
		}
	})
}

// TestIdle: a transaction is aborted when no call comes in time, and each call moves the time.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, deployment.ReplicaSet, servicetest.Config{Idle: 5 * time.Second})
		token := b.begin()
		for range 3 {
			time.Sleep(4 * time.Second) //nolint:forbidigo // time is fake
			if err := b.add(token, "a"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(6 * time.Second) //nolint:forbidigo // time is fake
		for range 2 {
			for what, err := range map[string]error{
				"UpdateOne": b.add(token, "b"), "Commit": b.commit(token),
			} {
				if got := told(err); got != "Aborted TransactionAborted transaction" {
					t.Errorf("%s after 6 s = %s", what, got)
				}
			}
		}
		if err := b.abort(token); err != nil {
			t.Errorf("Abort = %v", err)
		}
		if got := b.balances(); got != before {
			t.Errorf("there is %s, want %s", got, before)
		}
	})
}
