package deployment_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/deployment"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/recent"
	"github.com/mooringdb/mooring/service/rest"
)

// Every field is where it belongs, and what is not known is missing.
func TestNotableCallsOnREST(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	var list recent.List
	list.Add(recent.Slow, &recent.Call{
		Method: "/mooring.v1.DocumentService/Find", Principal: "app", Namespace: "shop.orders",
		Shape: "{a: ?}", RequestID: "r1", Client: netip.MustParseAddr("10.0.0.7"), End: at,
		Took: recent.Times{
			Total: 9 * time.Millisecond, Queue: time.Millisecond, Selection: 2 * time.Microsecond,
			CheckOut: 3 * time.Millisecond, Server: 4 * time.Millisecond,
		},
	})
	list.Add(recent.Slow, &recent.Call{
		Method: "/mooring.v1.DocumentService/Find", Principal: "app", Namespace: "shop.orders",
		Shape: "{a: ?}", RequestID: "r2", End: at.Add(time.Second),
		Took: recent.Times{Total: time.Millisecond},
	})
	list.Add(recent.Refused, &recent.Call{
		Method: "/mooring.v1.DocumentService/Drop\xff", Code: codes.PermissionDenied,
		Reason: "PermissionDenied", Message: "no rule permits it", RequestID: "r3", End: at,
	})
	conn := newConn()
	mooringv1.RegisterDeploymentServiceServer(conn,
		deployment.New(deployment.Config{Recent: &list}))
	h, err := front.New(front.Config{Conn: conn, APIs: []front.API{rest.New(rest.Config{})}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/deployment/calls", nil))
	want := `{"slow":[{"call":"DocumentService/Find","principal":"app",` +
		`"namespace":"shop.orders","shape":"{a: ?}","count":2,` +
		`"lastTime":"2026-01-02T03:04:06.678Z","requestId":"r1","client":"10.0.0.7",` +
		`"endTime":"2026-01-02T03:04:05.678Z","durationMicros":9000,"queueMicros":1000,` +
		`"selectionMicros":2,"checkOutMicros":3000,"serverMicros":4000}],` +
		`"refused":[{"call":"DocumentService/Drop` + "\uFFFD" + `","principal":"",` +
		`"namespace":"","reason":"PermissionDenied","count":1,` +
		`"lastTime":"2026-01-02T03:04:05.678Z","requestId":"r3",` +
		`"endTime":"2026-01-02T03:04:05.678Z","message":"no rule permits it",` +
		`"durationMicros":0,"queueMicros":0,"selectionMicros":0,"checkOutMicros":0,` +
		`"serverMicros":0}]}`
	if w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
	}
}
