package rest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/payload"
)

// limited returns a handler whose calls may hold so many bytes.
func limited(t *testing.T, f *fake, bytes int64) (http.Handler, *admission.Admission) {
	t.Helper()
	a := admission.New(admission.Config{Bytes: bytes})
	return newHandler(t, f, func(c *config) { c.Admission = a }), a
}

// pads returns documents with a text of so many characters.
func pads(n, length int, char string) []*mooringv1.Document {
	docs := make([]*mooringv1.Document, n)
	for i := range docs {
		raw := bson.NewBuilder(nil).Int32("_id", int32(i)).
			String("pad", strings.Repeat(char, length)).Finish()
		docs[i] = payload.NewDocument(raw)
	}
	return docs
}

func findsPads(docs []*mooringv1.Document) *fake {
	return &fake{find: func(
		context.Context, *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		return &mooringv1.FindResponse{Documents: docs, Cursor: proto.String("token")}, nil
	}}
}

// TestLargeResponses checks that a response that is encoded twice and written in pieces has the
// text and the length of one that is not.
func TestLargeResponses(t *testing.T) {
	for _, test := range []struct {
		name      string
		n, length int
	}{
		{"one small document", 1, 10},
		{"just below", 25, 10_000},
		{"above", 40, 10_000},
		{"small ones", 20_000, 30},
		{"large ones", 3, 1 << 20},
		{"one large one", 1, 3 << 20},
	} {
		h := newHandler(t, findsPads(pads(test.n, test.length, "x")))
		w := do(h, "POST", documents+":find", "{}")
		var want strings.Builder
		want.WriteString(`{"documents":[`)
		for i := range test.n {
			if i > 0 {
				want.WriteByte(',')
			}
			want.WriteString(`{"_id":` + strconv.Itoa(i) + `,"pad":"` +
				strings.Repeat("x", test.length) + `"}`)
		}
		want.WriteString(`],"cursor":"token"}`)
		if w.Code != 200 || w.Body.String() != want.String() {
			t.Errorf("%s: %d with %d bytes, want %d", test.name, w.Code, w.Body.Len(), want.Len())
		}
		if got := w.Header().Get("Content-Length"); got != strconv.Itoa(want.Len()) {
			t.Errorf("%s: Content-Length %s, want %d", test.name, got, want.Len())
		}
	}
}

// TestResponseAsBSON checks the documents of a response in BSON: one that is kept as a whole, and
// one that is written in pieces.
func TestResponseAsBSON(t *testing.T) {
	for _, n := range []int{20, 100} {
		docs := pads(n, 10_000, "x")
		h := newHandler(t, findsPads(docs))
		w := do(h, "POST", documents+":find", "{}", "Accept", "application/bson")
		var want strings.Builder
		for _, d := range docs {
			want.Write(d.GetBson())
		}
		if w.Code != 200 || w.Body.String() != want.String() {
			t.Errorf("%d documents: %d with %d bytes, want %d", n, w.Code, w.Body.Len(), want.Len())
		}
		if got := w.Header().Get("Mooring-Cursor"); got != "token" {
			t.Errorf("%d documents: Mooring-Cursor: %q", n, got)
		}
	}
}

// TestLargeBSONIsNotKept checks that a large document in BSON goes out in pieces: a copy of it
// would have to be charged.
func TestLargeBSONIsNotKept(t *testing.T) {
	const length = 8 << 20
	large := pads(1, length, "x")[0]
	f := findsPads([]*mooringv1.Document{large})
	f.resources = &resources{ready: large, t: t}
	h := newHandler(t, f)
	for _, row := range []struct{ method, path, body string }{
		{"POST", documents + ":find", "{}"}, {"GET", documents + "/7", ""},
	} {
		w := do(h, row.method, row.path, row.body, "Accept", "application/bson")
		if !bytes.Equal(w.Body.Bytes(), large.GetBson()) {
			t.Errorf("%s: %d with %d bytes, want %d", row.path, w.Code, w.Body.Len(),
				len(large.GetBson()))
		}
		r := httptest.NewRequest(row.method, row.path, strings.NewReader(row.body))
		r.Header.Set("Accept", "application/bson")
		r.Header.Set("Content-Type", "application/json")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.ServeHTTP(nowhere{http.Header{}}, r)
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; taken > length/4 {
			t.Errorf("%s: %d bytes for a document of %d", row.path, taken, length)
		}
	}
}

// TestTextsReuseMemory checks that the text of a response is made where the last one was.
func TestTextsReuseMemory(t *testing.T) {
	const requests, length = 100, 200_000
	h := newHandler(t, findsPads(pads(1, length, "x")))
	get := func() { h.ServeHTTP(nowhere{http.Header{}}, newPost(documents+":find", nil)) }
	get()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range requests {
		get()
	}
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > requests*length*3/4 {
		t.Errorf("%d bytes for %d texts of %d", taken, requests, length)
	}
}

// nowhere is a response that goes nowhere.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header       { return n.header }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}

// TestNoRoomForText checks that the text of a large document is charged before it is made, with
// what its characters become. The cursor of the page is closed, unless the client gets the page
// with the number of its statement.
func TestNoRoomForText(t *testing.T) {
	for _, row := range []struct {
		char, body   string
		code, closed int
	}{
		{"x", "{}", 200, 0},
		{"\x01", "{}", 413, 1},
		{"\x01", `{"transaction":"t","statement":1}`, 413, 0},
		{"\x01", `{"transaction":"t"}`, 413, 1},
	} {
		closed := 0
		f := findsPads(pads(1, 1<<20, row.char))
		f.close = func(
			context.Context, *mooringv1.CloseCursorRequest,
		) (*mooringv1.CloseCursorResponse, error) {
			closed++
			return &mooringv1.CloseCursorResponse{}, nil
		}
		h, a := limited(t, f, 3<<20)
		w := do(h, "POST", documents+":find", row.body)
		if w.Code != row.code || closed != row.closed {
			t.Errorf("%q, %s: %d, and %d cursors are closed, want %d and %d", row.char, row.body,
				w.Code, closed, row.code, row.closed)
		}
		if got := a.Bytes().Held; got != 0 {
			t.Errorf("%q, %s: %d bytes are held at the end", row.char, row.body, got)
		}
	}
}

// TestNoRoomForTextOfValues checks the same for a value that stands alone.
func TestNoRoomForTextOfValues(t *testing.T) {
	for char, want := range map[string]int{"x": 200, "\x01": 413} {
		value := payload.NewValue(bson.StringValue(strings.Repeat(char, 1<<20)))
		h, a := limited(t, &fake{distinct: func(
			context.Context, *mooringv1.DistinctRequest,
		) (*mooringv1.DistinctResponse, error) {
			return &mooringv1.DistinctResponse{Values: []*mooringv1.Value{value}}, nil
		}}, 3<<20)
		if w := do(h, "POST", documents+":distinct", `{"fieldName":"a"}`); w.Code != want {
			t.Errorf("%q: %d, want %d", char, w.Code, want)
		}
		if got := a.Bytes().Held; got != 0 {
			t.Errorf("%q: %d bytes are held at the end", char, got)
		}
	}
}

// TestNoTurnWhileWaitingForRoom checks that a call that waits for memory lets others work: they may
// hold the memory, and return it when they have worked.
func TestNoTurnWhileWaitingForRoom(t *testing.T) {
	for _, method := range []string{":find", ":streamFind"} {
		synctest.Test(t, func(t *testing.T) {
			docs := pads(1, 1<<20, "x")
			f := findsPads(docs)
			f.streamFind = func(_ *mooringv1.StreamFindRequest,
				s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
			) error {
				return s.Send(&mooringv1.StreamFindResponse{Documents: docs})
			}
			a := admission.New(admission.Config{Bytes: 8 << 20, Patience: time.Minute})
			h := newHandler(t, f, func(c *config) { c.Admission = a })
			var all admission.Account
			a.Open(&all, admission.Principal{})
			all.Force(8 << 20)
			answered := make(chan int)
			go func() { answered <- do(h, "POST", documents+method, "{}").Code }()
			synctest.Wait()
			if a.Bytes().Waiting != 1 {
				t.Fatalf("%s: %d calls wait for memory, want 1", method, a.Bytes().Waiting)
			}
			worked := make(chan struct{})
			go func() {
				defer close(worked)
				for range max(1, runtime.GOMAXPROCS(0)-1) { // all turns that there are
					turn := a.Turn()
					turn.Take()
					defer turn.Leave()
				}
			}()
			synctest.Wait()
			select {
			case <-worked:
			default:
				t.Errorf("%s: the call has a turn while it waits for memory", method)
			}
			all.Close()
			if code := <-answered; code != 200 {
				t.Errorf("%s: %d", method, code)
			}
		})
	}
}

// TestNoRoomBeforeTheDeadline checks that a body's wait for memory ends with the deadline of its
// call, and that the answer's does not: that may be the answer of a write.
func TestNoRoomBeforeTheDeadline(t *testing.T) {
	const budget, patience = 8 << 20, 5 * time.Second
	for name, row := range map[string]struct {
		body   int
		answer []*mooringv1.Document
		code   int
		took   time.Duration
	}{
		"a body":    {100 << 10, nil, 504, time.Second},
		"an answer": {0, pads(1, 1<<20, "x"), 503, patience},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: budget, Patience: patience})
			var others admission.Account
			a.Open(&others, admission.Principal{Name: "others"})
			others.Force(budget)
			defer others.Close()
			f := findsPads(row.answer)
			f.close = func(
				context.Context, *mooringv1.CloseCursorRequest,
			) (*mooringv1.CloseCursorResponse, error) {
				return &mooringv1.CloseCursorResponse{}, nil
			}
			h := newHandler(t, f, func(c *config) { c.Admission = a })
			begun := time.Now()
			w := do(h, "POST", documents+":find",
				`{"filter":{"a":"`+strings.Repeat("x", row.body)+`"}}`, "Request-Timeout", "1s")
			if took := time.Since(begun); w.Code != row.code || took != row.took {
				t.Errorf("%s: %d after %v, want %d after %v; %s", name, w.Code, took, row.code,
					row.took, w.Body)
			}
		})
	}
}

// TestNoRoomWhenTheCallEnds checks that a stream's wait for memory ends with its call.
func TestNoRoomWhenTheCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("the credential has expired")
		var failed error
		f := &fake{streamFind: func(_ *mooringv1.StreamFindRequest,
			s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
		) error {
			ctx, end := context.WithCancelCause(s.Context())
			time.AfterFunc(time.Second, func() { end(over) })
			send := s.(*grpc.GenericServerStream[
				mooringv1.StreamFindRequest, mooringv1.StreamFindResponse,
			]).ServerStream.(interface {
				SendMsgContext(ctx context.Context, m any) error
			})
			failed = send.SendMsgContext(ctx,
				&mooringv1.StreamFindResponse{Documents: pads(1, 1<<20, "x")})
			return failed
		}}
		a := admission.New(admission.Config{Bytes: 8 << 20, Patience: time.Minute})
		var all admission.Account
		a.Open(&all, admission.Principal{})
		all.Force(8 << 20)
		defer all.Close()
		begun := time.Now()
		h := newHandler(t, f, func(c *config) { c.Admission = a })
		do(h, "POST", documents+":streamFind", "{}")
		if took := time.Since(begun); took != time.Second || !errors.Is(failed, over) {
			t.Errorf("the wait took %s and ended with %v, want 1s and %v", took, failed, over)
		}
	})
}

// TestHeavyBodiesTakeTurns checks that decoding a large body waits for its turn, as one request or
// as a bare document, and that a small one does not.
func TestHeavyBodiesTakeTurns(t *testing.T) {
	text := func(size int) string { return `{"a":"` + strings.Repeat("x", size) + `"}` }
	for _, row := range []struct {
		name, method, path, body string
		waits                    bool
	}{
		{"small", "POST", documents + ":find", `{"filter":` + text(1<<10) + `}`, false},
		{"request", "POST", documents + ":find", `{"filter":` + text(300<<10) + `}`, true},
		{"small document", "PUT", documents + "/1", text(1 << 10), false},
		{"document", "PUT", documents + "/1", text(300 << 10), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := admission.New(admission.Config{})
				turns := make([]admission.Turn, max(1, runtime.GOMAXPROCS(0)-1)) // all there are
				for i := range turns {
					turns[i] = a.Turn()
					turns[i].Take()
				}
				f := findsPads(nil)
				f.resources = &resources{document: "{}", t: t}
				h := newHandler(t, f, func(c *config) { c.Admission = a })
				done := make(chan struct{})
				go func() {
					defer close(done)
					do(h, row.method, row.path, row.body, "Content-Type", "application/json")
				}()
				synctest.Wait()
				waits := true
				select {
				case <-done:
					waits = false
				default:
				}
				if waits != row.waits {
					t.Errorf("waits for its turn: %v, want %v", waits, row.waits)
				}
				for i := range turns {
					turns[i].Leave()
				}
				<-done
			})
		})
	}
}

// slowClient is a client that takes the header of a response and then nothing until it reads.
type slowClient struct {
	*httptest.ResponseRecorder
	reads chan struct{}
}

func (u slowClient) Write(b []byte) (int, error) {
	<-u.reads
	return u.ResponseRecorder.Write(b)
}

// TestNoTurnWhileWaitingForTheClient checks that a call whose client does not read lets others
// work, also if it compresses the response.
func TestNoTurnWhileWaitingForTheClient(t *testing.T) {
	for _, method := range []string{":find", ":streamFind"} {
		for _, coding := range []string{"identity", "gzip", "zstd"} {
			synctest.Test(t, func(t *testing.T) {
				docs := pads(3, 200<<10, "x")
				f := findsPads(docs)
				f.streamFind = func(_ *mooringv1.StreamFindRequest,
					s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
				) error {
					return s.Send(&mooringv1.StreamFindResponse{Documents: docs})
				}
				a := admission.New(admission.Config{})
				h := newHandler(t, f, func(c *config) { c.Admission = a })
				client := slowClient{httptest.NewRecorder(), make(chan struct{})}
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					r := newPost(documents+method, strings.NewReader("{}"))
					r.Header.Set("Accept-Encoding", coding)
					h.ServeHTTP(client, r)
				}()
				synctest.Wait()
				worked := make(chan struct{})
				go func() {
					defer close(worked)
					for range max(1, runtime.GOMAXPROCS(0)-1) { // all turns that there are
						turn := a.Turn()
						turn.Take()
						defer turn.Leave()
					}
				}()
				synctest.Wait()
				select {
				case <-worked:
				default:
					t.Errorf("%s, %s: the call has a turn while it waits", method, coding)
				}
				close(client.reads)
				<-answered
				if client.Code != 200 || client.Body.Len() == 0 {
					t.Errorf("%s, %s: %d with %d bytes", method, coding, client.Code,
						client.Body.Len())
				}
			})
		}
	}
}

// TestNoRoomForBodies checks that bodies are charged before they are read, or as they arrive.
func TestNoRoomForBodies(t *testing.T) {
	for _, test := range []struct {
		name  string
		bytes int
		known bool
		want  int
	}{
		{"small", 10_000, true, 200},
		{"fits", 400_000, true, 200},
		{"too large", 600_000, true, 413},
		{"small, length unknown", 50_000, false, 200},
		{"too large, length unknown", 400_000, false, 429},
	} {
		f := findsPads(nil)
		h, a := limited(t, f, 1<<20)
		text := `{"filter":{"a":"` + strings.Repeat("x", test.bytes) + `"}}`
		body := io.Reader(strings.NewReader(text))
		if !test.known {
			body = struct{ io.Reader }{body}
		}
		r := httptest.NewRequest("POST", documents+":find", body)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%s: %d %s, want %d", test.name, w.Code, w.Body, test.want)
		}
		if got := a.Bytes().Held; got != 0 {
			t.Errorf("%s: %d bytes are held at the end", test.name, got)
		}
	}
}

// TestBodiesAreChargedAsTheyArrive checks that a body takes little of the memory before it arrives,
// whatever its length, and is charged until the call ends.
func TestBodiesAreChargedAsTheyArrive(t *testing.T) {
	const whole = 1 << 20
	for _, length := range []int64{whole, -1} {
		synctest.Test(t, func(t *testing.T) {
			h, a := limited(t, findsPads(nil), 8<<20)
			body, client := io.Pipe()
			r := httptest.NewRequest("POST", documents+":find", body)
			r.ContentLength = length
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			done := make(chan struct{})
			go func() {
				defer close(done)
				h.ServeHTTP(w, r)
			}()
			sent := 0
			for _, step := range []struct{ arrived, held int }{
				{0, 0},
				{16 << 10, 0},
				{32 << 10, 128 << 10},
				{65 << 10, 256 << 10},
				{500 << 10, 1 << 20},
			} {
				_, _ = client.Write(bytes.Repeat([]byte(" "), step.arrived-sent))
				sent = step.arrived
				synctest.Wait()
				if got := a.Bytes().Held; got != int64(step.held) {
					t.Errorf("length %d, %d bytes arrived: %d are held, want %d", length,
						step.arrived, got, step.held)
				}
			}
			_, _ = client.Write(bytes.Repeat([]byte(" "), whole-sent))
			_ = client.Close()
			<-done
			if got := a.Bytes().Held; w.Code != 200 || got != 0 {
				t.Errorf("length %d: %d, and %d bytes are held at the end", length, w.Code, got)
			}
		})
	}
}

// TestItems checks that the items of a request are counted and charged.
func TestItems(t *testing.T) {
	inserted := 0
	f := &fake{insertMany: func(
		_ context.Context, r *mooringv1.InsertManyRequest,
	) (*mooringv1.InsertManyResponse, error) {
		inserted = len(r.GetDocuments())
		return &mooringv1.InsertManyResponse{}, nil
	}}
	insert := func(h http.Handler, n int) int {
		inserted = 0
		text := `{"documents":[` + strings.Repeat("{},", n-1) + `{}]}`
		return do(h, "POST", documents+":insertMany", text).Code
	}
	h := newHandler(t, f, func(c *config) { c.MaxItems = 3000 })
	if code := insert(h, 3000); code != 200 || inserted != 3000 {
		t.Errorf("3,000 documents: %d, %d inserted", code, inserted)
	}
	if code := insert(h, 3001); code != 413 || inserted != 0 {
		t.Errorf("3,001 documents: %d, %d inserted", code, inserted)
	}
	h, _ = limited(t, f, 1<<20)
	if code := insert(h, 1000); code != 200 || inserted != 1000 {
		t.Errorf("1,000 documents in 1 MiB: %d, %d inserted", code, inserted)
	}
	if code := insert(h, 3000); code != 429 || inserted != 0 {
		t.Errorf("3,000 documents in 1 MiB: %d, %d inserted", code, inserted)
	}
}
