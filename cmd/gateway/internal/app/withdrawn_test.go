package app_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

const (
	// wideRules permits all, and sameRules the same to the clients of a test.
	wideRules = `permit (principal, action, resource);`
	sameRules = `permit (principal, action, resource) when { principal.kind == "anonymous" };`
	// limitedRules permits the same actions, and not the same documents.
	limitedRules = `@filter("{'n': 1}") permit (principal, action, resource);`
)

// replicasWithRules starts two replicas with one file of rules. replace replaces it, and returns
// when the replicas have read it.
func replicasWithRules(
	t *testing.T, uri string,
) (a, b *gateway, replace func(text string, at ...*gateway)) {
	t.Helper()
	file := secretFile(t, "policy", wideRules)
	options := []string{"--policy-file", file}
	b = replica(t, uri, "", options...)
	a = replica(t, uri, b.Addresses().Replica, options...)
	return a, b, func(text string, at ...*gateway) {
		t.Helper()
		const said = `msg="policy read"`
		var before []int
		for _, g := range at {
			before = append(before, strings.Count(g.log.String(), said))
		}
		if err := os.Rename(secretFile(t, "new", text), file); err != nil {
			t.Fatal(err)
		}
		for i, g := range at {
			g.Reload()
			g.logs(said, before[i]+1)
		}
	}
}

// TestForwardedPagesAreDecidedAgain replaces the rules while a cursor is open at one replica. The
// other one refuses its next page if the client would not be allowed the same any more, also after
// the first has handed the cursor over, and continues it if the rules come back.
func TestForwardedPagesAreDecidedAgain(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	a, b, replace := replicasWithRules(t, mongo.URI())
	read, token := a.find()
	next := func(when string, want codes.Code) {
		t.Helper()
		n, following, err := b.next(token)
		if status.Code(err) != want {
			t.Fatalf("%s: NextPage = %v, want %s", when, err, want)
		}
		if err == nil {
			read, token = read+n, following
		}
	}
	next("forwarded", codes.OK)
	replace(limitedRules, a, b)
	next("forwarded, under a limit", codes.PermissionDenied)
	replace(sameRules, a, b)
	next("forwarded, under other rules that permit the same", codes.OK)
	replace(limitedRules, a, b)
	a.stop()
	next("handed over, under a limit", codes.PermissionDenied)
	stream, err := b.cursors().
		Stream(t.Context(), &mooringv1.CursorServiceStreamRequest{Cursor: token})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("handed over, under a limit: Stream = %v", err)
	}
	replace(wideRules, b)
	for token != "" {
		next("handed over, under the first rules", codes.OK)
	}
	if read != 50 || mongo.OpenCursors() != 0 {
		t.Errorf("read %d documents, %d cursors are open; want 50 and none", read,
			mongo.OpenCursors())
	}
	b.stop()
}

// TestForwardedCommitIsDecidedAgain replaces the rules while a transaction is open at one replica,
// of which the other one has forwarded the write. A commit at either is refused and aborts the
// transaction, unless the rules permit the same.
func TestForwardedCommitIsDecidedAgain(t *testing.T) {
	d := deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
	a, b, replace := replicasWithRules(t, d.URI(false, nil))
	for _, row := range []struct {
		name, text string
		at         *gateway
		want       codes.Code
	}{
		{"forwarded, under a limit", limitedRules, b, codes.PermissionDenied},
		{"at its replica, under a limit", limitedRules, a, codes.PermissionDenied},
		{"forwarded, under other rules that permit the same", sameRules, b, codes.OK},
	} {
		replace(wideRules, a, b)
		begun, err := mooringv1.NewTransactionServiceClient(a.cc).
			Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{})
		if err != nil {
			t.Fatal(err)
		}
		token := begun.GetTransaction()
		if _, err := mooringv1.NewDocumentServiceClient(b.cc).
			InsertOne(t.Context(), &mooringv1.InsertOneRequest{
				Database: "db", Collection: "c", Transaction: &token,
				Document: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `{}`}},
			}); err != nil {
			t.Fatal(err)
		}
		replace(row.text, a, b)
		commit := func() error {
			_, err := mooringv1.NewTransactionServiceClient(row.at.cc).
				Commit(t.Context(), &mooringv1.TransactionServiceCommitRequest{Transaction: &token})
			return err
		}
		if err := commit(); status.Code(err) != row.want {
			t.Errorf("%s: Commit = %v, want %s", row.name, err, row.want)
		}
		want := 0
		if row.want == codes.OK {
			want = 1
		}
		replace(wideRules, a, b)
		if err := commit(); (err == nil) != (want == 1) {
			t.Errorf("%s: Commit again under the first rules = %v", row.name, err)
		}
		if docs, _ := d.Documents("db.c"); len(docs) != want {
			t.Errorf("%s: there are %d documents, want %d", row.name, len(docs), want)
		}
	}
	a.stop()
	b.stop()
}

// TestForwardedBulkWriteIsDecidedAgain writes to more collections in one request of a transaction
// than the grounds of a call hold, through the replica that does not keep the transaction. Any
// change of the rules then aborts it, and the same rules do not.
func TestForwardedBulkWriteIsDecidedAgain(t *testing.T) {
	d := deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
	a, b, replace := replicasWithRules(t, d.URI(false, nil))
	request := &mooringv1.BulkWriteRequest{}
	for i := range 1200 {
		request.Models = append(request.Models, &mooringv1.WriteModel{
			Namespace: new(fmt.Sprintf("db.c%d%s", i, strings.Repeat("x", 200))),
			Kind: &mooringv1.WriteModel_InsertOne{InsertOne: &mooringv1.InsertOneModel{
				Document: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `{}`}},
			}},
		})
	}
	for _, row := range []struct {
		name, text string
		want       codes.Code
	}{
		{"the same rules", "", codes.OK},
		{"other rules that permit the same", sameRules, codes.PermissionDenied},
	} {
		replace(wideRules, a, b)
		begun, err := mooringv1.NewTransactionServiceClient(a.cc).
			Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{})
		if err != nil {
			t.Fatal(err)
		}
		request.Transaction = new(begun.GetTransaction())
		if _, err := mooringv1.NewDocumentServiceClient(b.cc).
			BulkWrite(t.Context(), request); err != nil {
			t.Fatalf("%s: BulkWrite = %v", row.name, err)
		}
		if row.text != "" {
			replace(row.text, a, b)
		}
		_, err = mooringv1.NewTransactionServiceClient(b.cc).
			Commit(t.Context(),
				&mooringv1.TransactionServiceCommitRequest{Transaction: request.Transaction})
		if status.Code(err) != row.want {
			t.Errorf("%s: Commit = %v, want %s", row.name, err, row.want)
		}
	}
	a.stop()
	b.stop()
}

// TestRenamedPrincipal renames the principal of an API key, with which a cursor, a transaction and
// a ticket were opened. The key's new principal cannot use them, and the old one can if it comes
// back.
func TestRenamedPrincipal(t *testing.T) {
	key, line := newKey(t, "shop", time.Time{})
	keysFile := secretFile(t, "keys", line)
	d := deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
	g := start(t, d.URI(false, nil), "--auth-api-keys-file", keysFile)
	n := 0
	rename := func(line string) {
		t.Helper()
		text := line
		for range n + 1 { // a number of keys that no other file has
			_, more := newKey(t, "other", time.Time{})
			text += "\n" + more
		}
		n++
		if err := os.Rename(secretFile(t, "new", text), keysFile); err != nil {
			t.Fatal(err)
		}
		g.Reload()
		g.logs(fmt.Sprintf(" keys=%d\n", n+1), 1)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", key)
	documents, transactions := mooringv1.NewDocumentServiceClient(g.cc),
		mooringv1.NewTransactionServiceClient(g.cc)
	insert := func(transaction *string) error {
		_, err := documents.InsertOne(ctx, &mooringv1.InsertOneRequest{
			Database: "db", Collection: "c", Transaction: transaction,
			Document: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `{}`}},
		})
		return err
	}
	for range 3 {
		if err := insert(nil); err != nil {
			t.Fatal(err)
		}
	}
	page, err := documents.Find(ctx,
		&mooringv1.FindRequest{Database: "db", Collection: "c", BatchSize: new(int32(1))})
	if err != nil || page.GetCursor() == "" {
		t.Fatal(page, err)
	}
	begun, err := transactions.Begin(ctx, &mooringv1.TransactionServiceBeginRequest{})
	if err == nil {
		err = insert(new(begun.GetTransaction()))
	}
	if err != nil {
		t.Fatal(err)
	}
	ticket := g.ticket(ctx)
	next := func() error {
		_, err := g.cursors().NextPage(ctx, &mooringv1.NextPageRequest{Cursor: page.GetCursor()})
		return err
	}
	commit := func() error {
		_, err := transactions.Commit(ctx,
			&mooringv1.TransactionServiceCommitRequest{Transaction: new(begun.GetTransaction())})
		return err
	}
	rename("re" + line)
	for name, err := range map[string]error{
		"a page": next(), "a statement": insert(new(begun.GetTransaction())), "a commit": commit(),
	} {
		if status.Code(err) != codes.NotFound {
			t.Errorf("%s of the renamed principal: %v", name, err)
		}
	}
	if code := g.status(ticket); code != http.StatusUnauthorized {
		t.Errorf("a ticket of the renamed principal: %d", code)
	}
	rename(line)
	for name, err := range map[string]error{"a page": next(), "a commit": commit()} {
		if err != nil {
			t.Errorf("%s after the name has come back: %v", name, err)
		}
	}
	if docs, _ := d.Documents("db.c"); len(docs) != 4 {
		t.Errorf("there are %d documents, want 4", len(docs))
	}
	g.stop()
}

// TestReplicasWithDifferentRules has two replicas, of which one has not read the new rules yet.
// What is open is decided by the replica that keeps it. What was opened under the narrow rules
// stays as narrow wherever its client calls, and a transaction with an operation that was allowed
// under other rules than its owner has is not committed at either.
func TestReplicasWithDifferentRules(t *testing.T) {
	d := deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
	narrow := replica(t, d.URI(false, nil), "", "--policy-file",
		secretFile(t, "narrow", limitedRules))
	wide := replica(t, d.URI(false, nil), narrow.Addresses().Replica, "--policy-file",
		secretFile(t, "wide", wideRules))
	insert := func(at *gateway, n int, transaction *string) error {
		_, err := mooringv1.NewDocumentServiceClient(at.cc).
			InsertOne(t.Context(), &mooringv1.InsertOneRequest{
				Database: "db", Collection: "c", Transaction: transaction,
				Document: &mooringv1.Document{
					Encoding: &mooringv1.Document_Json{Json: fmt.Sprintf(`{"n": %d}`, n)},
				},
			})
		return err
	}
	for i := range 40 {
		if err := insert(wide, i%2, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, token := wide.find()
	if _, _, err := narrow.next(token); err != nil {
		t.Errorf("a page that the wide replica keeps: %v", err)
	}
	read, token := narrow.find()
	for at := 0; token != ""; at++ { // at each in turn
		n, following, err := []*gateway{wide, narrow}[at%2].next(token)
		if err != nil {
			t.Fatalf("page %d of a narrow cursor: %v", at, err)
		}
		read, token = read+n, following
	}
	if read != 20 {
		t.Errorf("the narrow cursor has %d documents, want 20", read)
	}
	for name, row := range map[string]struct{ begin, write, commit *gateway }{
		"narrow, committed where it is wide": {wide, narrow, wide},
		"narrow, at another replica":         {wide, narrow, narrow},
		"wide, committed where it is narrow": {narrow, wide, narrow},
		"wide, at another replica":           {narrow, wide, wide},
	} {
		transactions := mooringv1.NewTransactionServiceClient(row.begin.cc)
		begun, err := transactions.Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{})
		if err == nil {
			err = insert(row.write, 1, new(begun.GetTransaction()))
		}
		if err != nil {
			t.Fatal(name, err)
		}
		_, err = mooringv1.NewTransactionServiceClient(row.commit.cc).
			Commit(t.Context(), &mooringv1.TransactionServiceCommitRequest{
				Transaction: new(begun.GetTransaction()),
			})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: Commit = %v", name, err)
		}
	}
	if docs, _ := d.Documents("db.c"); len(docs) != 40 {
		t.Errorf("there are %d documents, want 40", len(docs))
	}
	wide.stop()
	narrow.stop()
}
