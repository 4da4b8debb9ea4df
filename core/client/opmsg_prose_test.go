package client_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The test plan of OP_MSG. Its commands are those that have document sequences.
var opMsgKinds = map[string]struct {
	sequence string
	kind     client.WriteKind
}{
	"insert": {"documents", client.InsertOne},
	"update": {"updates", client.ReplaceOne},
	"delete": {"deletes", client.DeleteOne},
}

// roundTrip runs n writes of a kind, of which the last has a large document if the kind has one. It
// checks that one command has them all, in a document sequence.
func roundTrip(t *testing.T, command string, n, large int) {
	t.Helper()
	kind := opMsgKinds[command]
	answer := reply(t, fmt.Sprintf(`{"n":%d,"nModified":0,"ok":1}`, n))
	run(t, fakemongo.Handlers{command: answer}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		models := make([]client.WriteModel, n)
		small := doc(t, `{"_id":1}`)
		for i := range models {
			models[i] = client.WriteModel{Kind: kind.kind, Document: small}
			if kind.kind == client.DeleteOne {
				models[i].Document = nil
			}
		}
		if large > 0 && kind.kind != client.DeleteOne {
			empty := doc(t, `{"_id":1,"a":""}`)
			models[n-1].Document = bson.NewBuilder(nil).Int32("_id", 1).
				String("a", strings.Repeat("x", large-len(empty))).Finish()
			if size := len(models[n-1].Document); size != large {
				t.Fatalf("the document has %d bytes, want %d", size, large)
			}
		}
		if _, err := c.BulkWrite(t.Context(), orders, models,
			client.BulkWriteOptions{}); err != nil {
			t.Fatal(err)
		}
		cmds := srv.Commands(command)
		if len(cmds) != 1 || len(cmds[0].Sequences[kind.sequence]) != n ||
			cmds[0].Body.Has(kind.sequence) || cmds[0].Legacy {
			t.Errorf("%s: %d commands, the first with %d in its sequence, want 1 and %d", command,
				len(cmds), len(cmds[0].Sequences[kind.sequence]), n)
		}
	})
}

// TestOpMsgProseOneDocument is "one document is sent as a document sequence".
func TestOpMsgProseOneDocument(t *testing.T) {
	for command := range opMsgKinds {
		roundTrip(t, command, 1, 0)
	}
}

// TestOpMsgProseTwoDocuments is "two documents are sent as a document sequence".
func TestOpMsgProseTwoDocuments(t *testing.T) {
	for command := range opMsgKinds {
		roundTrip(t, command, 2, 0)
	}
}

// TestOpMsgProseMaxWriteBatchSize is "a server with a maxWriteBatchSize of 100,000 gets as many in
// one command".
func TestOpMsgProseMaxWriteBatchSize(t *testing.T) {
	for command := range opMsgKinds {
		roundTrip(t, command, 100_000, 0)
	}
}

// TestOpMsgProse16MiBDocument is "one small and one 16 MiB document go in one round trip".
func TestOpMsgProse16MiBDocument(t *testing.T) {
	for command := range opMsgKinds {
		roundTrip(t, command, 2, 16<<20)
	}
}
