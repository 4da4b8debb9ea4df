package docdb_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/internal/unified/match"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

// TestSnapshots reads from snapshots while others write. Each snapshot has the documents whose
// events have its cluster time or an earlier one, and no others. What an event tells is visible. A
// drop does not wait for the snapshots.
func TestSnapshots(t *testing.T) {
	f := docdb.Start(t, docdb.Config{})
	e := rawconn.NewEngine(f.Address())
	t.Cleanup(e.Close)
	do := func(command string) bson.Raw {
		reply, diff := run(t, e, "snapshots", 0, step{command, fine})
		if diff != "" {
			t.Errorf("%s: %s\n%s", command, diff, match.Text(bson.DocumentValue(reply)))
		}
		return reply
	}
	const writers, rounds = 6, 60
	for w := range writers {
		do(insert(fmt.Sprintf(`{"_id": %d, "n": 0}`, -1-w), ""))
	}
	s := watch(t, connect(t, f.URI()), client.Namespace{Database: "snapshots", Collection: "c"},
		client.WatchOptions{FullDocument: "updateLookup"})
	var writing, reading sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range rounds {
				do(insert(fmt.Sprintf(`{"_id": %d}`, w*rounds+i), ""))
				do(add(-1-w, 1, ""))
			}
		})
	}
	type snapshot struct {
		at  bson.Value
		ids []string
	}
	var seen []snapshot
	done := make(chan struct{})
	reading.Go(func() {
		for {
			reply := do(`{"find": "c", "filter": {"_id": {"$gte": 0}}, "batchSize": 1000, "readConcern": {"level": "snapshot"}}`)
			at, _ := reply.Lookup("cursor", "atClusterTime") // of a buffer of its own
			batch, _ := reply.Lookup("cursor", "firstBatch")
			docs, _ := batch.Array()
			names := []string{}
			for doc := range docs.Documents() {
				id, _ := doc.Lookup("_id")
				names = append(names, match.Text(id))
			}
			seen = append(seen, snapshot{at, slices.Sorted(slices.Values(names))})
			select {
			case <-done:
				return
			default:
			}
		}
	})
	committed := map[string]bson.Value{} // the documents and the cluster times of their events
	for range writers * rounds * 2 {
		event, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id, _ := event.Lookup("documentKey", "_id")
		changed, isUpdate := event.Lookup("updateDescription", "updatedFields", "n")
		if !isUpdate {
			at, _ := event.Lookup("clusterTime")
			committed[match.Text(id)] = bson.TimestampValue(timestamp(at))
			continue
		}
		found, _ := event.Lookup("fullDocument", "n")
		is, _ := found.AsInt64()
		if least, _ := changed.AsInt64(); is < least {
			t.Errorf("the event of n: %d finds n: %d", least, is)
		}
	}
	writing.Wait()
	close(done)
	reading.Wait()
	for _, of := range seen {
		want := slices.DeleteFunc(slices.Sorted(maps.Keys(committed)), func(id string) bool {
			return after(committed[id], of.at)
		})
		if !slices.Equal(of.ids, want) {
			t.Errorf("a snapshot has %d documents, and its changes %d", len(of.ids), len(want))
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d snapshots", len(seen))
	}
	do(`{"drop": "c"}`)
}

func timestamp(v bson.Value) (t, i uint32) {
	t, i, _ = v.Timestamp()
	return t, i
}

// after reports whether a timestamp is after another one.
func after(a, b bson.Value) bool {
	at, ai := timestamp(a)
	bt, bi := timestamp(b)
	return at > bt || at == bt && ai > bi
}

// TestSnapshotOfTime reads from the snapshot of a reply's time, twice: it has what the reply is of,
// and stays as it is. Times before all snapshots are refused.
func TestSnapshotOfTime(t *testing.T) {
	f := docdb.Start(t, docdb.Config{})
	e := rawconn.NewEngine(f.Address())
	t.Cleanup(e.Close)
	do := func(command, want string) bson.Raw {
		reply, diff := run(t, e, "snapshots", 0, step{command, want})
		if diff != "" {
			t.Errorf("%s: %s\n%s", command, diff, match.Text(bson.DocumentValue(reply)))
		}
		return reply
	}
	do(insert(`{"_id": 1}`, ""), fine)
	at, _ := do(`{"ping": 1}`, fine).Lookup("operationTime")
	find := `{"find": "c", "readConcern": {"level": "snapshot", "atClusterTime": ` +
		match.Text(at) + `}}`
	for id := 2; id < 4; id++ {
		batch, _ := do(find, fine).Lookup("cursor", "firstBatch")
		if got := match.Text(batch); got != `[{"_id":1}]` {
			t.Errorf("the snapshot has %s", got)
		}
		do(insert(fmt.Sprintf(`{"_id": %d}`, id), ""), fine)
	}
	do(`{"find": "c", "readConcern": {"level": "snapshot", "atClusterTime": {"$timestamp": {"t": 1, "i": 1}}}}`,
		`{"ok": 0, "code": 239}`)
	// Snapshots of the same time are dropped, and one of that time is left.
	for range 20 {
		do(`{"find": "c", "readConcern": {"level": "snapshot"}}`, fine)
	}
	at, _ = do(`{"ping": 1}`, fine).Lookup("operationTime")
	do(`{"find": "c", "readConcern": {"level": "snapshot", "atClusterTime": `+match.Text(at)+`}}`,
		fine)
}
