package front_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/recent"
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

// TestRefusalsOfClients checks how a request is recorded for whose body its client has no memory:
// as a refused call of that client, which is held back if it has had many. A stranger's is neither
// remembered nor held back.
func TestRefusalsOfClients(t *testing.T) {
	const rpc = "/mooring.v1.DocumentService/InsertMany"
	key, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, key, log, audit string
		remembered            int64
		held                  time.Duration // of 110 requests
	}{
		{
			"known", key, "reason=QuotaExceeded principal=key:shop client=192.0.2.1",
			"principal=key:shop action=DocumentService/InsertMany " +
				`namespace="" outcome=QuotaExceeded`, 110, 100 * time.Millisecond,
		},
		{
			"stranger", "", "reason=Unauthenticated client=192.0.2.1",
			`principal="" action="POST /v1/x" namespace="" outcome=Unauthenticated`, 0, 0,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log, lines bytes.Buffer
			var list recent.List
			a := admission.New(admission.Config{Bytes: 1 << 20})
			var other admission.Account // of the same client
			a.Open(&other, admission.PrincipalOf("key:shop", netip.Addr{}))
			defer other.Close()
			if err := other.Grow(t.Context(), 500<<10); err != nil {
				t.Fatal(err)
			}
			audited := audit.New(audit.Config{Handler: slog.NewTextHandler(&lines, nil)})
			h, err := front.New(front.Config{
				Conn: inproc.NewConn(nil, nil), Admission: a,
				Callers: caller.New(caller.Config{Keys: keys}),
				Refusals: interceptor.Refusals{
					Logger: slog.New(slog.NewTextHandler(&log, nil)), Audit: audited,
					Recent: &list, Admission: a,
				},
				APIs: []front.API{api(func(x *front.Exchange) {
					err := x.Admit(nil)
					if err == nil {
						x.Calls(rpc)
						_, err = x.Body.ReadAll()
					}
					_ = x.Explain(x.Request().Context(), err)
				})},
			})
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			for range 110 {
				r := httptest.NewRequest(http.MethodPost, "/v1/x",
					strings.NewReader(strings.Repeat("x", 200<<10)))
				r.Header.Set("Api-Key", row.key)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			if took := time.Since(begun); took != row.held {
				t.Errorf("%s: 110 requests take %v, want %v", row.name, took, row.held)
			}
			if err := audited.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), row.log) ||
				!strings.Contains(lines.String(), row.audit) {
				first, _, _ := strings.Cut(log.String(), "\n")
				second, _, _ := strings.Cut(lines.String(), "\n")
				t.Errorf("%s: log %s, want %s\naudit %s, want %s", row.name, first, row.log,
					second, row.audit)
			}
			counted := int64(0)
			for _, e := range list.Entries(recent.Refused) {
				if e.Method != rpc || e.Principal != "key:shop" || e.Reason != "QuotaExceeded" {
					t.Errorf("%s: remembered %+v", row.name, e)
				}
				counted += e.Count
			}
			if counted != row.remembered {
				t.Errorf("%s: remembered %d, want %d", row.name, counted, row.remembered)
			}
		})
	}
}
