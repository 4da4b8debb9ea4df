package changes_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
	"unique"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/service/payload"
)

// firstMark is the _id of the first document that ends a round. All filters let its event through.
const firstMark = 1_000_000

// watchPipelines has fifty pipelines for the events of the writer. Two of them need a cursor of
// their own.
func watchPipelines() (all []string) {
	for i := range 50 {
		filter := []string{
			fmt.Sprintf(`{"fullDocument.n": {"$gte": %d}}`, i%10),
			fmt.Sprintf(`{"operationType": {"$in": ["update", "delete"]}, "documentKey._id": {"$lt": %d}}`, 4*i),
			fmt.Sprintf(`{"updateDescription.updatedFields.n": {"$in": [%d, %d]}}`, i%10, i%7),
			fmt.Sprintf(`{"operationType": {"$ne": "insert"}, "documentKey._id": {"$gte": %d}}`, 4*i),
			fmt.Sprintf(`{"$and": [{"updateDescription.updatedFields.in.s": {"$exists": true}}, {"documentKey._id": {"$nin": [%d, %d]}}]}`, i, 2*i),
			fmt.Sprintf(`{"fullDocument.in.s": {"$gt": "t%d"}, "documentKey._id": {"$gt": %d}}`, i%4, i),
			fmt.Sprintf(`{"documentKey._id": {"$gt": %d}}`, i-6), // all, and less
		}[i%7]
		match := fmt.Sprintf(`{"$match": {"$or": [{"documentKey._id": {"$gte": %d}}, %s]}}`,
			firstMark, filter)
		if i < 2 {
			match += `, {"$match": {}}`
		}
		all = append(all, "["+match+"]")
	}
	return all
}

// watcher is a client of changes. It goes on after its last token.
type watcher struct {
	pipeline string
	slow     bool

	mu    sync.Mutex
	token string // the _data of the last one; empty: none
	// events has the tokens of the events.
	events []unique.Handle[string]
	opened int
	ended  error // why the last stream has ended
}

// saw records a token, which may be an event's.
func (w *watcher) saw(token string, event bool) {
	if event && w.slow {
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // a slow reader
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.token = token
	if event {
		w.events = append(w.events, unique.Make(token))
	}
}

// follow opens streams until ctx ends.
func (w *watcher) follow(ctx context.Context, open func(context.Context, *watcher) error) {
	for ctx.Err() == nil {
		err := open(ctx, w)
		w.mu.Lock()
		w.ended = err
		w.opened++
		w.mu.Unlock()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// has returns an error unless the watcher has exactly these events.
func (w *watcher) has(want []unique.Handle[string]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.token != "" && slices.Equal(w.events, want) {
		return nil
	}
	i := 0
	for i < min(len(w.events), len(want)) && w.events[i] == want[i] {
		i++
	}
	return fmt.Errorf("%s: %d events, want %d, of which the first %d are right; its last stream "+
		"has ended with %w",
		w.pipeline, len(w.events), len(want), i, w.ended)
}

func (w *watcher) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.token
}

// request returns the request of the next stream.
func (w *watcher) request() (*mooringv1.WatchRequest, error) {
	list, err := extjson.Parse(nil, []byte(`{"list": `+w.pipeline+`}`))
	if err != nil {
		return nil, err
	}
	req := &mooringv1.WatchRequest{Database: database, Collection: new(collection)}
	v, _ := bson.Raw(list).Lookup("list")
	stages, _ := v.Array()
	for stage := range stages.Documents() {
		req.Pipeline = append(req.Pipeline, payload.NewDocument(stage))
	}
	if token := w.last(); token != "" {
		req.StartAfter = payload.NewDocument(bson.NewBuilder(nil).String("_data", token).Finish())
	}
	return req, nil
}

// message reads a message of a stream.
func (w *watcher) message(m *mooringv1.WatchResponse) {
	for _, d := range m.GetDocuments() {
		token, _ := bson.Raw(d.GetBson()).Lookup("_id", "_data")
		text, _ := token.Str()
		w.saw(text, true)
	}
	token, ok := bson.Raw(m.GetResumeToken().GetBson()).Lookup("_data")
	if text, _ := token.Str(); ok && len(m.GetDocuments()) == 0 {
		w.saw(text, false)
	}
}

// watchMessages follows over gRPC.
func watchMessages(cc *grpc.ClientConn, key string) func(context.Context, *watcher) error {
	api := mooringv1.NewChangeStreamServiceClient(cc)
	return func(ctx context.Context, w *watcher) error {
		req, err := w.request()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization",
			"Bearer "+key))
		defer cancel()
		s, err := api.Watch(ctx, req)
		for err == nil {
			var m *mooringv1.WatchResponse
			if m, err = s.Recv(); err == nil {
				w.message(m)
			}
		}
		return err
	}
}

// watchFrames follows over Connect or gRPC-Web.
func watchFrames(url, key string, over framed) func(context.Context, *watcher) error {
	return func(ctx context.Context, w *watcher) error {
		req, err := w.request()
		if err != nil {
			return err
		}
		message, err := proto.Marshal(req)
		if err != nil {
			return err
		}
		frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
		resp, err := post(ctx, url+mooringv1.ChangeStreamService_Watch_FullMethodName, key,
			over.content, append(frame, message...))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		from := bufio.NewReader(resp.Body)
		for {
			var m mooringv1.WatchResponse
			if err := over.next(from, &m); err != nil {
				return err
			}
			w.message(&m)
		}
	}
}

// watchLines follows over NDJSON.
func watchLines(url, key string) func(context.Context, *watcher) error {
	type token struct {
		Data string `json:"_data"`
	}
	return func(ctx context.Context, w *watcher) error {
		body := `{"pipeline": ` + w.pipeline
		if token := w.last(); token != "" {
			body += `, "startAfter": {"_data": "` + token + `"}`
		}
		resp, err := post(ctx, url+path, key, "application/json", []byte(body+"}"))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		for lines := bufio.NewReader(resp.Body); ; {
			text, err := lines.ReadBytes('\n')
			if err != nil {
				return err
			}
			if len(text) == 1 {
				continue // nothing has changed for a while
			}
			var line struct {
				Document *struct {
					ID token `json:"_id"`
				} `json:"document"`
				Progress *struct {
					ResumeToken token `json:"resumeToken"`
				} `json:"progress"`
			}
			err = json.Unmarshal(text, &line)
			switch {
			case err != nil:
			case line.Document != nil:
				w.saw(line.Document.ID.Data, true)
			case line.Progress != nil:
				w.saw(line.Progress.ResumeToken.Data, false)
			default:
				err = errors.New(string(text))
			}
			if err != nil {
				return err
			}
		}
	}
}

func post(ctx context.Context, url, key, content string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", content)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		err = errors.New(resp.Status)
	}
	return resp, err
}

// reference reads the events of a pipeline from the deployment, past the gateway: its server
// filters them.
type reference struct {
	stream *changestream.Stream
	events []unique.Handle[string]
}

func (s *scene) newReference(pipeline string) *reference {
	s.t.Helper()
	list, err := extjson.Parse(nil, []byte(`{"list": `+pipeline+`}`))
	if err != nil {
		s.t.Fatal(err)
	}
	v, _ := bson.Raw(list).Lookup("list")
	stages, _ := v.Array()
	stream, err := s.writer.Watch(s.t.Context(),
		client.Namespace{Database: database, Collection: collection},
		client.WatchOptions{Pipeline: stages})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = stream.Close(context.Background()) })
	return &reference{stream: stream}
}

// read reads up to the event of the document with an _id.
func (r *reference) read(t *testing.T, id int32) {
	t.Helper()
	for {
		event, found, err := r.stream.TryNext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			continue
		}
		token, _ := event.Lookup("_id", "_data")
		text, _ := token.Str()
		r.events = append(r.events, unique.Make(text))
		key, _ := event.Lookup("documentKey", "_id")
		if of, _ := key.Int32(); of == id {
			return
		}
	}
}

// TestFilteredWatches has clients watch a collection in four protocols, each with one of fifty
// pipelines, while a writer changes it, connections are cut, replicas are killed, primaries step
// down and events fall out of the gateway's memory. After each round each client has had exactly
// the events that the server filters with its pipeline, in order, once.
//
// LAB_LIVE=500 says how many clients, and LAB_LIVE_FOR=20m how long.
func TestFilteredWatches(t *testing.T) { testFilteredWatches(t, scripted) }

// TestFilteredWatchesOnEngine does it with the changes, and the $match, of PostgreSQL with
// DocumentDB.
func TestFilteredWatchesOnEngine(t *testing.T) {
	testFilteredWatches(t, func(d *deployment.Deployment) { docdb.Serve(t, d) })
}

func testFilteredWatches(t *testing.T, serve func(*deployment.Deployment)) {
	watchers := number(t, "LAB_LIVE", 60)
	lasts, _ := time.ParseDuration(os.Getenv("LAB_LIVE_FOR"))
	s, key := newStage(t, serve)
	url, target := s.web.serveHTTP(t, http.NotFoundHandler()), s.rpc.serveTCP(t)
	seed := number(t, "LAB_LIVE_SEED", 1)
	writer := &liveWriter{scene: s, rand: rand.New(rand.NewPCG(uint64(seed), 2))} //nolint:gosec // a test
	writer.write(100)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	pipelines := watchPipelines()
	references := map[string]*reference{}
	for _, pipeline := range pipelines {
		references[pipeline] = s.newReference(pipeline)
	}
	var all []*watcher
	var overGRPC func(context.Context, *watcher) error
	for i := range watchers {
		if i%100 == 0 { // a connection for each hundred
			cc, err := grpc.NewClient(target,
				grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cc.Close() }()
			overGRPC = watchMessages(cc, key)
		}
		w := &watcher{pipeline: pipelines[i%len(pipelines)], slow: i%10 == 9}
		all = append(all, w)
		open := []func(context.Context, *watcher) error{
			watchLines(url, key), overGRPC, watchFrames(url, key, overConnect), watchFrames(url, key, overGRPCWeb),
		}[i/2%4] // the same pipeline in several
		running.Go(func() { w.follow(ctx, open) })
	}
	gatewaytest.Eventually(t, patience, func() error {
		for _, w := range all {
			if w.last() == "" {
				return fmt.Errorf("%s: no stream is open: %w", w.pipeline, w.has(nil))
			}
		}
		return nil
	})
	begun := time.Now()
	rounds := 0
	for ; rounds < 8 || time.Since(begun) < lasts; rounds++ {
		writer.write(40)
		switch rounds % 7 {
		case 1, 5:
			s.web.cut(side(rounds / 4 % 2))
			s.rpc.cut(side(rounds / 4 % 2))
		case 2:
			s.replicas.Replace(t.Context(), rounds/7%2, true)
		case 3:
			writer.large(8)
		case 4:
			s.deployment.FailOver()
		case 6:
			s.replicas.Replace(t.Context(), rounds/7%2, false)
		}
		writer.write(40)
		mark := int32(firstMark + rounds)
		s.run(fmt.Sprintf(`{"insert": "orders", "documents": [{"_id": %d}]}`, mark))
		for _, r := range references {
			r.read(t, mark)
		}
		gatewaytest.Eventually(t, 2*patience, func() error {
			for _, w := range all {
				if err := w.has(references[w.pipeline].events); err != nil {
					return fmt.Errorf("round %d, seed %d: %w", rounds, seed, err)
				}
			}
			return nil
		})
	}
	opened, events := 0, 0
	for _, w := range all {
		w.mu.Lock()
		opened, events = opened+w.opened, events+len(w.events)
		w.mu.Unlock()
	}
	t.Logf("%d clients with %d pipelines over %d streams had %d events: %d writes in %d rounds, %s",
		len(all), len(references), len(all)+opened, events, writer.writes, rounds,
		time.Since(begun).Round(time.Second))
}
