package front_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
)

// api serves every request with a function.
type api func(x *front.Exchange)

func (api) Takes(*http.Request) bool  { return true }
func (a api) Serve(x *front.Exchange) { a(x) }

func newHandler(t *testing.T, a *admission.Admission, serve api) *front.Handler {
	t.Helper()
	h, err := front.New(front.Config{
		Conn: inproc.NewConn(nil, nil), Admission: a, APIs: []front.API{serve},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// slowClient implements the response writer of a client that reads when it is told.
type slowClient struct {
	*httptest.ResponseRecorder
	reads chan struct{}
}

func (s *slowClient) Write(b []byte) (int, error) {
	<-s.reads
	return s.ResponseRecorder.Write(b)
}

// TestStreamWaitsForItsTurn checks that a stream that waits for its turn does not count as one that
// waits for its client.
func TestStreamWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{})
		h := newHandler(t, a, func(x *front.Exchange) {
			if err := x.Admit(nil); err != nil {
				t.Error(err)
			}
			if err := x.Work(3*front.Chunk, func() error {
				return x.Response.Send(make([]byte, 3*front.Chunk))
			}); err != nil {
				t.Errorf("Send() = %v", err)
			}
		})
		w := &slowClient{httptest.NewRecorder(), make(chan struct{})}
		var over sync.WaitGroup
		over.Go(func() { h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)) })
		synctest.Wait()
		if got := front.Unread(h); got != 1 {
			t.Errorf("%d streams wait for their clients, want 1", got)
		}
		turns := make([]admission.Turn, max(1, runtime.GOMAXPROCS(0)-1))
		for i := range turns {
			turns[i] = a.Turn()
			turns[i].Take()
		}
		close(w.reads)
		synctest.Wait()
		if got := front.Unread(h); got != 0 {
			t.Errorf("%d streams wait for their clients, want that this one waits for its turn",
				got)
		}
		for i := range turns {
			turns[i].Leave()
		}
		over.Wait()
		if got := w.Body.Len(); got != 3*front.Chunk {
			t.Errorf("the client has read %d bytes, want %d", got, 3*front.Chunk)
		}
	})
}

// TestStreamsAreForgotten checks that a stream that has ended is not among those that wait, also if
// it was compressed: the end of the compression comes last.
func TestStreamsAreForgotten(t *testing.T) {
	for _, coding := range []string{"identity", "gzip", "zstd"} {
		h := newHandler(t, nil, func(x *front.Exchange) {
			x.Response.CompressStream(x.Response.StreamCoding())
			if err := x.Response.Send([]byte("a")); err != nil {
				t.Errorf("%s: Send() = %v", coding, err)
			}
			x.Response.SendLast([]byte("b"))
		})
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", coding)
		h.ServeHTTP(w, r)
		if got := front.Unread(h); got != 0 || w.Body.Len() == 0 {
			t.Errorf("%s: %d streams wait after their end, %d bytes", coding, got, w.Body.Len())
		}
	}
}
