package app_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestTransactionsAtTwoReplicas runs a transaction at the replica that does not keep it, and ends
// one whose owner was cut off, as if it had been killed.
func TestTransactionsAtTwoReplicas(t *testing.T) {
	d := deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
	uri, way := d.URI(false, nil), newWay(t)
	a, b := replica(t, uri, "", "--replica-advertise", way.address()), replica(t, uri, "")
	way.open(a.Addresses().Replica)
	begin := func() string {
		begun, err := mooringv1.NewTransactionServiceClient(a.cc).
			Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return begun.GetTransaction()
	}
	insert := func(g *gateway, token, id string) error {
		_, err := mooringv1.NewDocumentServiceClient(g.cc).
			InsertOne(t.Context(), &mooringv1.InsertOneRequest{
				Database: "db", Collection: "c", Transaction: &token,
				Document: &mooringv1.Document{
					Encoding: &mooringv1.Document_Json{Json: `{"_id": "` + id + `"}`},
				},
			})
		return err
	}
	commit := func(g *gateway, token string) error {
		_, err := mooringv1.NewTransactionServiceClient(g.cc).
			Commit(t.Context(), &mooringv1.TransactionServiceCommitRequest{Transaction: &token})
		return err
	}
	there := func() string {
		docs, _ := d.Documents("db.c")
		var ids []string
		for _, doc := range docs {
			id, _ := doc.Lookup("_id")
			text, _ := id.Str()
			ids = append(ids, text)
		}
		return strings.Join(ids, " ")
	}
	token := begin()
	for _, step := range []error{
		insert(b, token, "one"), insert(a, token, "two"), commit(b, token), commit(a, token),
	} {
		if step != nil {
			t.Error(step)
		}
	}
	if got := there(); got != "one two" {
		t.Errorf("there is %q, want one and two", got)
	}
	if err := insert(b, token, "one"); status.Code(err) != codes.Aborted ||
		rpcerr.HTTP(err).Body.GetError().GetReason() != "TransactionCommitted" {
		t.Errorf("an insert after Commit = %v", err)
	}
	token = begin()
	if err := insert(b, token, "three"); err != nil {
		t.Fatal(err)
	}
	way.cut()
	// The first call may find out that the connection is broken.
	if err := insert(b, token, "four"); rpcerr.HTTP(err).Body.GetError().
		GetRetry() != "transaction" {
		t.Errorf("an insert without the owner = %v", err)
	}
	if err := insert(b, token, "four"); status.Code(err) != codes.Aborted ||
		rpcerr.HTTP(err).Body.GetError().GetReason() != "TransactionOwnerGone" {
		t.Errorf("another insert without the owner = %v", err)
	}
	for range 2 {
		if err := commit(b, token); err != nil {
			t.Errorf("Commit without the owner = %v", err)
		}
	}
	if got := there(); got != "one two three" {
		t.Errorf("there is %q, want one to three", got)
	}
	b.stop()
	a.stop()
}

// TestMemoryOfTransactions checks that the replica that keeps a transaction refuses a request that
// is beyond its memory, whichever replica the client calls, and that the transaction goes on.
func TestMemoryOfTransactions(t *testing.T) {
	d := deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
	uri := d.URI(false, nil)
	owner, other := replica(t, uri, "", "--memory-budget", "16MiB"), replica(t, uri, "")
	begun, err := mooringv1.NewTransactionServiceClient(owner.cc).
		Begin(t.Context(), &mooringv1.TransactionServiceBeginRequest{})
	if err != nil {
		t.Fatal(err)
	}
	token := begun.GetTransaction()
	insert := func(g *gateway, size int) error {
		doc := bson.NewBuilder(nil).String("pad", strings.Repeat("x", size)).Finish()
		_, err := mooringv1.NewDocumentServiceClient(g.cc).
			InsertOne(t.Context(), &mooringv1.InsertOneRequest{
				Database: "db", Collection: "c", Transaction: &token,
				Document: &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: doc}},
			})
		return err
	}
	for _, g := range []*gateway{owner, other} {
		err := insert(g, 10<<20)
		if err == nil || rpcerr.HTTP(err).Body.GetError().GetReason() != "TooLarge" {
			t.Errorf("a document of 10 MiB: %v, want TooLarge", err)
		}
		if err := insert(g, 60<<10); err != nil {
			t.Errorf("a document of 60 KiB: %v", err)
		}
	}
	if _, err := mooringv1.NewTransactionServiceClient(other.cc).Commit(t.Context(),
		&mooringv1.TransactionServiceCommitRequest{Transaction: &token}); err != nil {
		t.Error(err)
	}
	if docs, _ := d.Documents("db.c"); len(docs) != 2 {
		t.Errorf("%d documents are there, want two", len(docs))
	}
	other.stop()
	owner.stop()
}
