package changes_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/browser"
)

// story is what a follower has seen.
type story struct {
	// Events has a number for each insert, and the kinds of other events.
	Events []any `json:"events"`
	// Ends has "end", and the reasons of failures.
	Ends []string `json:"ends"`
	// Opened counts the streams that were opened.
	Opened int `json:"opened"`
	// Closed says that the follower opens no other stream.
	Closed bool `json:"closed"`
}

// follower follows the changes of a collection over one transport.
type follower interface {
	story() story
}

// change is an event as far as the followers read it.
type change struct {
	Token json.RawMessage `json:"_id"`
	Kind  string          `json:"operationType"`
	Key   struct {
		ID json.RawMessage `json:"_id"`
	} `json:"documentKey"`
}

// final are the reasons after which a stream cannot go on.
var final = map[string]bool{"ChangeStreamHistoryLost": true, "ChangeStreamFatalError": true}

// resumer is a follower in Go, which keeps its last token. run opens one stream from a token and
// reads it to its end.
type resumer struct {
	t   *testing.T
	run func(ctx context.Context, r *resumer) error

	mu    sync.Mutex
	token json.RawMessage
	seen  story
}

// follow starts the follower, which ends with the test.
func (r *resumer) follow() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil && !r.story().Closed {
			_ = r.run(ctx, r) // it goes on
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	r.t.Cleanup(func() {
		stop()
		running.Wait()
	})
}

func (r *resumer) story() story {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

func (r *resumer) last() json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token
}

func (r *resumer) opened() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Opened++
}

func (r *resumer) progress(token json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token = bytes.Clone(token)
}

func (r *resumer) add(c change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token = bytes.Clone(c.Token)
	var event any = c.Kind
	if c.Kind == "insert" {
		if err := json.Unmarshal(c.Key.ID, &event); err != nil {
			r.t.Error(err)
		}
	}
	r.seen.Events = append(r.seen.Events, event)
}

func (r *resumer) end(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Ends = append(r.seen.Ends, reason)
	r.seen.Closed = reason == "end" || final[reason]
}

// lines follows as NDJSON.
func lines(t *testing.T, url, key string) *resumer {
	return &resumer{t: t, run: func(ctx context.Context, r *resumer) error {
		body := map[string]any{}
		if token := r.last(); token != nil {
			body["startAfter"] = token
		}
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path,
			bytes.NewReader(text))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		r.opened()
		return readLines(r, resp.Body)
	}}
}

// readLines reads a stream, or the body of an error, which has the form of a line.
func readLines(r *resumer, body io.Reader) error {
	scanner := bufio.NewScanner(body)
	for scanner.Scan() {
		if len(scanner.Bytes()) == 0 {
			continue // nothing has changed for a while
		}
		var line struct {
			Document *change `json:"document"`
			Progress *struct {
				ResumeToken json.RawMessage `json:"resumeToken"`
			} `json:"progress"`
			End   *struct{} `json:"end"`
			Error *struct {
				Reason string `json:"reason"`
			} `json:"error"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return nil // a line that was cut
		}
		switch {
		case line.Document != nil:
			r.add(*line.Document)
		case line.Progress != nil:
			r.progress(line.Progress.ResumeToken)
		case line.End != nil:
			r.end("end")
		case line.Error != nil:
			r.end(line.Error.Reason)
		default:
			return fmt.Errorf("a line of another kind: %s", scanner.Bytes())
		}
	}
	return scanner.Err()
}

// messages follows over gRPC.
func messages(t *testing.T, address, key string) *resumer {
	t.Helper()
	cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	api := mooringv1.NewChangeStreamServiceClient(cc)
	return &resumer{t: t, run: func(ctx context.Context, r *resumer) error {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key,
			"mooring-document-encoding", "json")
		req := &mooringv1.WatchRequest{Database: database, Collection: new(collection)}
		if token := r.last(); token != nil {
			req.StartAfter = &mooringv1.Document{
				Encoding: &mooringv1.Document_Json{Json: string(token)},
			}
		}
		s, err := api.Watch(ctx, req)
		if err != nil {
			return err
		}
		r.opened()
		for {
			m, err := s.Recv()
			switch {
			case errors.Is(err, io.EOF):
				r.end("end")
				return nil
			case err != nil:
				r.end(reason(err))
				return err
			}
			for _, d := range m.GetDocuments() {
				var c change
				if err := json.Unmarshal([]byte(d.GetJson()), &c); err != nil {
					return err
				}
				r.add(c)
			}
			if token := m.GetResumeToken(); token != nil {
				r.progress(json.RawMessage(token.GetJson()))
			}
		}
	}}
}

// reason returns the reason of a gateway's error, or the code of another one.
func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return status.Code(err).String()
}

// page follows as Server-Sent Events, in a browser.
type page struct{ *browser.Page }

func (p page) story() story {
	var s story
	p.Evaluate("story()", &s)
	return s
}

// opened returns an error while the page has no stream.
func (p page) opened() error {
	var loaded bool
	if p.Evaluate(`typeof story === "function"`, &loaded); !loaded {
		return errors.New("the page is not there yet")
	}
	if s := p.story(); s.Opened == 0 {
		return fmt.Errorf("the page's stream is not open: %+v", s)
	}
	return nil
}

// following is a page whose EventSource follows the stream of a URL.
const following = `<!doctype html><title>changes</title><script>
const events = [], ends = [];
let opened = 0;
const source = new EventSource(%q);
source.onopen = () => opened++;
source.onmessage = e => {
  const change = JSON.parse(e.data);
  events.push(change.operationType === "insert" ? change.documentKey._id : change.operationType);
};
source.addEventListener("failure", e => ends.push(JSON.parse(e.data).error.reason));
source.addEventListener("end", () => ends.push("end"));
function story() { return {events, ends, opened, closed: source.readyState === EventSource.CLOSED}; }
</script>`
