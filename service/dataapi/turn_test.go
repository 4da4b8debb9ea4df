package dataapi_test

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/front"
)

// TestHeavyActionsTakeTurns checks that a large request or response waits for its turn, and that a
// small one does not.
func TestHeavyActionsTakeTurns(t *testing.T) {
	text := func(size int) string { return `{"a":"` + strings.Repeat("x", size) + `"}` }
	large, small := text(300<<10), text(1<<10)
	items := make([]*mooringv1.Document, 300)
	for i := range items {
		items[i] = document(t, small)
	}
	for _, row := range []struct {
		name, action, fields string
		response             any
		waits                bool
	}{
		{"small", "findOne", "", &mooringv1.FindOneResponse{Document: document(t, small)}, false},
		{"request", "insertOne", `"document":` + large, nil, true},
		{"document", "findOne", "", &mooringv1.FindOneResponse{Document: document(t, large)}, true},
		{"stream", "find", "", &mooringv1.StreamFindResponse{Documents: items}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := admission.New(admission.Config{})
				turns := make([]admission.Turn, max(1, runtime.GOMAXPROCS(0)-1)) // all there are
				for i := range turns {
					turns[i] = a.Turn()
					turns[i].Take()
				}
				b := &backend{response: row.response}
				h := newHandler(t, b, func(c *front.Config) { c.Admission = a })
				done := make(chan struct{})
				go func() {
					defer close(done)
					post(h, base+row.action, body(row.fields))
				}()
				synctest.Wait()
				waits := true
				select {
				case <-done:
					waits = false
				default:
				}
				if called := b.request != nil; waits != row.waits ||
					called != (row.response != nil) {
					t.Errorf("waits for its turn: %v, want %v; the call is made: %v", waits,
						row.waits, called)
				}
				for i := range turns {
					turns[i].Leave()
				}
				<-done
			})
		})
	}
}

// slowClient is a client that takes nothing of a body until it reads.
type slowClient struct {
	*httptest.ResponseRecorder
	reads chan struct{}
}

func (s slowClient) Write(b []byte) (int, error) {
	<-s.reads
	return s.ResponseRecorder.Write(b)
}

// TestNoTurnWhileWaitingForTheClient checks that a call whose client does not read lets others
// work.
func TestNoTurnWhileWaitingForTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := document(t, `{"a":"`+strings.Repeat("x", 300<<10)+`"}`)
		b := &backend{response: &mooringv1.FindOneResponse{Document: large}}
		a := admission.New(admission.Config{})
		h := newHandler(t, b, func(c *front.Config) { c.Admission = a })
		client := slowClient{httptest.NewRecorder(), make(chan struct{})}
		answered, worked := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(answered)
			r := httptest.NewRequest("POST", base+"findOne", strings.NewReader(body("")))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(client, r)
		}()
		synctest.Wait()
		go func() {
			defer close(worked)
			for range max(1, runtime.GOMAXPROCS(0)-1) { // all turns that there are
				turn := a.Turn()
				turn.Take()
				defer turn.Leave()
			}
		}()
		synctest.Wait()
		select {
		case <-worked:
		default:
			t.Error("the call has a turn while it waits")
		}
		close(client.reads)
		<-answered
		if client.Code != 200 || client.Body.Len() < 300<<10 {
			t.Errorf("%d with %d bytes", client.Code, client.Body.Len())
		}
	})
}
