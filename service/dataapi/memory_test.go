package dataapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/dataapi"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/servicetest"
)

// TestNoBodyIsCut makes many finds at once whose results are larger than the memory of the gateway.
// Some are refused before their body begins; each body that begins is complete.
func TestNoBodyIsCut(t *testing.T) {
	const budget, finds, each = 6 << 20, 5, 200
	a := admission.New(admission.Config{Bytes: budget, Patience: 50 * time.Millisecond})
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{Admission: a})
	g.Server.SetDocuments("shop.orders", servicetest.Docs(each, 25<<10)...)
	h, err := front.New(front.Config{
		Conn: g.Local, Admission: a,
		APIs: []front.API{dataapi.New(dataapi.Config{Sources: []string{"main"}})},
	})
	if err != nil {
		t.Fatal(err)
	}
	var refused, most atomic.Int64
	find := func() bool {
		w := post(h, base+"find", body(`"limit":1000,`)) // panics if the body is cut
		most.Store(max(most.Load(), a.Bytes().Held))
		if w.Code == http.StatusTooManyRequests || w.Code == http.StatusServiceUnavailable {
			refused.Add(1)
			return false
		}
		var got struct {
			Documents []json.RawMessage `json:"documents"`
		}
		err := json.Unmarshal(w.Body.Bytes(), &got)
		if w.Code != http.StatusOK || err != nil || len(got.Documents) != each {
			t.Errorf("%d with %d documents, %v", w.Code, len(got.Documents), err)
		}
		return true
	}
	var all sync.WaitGroup
	for range finds {
		all.Go(func() {
			for !find() {
				if t.Failed() {
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d finds of %d documents, %d refused; at most %d bytes charged",
		finds, each, refused.Load(), most.Load())
	if held := a.Bytes().Held; held != 0 {
		t.Errorf("%d bytes are charged at the end", held)
	}
}

// TestNoRoomWhenTheCallEnds checks that the wait of a stream for memory ends with its call.
func TestNoRoomWhenTheCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 8 << 20, Patience: time.Minute})
		var all admission.Account
		a.Open(&all, admission.Principal{})
		all.Force(8<<20 - 64<<10) // the rest is for the request
		defer all.Close()
		large := document(t, `{"a":"`+strings.Repeat("x", 1<<20)+`"}`)
		b := &backend{response: &mooringv1.StreamFindResponse{
			Documents: []*mooringv1.Document{large},
		}}
		h := newHandler(t, b, func(c *front.Config) { c.Admission = a })
		begun := time.Now()
		w := post(h, base+"find", body(""), "Request-Timeout", "1s")
		if took := time.Since(begun); took != time.Second || w.Code == http.StatusOK {
			t.Errorf("%d after %s, want an error after a second: %s", w.Code, took, w.Body)
		}
	})
}

// TestNoMoreThanMost checks that a stream ends where a response has as many documents as it may:
// within a message, between two, and at its own end.
func TestNoMoreThanMost(t *testing.T) {
	message := func(n int) *mooringv1.StreamFindResponse {
		m := &mooringv1.StreamFindResponse{}
		for range n {
			m.Documents = append(m.Documents, document(t, `{}`))
		}
		return m
	}
	for _, row := range []struct {
		first int
		more  []any
	}{{3, nil}, {1, []any{message(2)}}, {2, []any{message(1)}}, {2, nil}} {
		b := &backend{response: message(row.first), more: row.more}
		w := post(newHandler(t, b), base+"find", body(`"limit":2`))
		if got := w.Body.String(); w.Code != http.StatusOK || got != `{"documents":[{},{}]}` ||
			!b.ended {
			t.Errorf("%d and %d more messages: %d %s, ended %t", row.first, len(row.more), w.Code,
				got, b.ended)
		}
	}
}
