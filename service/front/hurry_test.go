package front_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/front"
)

// pausing implements the response writer of a client that reads nothing for a while. A write
// deadline in the past, which is the only one that streams set, ends a write.
type pausing struct {
	*httptest.ResponseRecorder
	until time.Time
	ended context.Context //nolint:containedctx // of the deadline
	end   context.CancelFunc
}

func (p *pausing) Write(b []byte) (int, error) {
	select {
	case <-time.After(time.Until(p.until)):
		return p.ResponseRecorder.Write(b)
	case <-p.ended.Done():
		return 0, os.ErrDeadlineExceeded
	}
}

func (p *pausing) SetWriteDeadline(t time.Time) error {
	if t.Before(time.Now()) {
		p.end()
	}
	return nil
}

// TestHurry has a call end while its stream waits for a client that does not read for five seconds:
// a message is given up after one, but the end of the stream has the time of any write, also if the
// call's end is told late.
func TestHurry(t *testing.T) {
	for name, row := range map[string]struct {
		write func(o *front.Response, text []byte) error
		took  time.Duration
		got   string
	}{
		"a message": {(*front.Response).Send, time.Second, ""},
		"a message after the end of the call": {func(o *front.Response, text []byte) error {
			time.Sleep(time.Millisecond) //nolint:forbidigo // fake time
			return o.Send(text)
		}, time.Second, ""},
		"the end": {func(o *front.Response, text []byte) error {
			o.SendLast(text)
			return nil
		}, 5 * time.Second, "text"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &pausing{ResponseRecorder: httptest.NewRecorder()}
				w.ended, w.end = context.WithCancel(t.Context())
				w.until = time.Now().Add(5 * time.Second)
				defer w.end()
				begun := time.Now()
				h := newHandler(t, nil, func(x *front.Exchange) {
					call, end := context.WithCancel(t.Context())
					stop := context.AfterFunc(call, x.Response.Hurry)
					defer stop()
					time.AfterFunc(time.Microsecond, end) // while it is being written
					err := row.write(&x.Response, []byte("text"))
					if (err != nil) != (row.got == "") {
						t.Errorf("write: %v", err)
					}
				})
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				took := time.Since(begun).Round(time.Millisecond)
				if took != row.took || w.Body.String() != row.got {
					t.Errorf("%q after %s, want %q after %s", w.Body, took, row.got, row.took)
				}
			})
		})
	}
}
