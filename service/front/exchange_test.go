package front_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// meter counts the refusals of a front.
type meter []string

func (m *meter) Refused(code codes.Code, reason string) {
	*m = append(*m, fmt.Sprint(code, " ", reason))
}

// TestFailuresAreRecordedOnce checks that a front records a failure if no interceptor does: they
// get no call whose deadline has passed.
func TestFailuresAreRecordedOnce(t *testing.T) {
	for _, row := range []struct {
		name  string
		calls bool
		late  time.Duration // the call begins then, with a timeout of a second
		want  string
	}{
		{"before a call", false, 0, "[InvalidArgument InvalidArgument]"},
		{"of a call", true, 0, "[]"},
		{"after the deadline", true, 2 * time.Second, "[InvalidArgument InvalidArgument]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var refused meter
			h, err := front.New(front.Config{
				Conn:     inproc.NewConn(nil, nil),
				Refusals: interceptor.Refusals{Meter: &refused},
				APIs: []front.API{api(func(x *front.Exchange) {
					ctx, cancel := x.Context(time.Second)
					defer cancel()
					time.Sleep(row.late) //nolint:forbidigo // in a bubble
					if row.calls {
						ctx = x.Incoming(ctx, nil, call.Local{})
					}
					_ = x.Explain(ctx, &rpcerr.Error{Reason: rpcerr.InvalidArgument})
				})},
			})
			if err != nil {
				t.Fatal(err)
			}
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
			if got := fmt.Sprint(refused); got != row.want {
				t.Errorf("%s: recorded %s, want %s", row.name, got, row.want)
			}
		})
	}
}
