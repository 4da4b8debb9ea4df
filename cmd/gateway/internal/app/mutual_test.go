package app_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// TestReplicasDoNotWaitForEachOther fills two replicas with calls that each forwards to the other.
// All of them succeed: a forwarded call needs no second place among the calls in flight.
func TestReplicasDoNotWaitForEachOther(t *testing.T) {
	const callers, calls = 6, 10
	d := deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
	uri := d.URI(false, nil)
	few := []string{"--requests-max-in-flight=2", "--requests-queue-time=10s"}
	b := replica(t, uri, "", few...)
	a := replica(t, uri, b.Addresses().Replica, few...)
	transact := func(owner, at *gateway, name string) error {
		begun, err := mooringv1.NewTransactionServiceClient(owner.cc).Begin(t.Context(),
			&mooringv1.TransactionServiceBeginRequest{})
		if err != nil {
			return fmt.Errorf("Begin: %w", err)
		}
		token := begun.GetTransaction()
		for i := range calls {
			if err := insertIn(t.Context(), at, token, fmt.Sprint(name, i)); err != nil {
				return fmt.Errorf("insert %d: %w", i, err)
			}
		}
		_, err = mooringv1.NewTransactionServiceClient(at.cc).Commit(t.Context(),
			&mooringv1.TransactionServiceCommitRequest{Transaction: &token})
		return err
	}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if err := transact(a, b, fmt.Sprint("a", i, "-")); err != nil {
				t.Error("of the first replica, at the second:", err)
			}
		})
		all.Go(func() {
			if err := transact(b, a, fmt.Sprint("b", i, "-")); err != nil {
				t.Error("of the second replica, at the first:", err)
			}
		})
	}
	all.Wait()
	if docs, _ := d.Documents("db.c"); len(docs) != 2*callers*calls {
		t.Errorf("there are %d documents, want %d", len(docs), 2*callers*calls)
	}
	b.stop()
	a.stop()
}

func insertIn(ctx context.Context, g *gateway, transaction, id string) error {
	document := &mooringv1.Document{
		Encoding: &mooringv1.Document_Json{Json: `{"_id": "` + id + `"}`},
	}
	_, err := mooringv1.NewDocumentServiceClient(g.cc).InsertOne(ctx, &mooringv1.InsertOneRequest{
		Database: "db", Collection: "c", Transaction: &transaction, Document: document,
	})
	return err
}
