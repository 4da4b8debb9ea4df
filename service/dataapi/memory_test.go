package dataapi_test

import (
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
