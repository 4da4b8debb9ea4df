package front_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/front"
)

// from returns a request of a client at an address.
func from(address string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address
	return r
}

// TestTextIsGivenBack checks that the memory for the text of a stream's documents is charged once
// for texts that follow each other in a buffer, and given back when they are written.
func TestTextIsGivenBack(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 64 << 20})
	h := newHandler(t, a, func(x *front.Exchange) {
		if err := x.Admit(nil); err != nil {
			t.Error(err)
		}
		for range 3 { // messages
			for _, size := range []int{300 << 10, 400 << 10, 200 << 10} {
				doc := make([]byte, size)
				for i := range doc {
					doc[i] = 'x'
				}
				if _, err := x.Memory.MakeRoom(nil, doc); err != nil {
					t.Error(err)
				}
			}
			if held := a.Bytes().Held; held != 400<<10 {
				t.Errorf("%d bytes are charged for texts, want those of the largest, %d", held,
					400<<10)
			}
			x.Memory.ReleaseRoom()
			if held := a.Bytes().Held; held != 0 {
				t.Errorf("%d bytes are charged when the texts are written", held)
			}
		}
	})
	h.ServeHTTP(httptest.NewRecorder(), from("192.0.2.1:1"))
}

// stuckClient implements the response writer of a client that takes nothing.
type stuckClient struct {
	*httptest.ResponseRecorder
	once sync.Once
	cut  chan struct{} // closed by a deadline in the past
}

func (s *stuckClient) Write([]byte) (int, error) {
	<-s.cut
	return 0, os.ErrDeadlineExceeded
}

func (s *stuckClient) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		s.once.Do(func() { close(s.cut) })
	}
	return nil
}

func (s *stuckClient) isCut() bool {
	select {
	case <-s.cut:
		return true
	default:
		return false
	}
}

// TestCutsTheLargest checks that those idle streams are cut first that hold the most, so that few
// are.
func TestCutsTheLargest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 8 << 20, Patience: time.Second})
		sizes := map[string]int64{"192.0.2.1:1": 2 << 10, "192.0.2.2:1": 2 << 20}
		h := newHandler(t, a, func(x *front.Exchange) {
			if err := x.Admit(nil); err != nil {
				t.Error(err)
			}
			if err := x.Memory.Charge(sizes[x.Request().RemoteAddr]); err != nil {
				t.Error(err)
			}
			_ = x.Response.Send([]byte("x"))
		})
		var over sync.WaitGroup
		var clients []*stuckClient
		for _, address := range []string{"192.0.2.1:1", "192.0.2.2:1"} {
			w := &stuckClient{ResponseRecorder: httptest.NewRecorder(), cut: make(chan struct{})}
			clients = append(clients, w)
			over.Go(func() { h.ServeHTTP(w, from(address)) })
			<-time.After(time.Second)
		}
		<-time.After(30 * time.Second)
		front.Cut(h, 1<<20, nil)
		synctest.Wait()
		if clients[0].isCut() || !clients[1].isCut() {
			t.Errorf("the small stream is cut: %t, the large one: %t", clients[0].isCut(),
				clients[1].isCut())
		}
		for _, c := range clients {
			c.once.Do(func() { close(c.cut) })
		}
		over.Wait()
	})
}

// TestCutsWhatIsNeeded checks that no more idle streams are cut than calls need the memory of,
// of equal ones those idle for longest first, and that those of others stay if only one principal's
// help.
func TestCutsWhatIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 8 << 20, Patience: time.Second})
		h := newHandler(t, a, func(x *front.Exchange) {
			if err := x.Admit(nil); err != nil {
				t.Error(err)
			}
			if err := x.Memory.Charge(2 << 20); err != nil {
				t.Error(err)
			}
			_ = x.Response.Send([]byte("x"))
		})
		var over sync.WaitGroup
		var clients []*stuckClient
		for _, address := range []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"} {
			w := &stuckClient{ResponseRecorder: httptest.NewRecorder(), cut: make(chan struct{})}
			clients = append(clients, w)
			over.Go(func() { h.ServeHTTP(w, from(address)) })
			<-time.After(time.Second)
		}
		third := admission.PrincipalOf("", netip.MustParseAddr("192.0.2.3"))
		for _, step := range []struct {
			name  string
			wait  time.Duration
			bytes int64
			only  *admission.Principal
			want  [3]bool // which are cut
		}{
			{"none is idle for long", 0, 100 << 20, nil, [3]bool{}},
			{"nothing is needed", 30 * time.Second, 0, nil, [3]bool{}},
			{"a byte", 0, 1, nil, [3]bool{true}},
			{"a byte of the third", 0, 1, &third, [3]bool{true, false, true}},
			{"the rest", 0, 100 << 20, nil, [3]bool{true, true, true}},
		} {
			<-time.After(step.wait)
			front.Cut(h, step.bytes, step.only)
			synctest.Wait()
			for i, c := range clients {
				if c.isCut() != step.want[i] {
					t.Errorf("%s: stream %d is cut: %t", step.name, i+1, c.isCut())
				}
			}
		}
		for _, c := range clients {
			c.once.Do(func() { close(c.cut) })
		}
		over.Wait()
		if held := a.Bytes().Held; held != 0 {
			t.Errorf("%d bytes are charged after the end", held)
		}
	})
}
