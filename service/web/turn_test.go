package web_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/payload"
)

// TestHeavyMessagesTakeTurns checks that a large message waits for its turn in each form, in both
// directions, and that a small one does not.
func TestHeavyMessagesTakeTurns(t *testing.T) {
	random := rand.NewChaCha8([32]byte{}) // what it gives cannot be compressed
	document := func(size int) *mooringv1.Document {
		data := make([]byte, size)
		_, _ = random.Read(data) // never fails
		return payload.NewDocument(bson.NewBuilder(nil).Binary("a", 0, data).Finish())
	}
	large, small := document(300<<10), document(1<<10)
	one := &mooringv1.FindOneRequest{Database: "d", Collection: "c", Filter: small}
	for _, row := range []struct {
		name, method string
		forms        []form
		how          coding.Coding
		request      proto.Message
		document     *mooringv1.Document // of the response
		waits        bool
	}{
		{"small", "FindOne", append(unary, webs...), coding.Identity, one, small, false},
		{"response", "FindOne", append(unary, webs...), coding.Identity, one, large, true},
		{
			"request", "InsertOne", append(unary, webs...), coding.Identity,
			&mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: large}, nil, true,
		},
		{
			"stream", "StreamFind", append(streams, webs...), coding.Identity,
			&mooringv1.StreamFindRequest{Database: "d", Collection: "c", Filter: large}, nil, true,
		},
		{
			"compressed request", "FindOne", append(unary, webs...), coding.Gzip,
			&mooringv1.FindOneRequest{Database: "d", Collection: "c", Filter: document(40 << 10)},
			small, true,
		},
		{
			"request that grows", "InsertOne", append(unary, webs...), coding.Gzip,
			&mooringv1.InsertOneRequest{
				Database: "d", Collection: "c", Document: payload.NewDocument(
					bson.NewBuilder(nil).Binary("a", 0, make([]byte, 300<<10)).Finish()),
			},
			nil, true,
		},
	} {
		for _, f := range row.forms {
			t.Run(row.name+" "+f.contentType, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := admission.New(admission.Config{})
					release := takeTurns(a)
					h := newHandler(t, &backend{document: row.document}, func(c *front.Config) {
						c.Admission, c.MaxBodyBytes = a, 4<<20
					})
					done := make(chan struct{})
					go func() {
						defer close(done)
						send(h, row.method, f.contentType, f.request(t, row.how, row.request),
							"Content-Encoding", row.how.String(), "Grpc-Encoding", row.how.String())
					}()
					synctest.Wait()
					waits := true
					select {
					case <-done:
						waits = false
					default:
					}
					if waits != row.waits {
						t.Errorf("waits for its turn: %v, want %v", waits, row.waits)
					}
					release()
					<-done
				})
			})
		}
	}
}

// takeTurns takes all turns.
func takeTurns(a *admission.Admission) (release func()) {
	turns := make([]admission.Turn, max(1, runtime.GOMAXPROCS(0)-1))
	for i := range turns {
		turns[i] = a.Turn()
		turns[i].Take()
	}
	return func() {
		for i := range turns {
			turns[i].Leave()
		}
	}
}
