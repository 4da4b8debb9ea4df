package rest_test

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/rpcerr"
)

type watchStream = grpc.ServerStreamingServer[mooringv1.WatchTopologyResponse]

// states sends a deployment of each kind and then returns err.
func states(err error, kinds ...string) *fake {
	return &fake{watch: func(s watchStream) error {
		for _, k := range kinds {
			if err := s.Send(&mooringv1.WatchTopologyResponse{
				Topology: &mooringv1.TopologyDescription{Kind: k},
			}); err != nil {
				return err
			}
		}
		return err
	}}
}

func TestWatchForms(t *testing.T) {
	const ndjson, sse = "application/x-ndjson", "text/event-stream"
	const path = "/v1/deployment/topology:watch"
	stops := &rpcerr.Error{Reason: rpcerr.ShuttingDown, Message: "bye"}
	for _, c := range []struct {
		name         string
		fake         *fake
		accept, last string
		code         int
		body         string
	}{
		{
			"lines", states(stops, "Single", "Unknown"), ndjson, "", 200,
			`{"topology":{"kind":"Single","servers":[]}}` + "\n" + `{"topology":{"kind":"Unknown","servers":[]}}` + "\nERROR ShuttingDown\n",
		},
		{"bare lines", states(nil, "Single", "Unknown"), ndjson + ";bare=true", "", 200, `{"kind":"Single","servers":[]}` + "\n" + `{"kind":"Unknown","servers":[]}` + "\n"},
		{
			"events", states(stops, "Single"), sse, "", 200,
			"id: w\ndata: {\"kind\":\"Single\",\"servers\":[]}\n\nevent: failure\nid: w\ndata: ERROR ShuttingDown\n\n",
		},
		{
			"events again", states(stops, "Single"), sse, "w", 200,
			"id: w\ndata: {\"kind\":\"Single\",\"servers\":[]}\n\nevent: failure\nid: w\ndata: ERROR ShuttingDown\n\n",
		},
		{"events that fail at once", states(stops), sse, "", 200, "retry: 1000\nevent: failure\ndata: ERROR ShuttingDown\n\n"},
		{"lines that fail at once", states(stops), ndjson, "", 503, "ERROR ShuttingDown"},
		{"a page", states(nil), "application/json", "", 406, "ERROR NotAcceptable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := []string{"Accept", c.accept}
			if c.last != "" {
				header = append(header, "Last-Event-ID", c.last)
			}
			w := do(newHandler(t, c.fake), "GET", path, "", header...)
			if got := cutErrors(w.Body.String()); w.Code != c.code || got != c.body {
				t.Errorf("%d %q\nwant %d %q", w.Code, got, c.code, c.body)
			}
		})
	}
	h := newHandler(t, states(nil))
	for _, refused := range []struct {
		method, path string
		header       []string
		code         int
	}{
		{"POST", path, nil, 405},
		{"HEAD", path, nil, 405},
		{"GET", "/v1/deployment/topology:stare", nil, 404},
		{"GET", "/v1/deployment:stare", nil, 404},
		{"GET", path, []string{"Mooring-Session", "s"}, 400},
		{"GET", path + "?filter=%7B%7D", nil, 400},
	} {
		if w := do(h, refused.method, refused.path, "", refused.header...); w.Code != refused.code {
			t.Errorf("%s %s %q: %d, want %d", refused.method, refused.path, refused.header, w.Code,
				refused.code)
		}
	}
}

// TestQuietWatchIsKeptAlive checks that a client can tell a topology that does not change from a
// dead connection.
func TestQuietWatchIsKeptAlive(t *testing.T) {
	const topology = `{"kind":"Single","servers":[]}`
	for accept, want := range map[string]string{
		"text/event-stream": "id: w\ndata: " + topology + "\n\n:\n\n:\n\n" +
			"event: failure\nid: w\ndata: ERROR DeadlineExceeded\n\n",
		lines: `{"topology":` + topology + "}\n\n\nERROR DeadlineExceeded\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, &fake{watch: func(s watchStream) error {
				if err := s.Send(&mooringv1.WatchTopologyResponse{
					Topology: &mooringv1.TopologyDescription{Kind: "Single"},
				}); err != nil {
					return err
				}
				<-s.Context().Done()
				return s.Context().Err()
			}})
			path := "/v1/deployment/topology:watch?timeout=40s"
			w := do(h, "GET", path, "", "Accept", accept)
			if got := cutErrors(w.Body.String()); got != want {
				t.Errorf("%s: %q\nwant %q", accept, got, want)
			}
		})
	}
}

func TestTimesInResponses(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 11, 20, 13, 0, 0, 250e6, time.FixedZone("", 3600)))
	h := newHandler(t, &fake{watch: func(s watchStream) error {
		return s.Send(&mooringv1.WatchTopologyResponse{Topology: &mooringv1.TopologyDescription{
			Kind: "Single", Servers: []*mooringv1.ServerDescription{
				{Address: "a:1", Kind: "Standalone", LastUpdateTime: at},
			},
		}})
	}})
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/v1/deployment/topology:watch", nil)
	r.Header.Set("Accept", "application/x-ndjson;bare=true")
	h.ServeHTTP(w, r)
	want := `{"kind":"Single","servers":[{"address":"a:1","kind":"Standalone","hosts":[],"passives":[],"arbiters":[],"tags":{},` +
		`"lastUpdateTime":"2026-11-20T12:00:00.25Z"}]}` + "\n"
	if w.Body.String() != want {
		t.Errorf("%s\nwant %s", w.Body, want)
	}
}
