package worst_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// answers reports whether an RPC returns documents or values of a server.
func answers(m protoreflect.MethodDescriptor) bool {
	return carries(m.Output(), map[protoreflect.FullName]bool{})
}

func carries(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	switch seen[m.FullName()] = true; m.FullName() {
	case "mooring.v1.Document", "mooring.v1.Value":
		return true
	case "mooring.v1.ServerError": // errors are small
		return false
	}
	for i := range m.Fields().Len() {
		inner := m.Fields().Get(i).Message()
		if inner != nil && !seen[inner.FullName()] && carries(inner, seen) {
			return true
		}
	}
	return false
}

// unanswered lists the RPCs that return documents and have no rows, each with the reason.
var unanswered = map[string]string{
	"CursorService/NextPage": "needs a cursor; the batch is read as that of Find",
	"CursorService/Stream":   "needs a cursor; the batches are read as those of StreamFind",
}

// smallest returns what a small request has at a place, nil if it has nothing there.
func smallest(place site) *payload {
	small := func(text string, doc *bson.Builder) *payload {
		return &payload{text: [][]byte{[]byte(text)}, bson: [][]byte{doc.Finish()}}
	}
	switch name := place.last().Name(); {
	case name == "operators":
		return small(`{"$set":{"a":1}}`,
			bson.NewBuilder(nil).OpenDocument("$set").Int32("a", 1).Close())
	case name == "command":
		return small(`{"find":"c"}`, bson.NewBuilder(nil).String("find", "c"))
	case len(place) == 1 && (name == "filter" || name == "document" || name == "documents" ||
		name == "replacement"):
		return small(`{"a":1}`, bson.NewBuilder(nil).Int32("a", 1))
	case len(place) == 1 && (name == "pipeline" || name == "stages"):
		return small(`{"$match":{}}`, bson.NewBuilder(nil).OpenDocument("$match").Close())
	case len(place) == 1 && name == "id":
		return small(`1`, bson.NewBuilder(nil).Int32("v", 1))
	case len(place) == 1 && (name == "field" || name == "key"):
		return &payload{text: [][]byte{{'a'}}, bson: [][]byte{{'a'}}}
	}
	return nil
}

// replyOf returns the largest answer of a shape to a command.
func (s shape) replyOf(doc bson.Raw, command string) fakemongo.Reply {
	return fakemongo.OK(func(b *bson.Builder) {
		switch command {
		case "findAndModify":
			b.Document("value", doc)
		case "distinct":
			b.OpenArray("values").Document("", doc).Document("", doc).Close()
		case "listDatabases":
			b.OpenArray("databases").Document("", doc).Document("", doc).Close()
		case "find", "aggregate", "listCollections", "listIndexes", "bulkWrite":
			b.OpenDocument("cursor").Int64("id", 0).String("ns", "d.c").OpenArray("firstBatch")
			for range perMessage {
				b.Document("", doc)
			}
			b.Close().Close()
		default:
			b.Int32("n", 1).Int32("nModified", 1).Document("more", doc)
		}
	})
}

// TestReplyRows checks that each RPC that returns documents has rows for the replies of servers in
// each protocol that can call it.
func TestReplyRows(t *testing.T) {
	counts := map[string]int{}
	for _, r := range rows() {
		if r.shape.reply {
			counts[nameOf(r.rpc)+" "+r.protocol.name]++
		}
	}
	n := 0
	for _, r := range rows() {
		name := nameOf(r.rpc)
		isImport := r.protocol.name == "NDJSON" || r.protocol.name == "BSON"
		if r.shape.reply || isImport || !answers(r.rpc) || unanswered[name] != "" {
			continue
		}
		n++
		if counts[name+" "+r.protocol.name] != len(replyShapes()) {
			t.Errorf("%s has %d rows for replies over %s", name, counts[name+" "+r.protocol.name],
				r.protocol.name)
		}
	}
	for name := range unanswered {
		if !strings.Contains(name, "/") || counts[name+" gRPC"] > 0 {
			t.Errorf("%s has rows", name)
		}
	}
	if n < 100 {
		t.Errorf("%d RPCs, protocols and shapes: the test shows little", n)
	}
}
