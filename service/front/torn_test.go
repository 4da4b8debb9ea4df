package front_test

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/front"
)

// goneClient implements the response writer of a client that has gone.
type goneClient struct{ *httptest.ResponseRecorder }

func (goneClient) Write([]byte) (int, error) { return 0, errors.New("gone") }

// TestTornBuffersAreNotPooled checks that no other request gets the buffer of a response whose
// write has failed: over HTTP/2 net/http may read it even then.
func TestTornBuffersAreNotPooled(t *testing.T) {
	again := 0
	h := newHandler(t, admission.New(admission.Config{}), func(x *front.Exchange) {
		b := x.Buffer()
		b.B = append(b.B, "text"...)
		first := &b.B[0]
		_ = x.Response.Send(b.B)
		b.Free()
		if next := x.Buffer(); cap(next.B) > 0 && &next.B[:1][0] == first {
			again++
		}
	})
	for range 100 {
		h.ServeHTTP(goneClient{httptest.NewRecorder()}, from("192.0.2.1:1"))
	}
	if again > 0 {
		t.Errorf("%d buffers are used again", again)
	}
	for range 100 {
		h.ServeHTTP(httptest.NewRecorder(), from("192.0.2.1:1"))
	}
	if again == 0 {
		t.Error("no buffer of a client that is there is used again")
	}
}
