package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/match"
)

// invoker answers the calls of a client without a connection.
type invoker func(ctx context.Context, request, response any) error

func (f invoker) Invoke(
	ctx context.Context, _ string, request, response any, _ ...grpc.CallOption,
) error {
	return f(ctx, request, response)
}

func (invoker) NewStream(
	context.Context, *grpc.StreamDesc, string, ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// orders returns a collection whose calls f answers.
func orders(f invoker) *client.Collection[bson.Raw] {
	return client.In[bson.Raw](client.New(f, client.Options{Retries: -1}), "shop", "orders")
}

func keyOf(ctx context.Context) string {
	sent, _ := metadata.FromOutgoingContext(ctx)
	return strings.Join(sent.Get("idempotency-key"), " ")
}

func refuse(
	t *testing.T, code codes.Code, reason, retry string, after time.Duration,
) error {
	t.Helper()
	s, err := status.New(code, "refused").WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Metadata: map[string]string{"retry": retry}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(after)},
	)
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// rejected holds the documents that are not written.
type rejected []*Trouble

func (r *rejected) Reject(t *Trouble) error {
	*r = append(*r, t)
	return nil
}

func (r *rejected) Size() (int64, error) { return int64(len(*r)), nil }

// lines returns the lines of the documents.
func (r *rejected) lines() string {
	var all []string
	for _, t := range *r {
		all = append(all, strconv.Itoa(t.Line))
	}
	return strings.Join(all, " ")
}

func (r *rejected) At(size int64) error {
	*r = (*r)[:min(size, int64(len(*r)))]
	return nil
}

func (r *rejected) Sync() error { return nil }

// TestNoKeys imports into a deployment that takes no idempotency keys, and that refuses the first
// batches only when all of them are there.
func TestNoKeys(t *testing.T) {
	unsupported := refuse(t, codes.InvalidArgument, "IdempotencyKeyUnsupported", "never", 0)
	var together sync.WaitGroup
	together.Add(inFlight)
	to := orders(func(ctx context.Context, request, response any) error {
		if keyOf(ctx) != "" {
			together.Done()
			together.Wait()
			return unsupported
		}
		n := int64(len(request.(*mooringv1.InsertManyRequest).GetDocuments()))
		response.(*mooringv1.InsertManyResponse).InsertedCount = &n
		return nil
	})
	i := Import{Collection: to, Rejects: new(rejected)}
	const docs = inFlight * batchDocs
	got, err := i.Run(t.Context(), strings.NewReader(strings.Repeat("{\"a\":1}\n", docs)))
	if err != nil || got.Inserted != docs {
		t.Errorf("Run: %+v and %v, want %d documents", got, err, docs)
	}
}

// TestForgottenKey imports a batch whose first answer is lost, and which is sent again to a gateway
// that does not know its key: one that has forgotten it, or another process without
// idempotency.key. Before that a gateway has answered.
func TestForgottenKey(t *testing.T) {
	for name, failures := range map[string][]error{
		"it is late": {
			refuse(t, codes.Unknown, "WriteOutcomeUnknown", "same-request", 0),
			refuse(t, codes.Unavailable, "IdempotencyUnavailable", "same-request", 31*time.Minute),
		},
		"the gateway restarts in the pause": {
			refuse(t, codes.Unavailable, "WriteOutcomeUnknown", "same-request", 0),
		},
		"the gateway restarts": {status.Error(codes.Unavailable, "connection reset")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var written []*mooringv1.Document
				to := orders(func(_ context.Context, request, response any) error {
					switch response := response.(type) {
					case *mooringv1.InsertManyResponse:
						docs := request.(*mooringv1.InsertManyRequest).GetDocuments()
						response.InsertedCount = new(int64)
						if len(docs) == batchDocs {
							*response.InsertedCount = batchDocs
							return nil
						}
						synctest.Wait() // for the answer to the first batch
						if len(failures) > 0 {
							err := failures[0]
							failures = failures[1:]
							return err
						}
						written = docs
						for i := range written {
							response.WriteErrors = append(response.WriteErrors,
								&mooringv1.WriteError{Index: int64(i), Code: duplicateKey})
						}
					case *mooringv1.FindResponse:
						response.Documents = written
					}
					return nil
				})
				not := new(rejected)
				i := Import{Collection: to, Rejects: not}
				const n = batchDocs + 2
				got, err := i.Run(t.Context(), strings.NewReader(strings.Repeat("{\"a\":1}\n", n)))
				if err != nil || got.Inserted != n || len(*not) > 0 {
					t.Errorf("Run: %+v, %v and %v, want %d documents", got, *not, err, n)
				}
			})
		})
	}
}

// takeAll answers as a deployment that takes all documents, and has none before.
func takeAll(_ context.Context, request, response any) error {
	switch response := response.(type) {
	case *mooringv1.InsertManyResponse:
		docs := request.(*mooringv1.InsertManyRequest).GetDocuments()
		response.InsertedCount = new(int64(len(docs)))
	case *mooringv1.BulkWriteResponse:
		models := request.(*mooringv1.BulkWriteRequest).GetModels()
		response.UpsertedCount = new(int64(len(models)))
	}
	return nil
}

// TestGrownBatch kills an import before the answer to its last batch, and continues it when the
// file has grown, so that the batch has more documents than those that are written, or another last
// one.
func TestGrownBatch(t *testing.T) {
	reused := refuse(t, codes.InvalidArgument, "IdempotencyKeyReused", "never", 0)
	csv := "a\n" + strings.Repeat("1\n", batchDocs+1)
	for name, tt := range map[string]struct {
		before, after string
		docs          int64
		rejects       string
	}{
		"more lines": {
			strings.Repeat("{\"a\":1}\n", batchDocs+2),
			strings.Repeat("{\"a\":1}\n", batchDocs+5), batchDocs + 5, "",
		},
		"a longer line": {csv + "2", csv + "23\n", batchDocs + 1, "1003"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			keys := map[string]string{} // what a key is for
			stored := map[bson.ObjectID]*mooringv1.Document{}
			var kill context.CancelFunc
			to := orders(func(ctx context.Context, request, response any) error {
				mu.Lock()
				defer mu.Unlock()
				if found, ok := response.(*mooringv1.FindResponse); ok {
					found.Documents = slices.Collect(maps.Values(stored))
					return nil
				}
				docs := request.(*mooringv1.InsertManyRequest).GetDocuments()
				answer := response.(*mooringv1.InsertManyResponse)
				answer.InsertedCount = new(int64)
				if of, ok := keys[keyOf(ctx)]; ok && of != fmt.Sprint(docs) {
					return reused
				} else if ok {
					*answer.InsertedCount = int64(len(docs))
					return nil
				}
				keys[keyOf(ctx)] = fmt.Sprint(docs)
				for i, d := range docs {
					v, _ := bson.Raw(d.GetBson()).Lookup("_id")
					id, _ := v.ObjectID()
					if stored[id] != nil {
						answer.WriteErrors = append(answer.WriteErrors,
							&mooringv1.WriteError{Index: int64(i), Code: duplicateKey})
						continue
					}
					stored[id] = d
					*answer.InsertedCount++
				}
				if len(docs) < batchDocs && kill != nil {
					kill()
					return status.Error(codes.Canceled, "killed")
				}
				return nil
			})
			not := new(rejected)
			i := Import{
				Collection: to, Rejects: not, Checkpoint: filepath.Join(t.TempDir(), "state"),
			}
			ctx, cancel := context.WithCancel(t.Context())
			kill = cancel
			if _, err := i.Run(ctx, strings.NewReader(tt.before)); err == nil {
				t.Fatal("the import is finished, want it killed")
			}
			kill = nil
			got, err := i.Run(t.Context(), strings.NewReader(tt.after))
			if err != nil || got.Inserted != tt.docs || not.lines() != tt.rejects {
				t.Errorf("Run: %+v, %v and %v, want %d documents", got, not.lines(), err, tt.docs)
			}
		})
	}
}

// TestTimeSeries imports into a time series, which takes a document twice and returns its fields in
// another order. After the first documents are written, the answer or the import is lost, and so is
// the key.
func TestTimeSeries(t *testing.T) {
	docs := []string{
		`{"_id":1,"at":{"$date":"2026-01-02T00:00:00Z"},"m":{"a":1,"b":[{"c":2,"d":3}]}}`,
		`{"_id":2,"at":{"$date":"2026-01-01T00:00:00Z"},"m":0}`,
		`{"_id":2,"at":{"$date":"2026-01-01T00:00:00Z"},"m":0}`,
		`{"_id":2,"at":{"$date":"2026-01-03T00:00:00Z"},"m":0}`,
	}
	unknown := refuse(t, codes.Unavailable, "WriteOutcomeUnknown", "same-request", 0)
	for way := range 4 {
		killed, late := way%2 > 0, way/2 > 0
		for lost := range len(docs) + 1 {
			if late && lost == 0 {
				continue // nothing tells that more comes
			}
			name := fmt.Sprintf("%d written, killed=%v, late=%v", lost, killed, late)
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					series := &timeSeries{late: late}
					i := Import{
						Collection: orders(series.answer), Rejects: new(rejected),
						Checkpoint: filepath.Join(t.TempDir(), "state"),
					}
					file := strings.Join(docs, "\n")
					series.lost, series.err = lost, unknown
					if killed {
						series.err = status.Error(codes.Canceled, "killed")
						if _, err := i.Run(t.Context(), strings.NewReader(file)); err == nil {
							t.Fatal("the import is finished, want it killed")
						}
					}
					got, err := i.Run(t.Context(), strings.NewReader(file))
					if err != nil || got.Inserted != int64(len(docs)) || got.Rejected > 0 {
						t.Errorf("Run: %+v and %v", got, err)
					}
					slices.Sort(series.docs)
					if !slices.Equal(series.docs, docs) {
						t.Errorf("there are %q", series.docs)
					}
				})
			})
		}
	}
	for name, row := range map[string]struct {
		series timeSeries
		finds  int
	}{
		"undisturbed":              {timeSeries{}, 0},
		"only inserts are allowed": {timeSeries{err: unknown, noFind: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			i := Import{Collection: orders(row.series.answer), Rejects: new(rejected)}
			got, err := i.Run(t.Context(), strings.NewReader(strings.Join(docs, "\n")))
			if err != nil || got.Inserted != int64(len(docs)) || row.series.finds != row.finds {
				t.Errorf("Run: %+v and %v after %d finds", got, err, row.series.finds)
			}
		})
	}
}

// timeSeries answers as one does.
type timeSeries struct {
	docs   []string // as JSON
	lost   int      // of the first insert with an error, how many are written
	err    error    // of the first insert
	late   bool     // the rest of that insert is written after the first find
	rest   []string
	noFind bool
	finds  int
}

func (s *timeSeries) answer(_ context.Context, request, response any) error {
	if found, ok := response.(*mooringv1.FindResponse); ok {
		if s.finds++; s.noFind {
			return status.Error(codes.PermissionDenied, "no permission to find")
		}
		find := request.(*mooringv1.FindRequest)
		if find.GetReadPreference().GetMode() != "primary" {
			return nil // a secondary that is behind
		}
		defer func() { s.docs, s.rest = append(s.docs, s.rest...), nil }()
		filter := bson.Raw(find.GetFilter().GetBson())
		if _, ok := filter.Lookup("at", "$lte"); !ok {
			return errors.New("this takes long without the times")
		}
		f, err := match.Compile(filter)
		if err != nil {
			return err
		}
		for _, text := range s.docs {
			d, err := extjson.Parse(nil, []byte(text))
			if err != nil {
				return err
			}
			if f.Match(d) == match.Yes {
				found.Documents = append(found.Documents, document(backwards(d)))
			}
		}
		return nil
	}
	docs := request.(*mooringv1.InsertManyRequest).GetDocuments()
	err := s.err
	lost := len(docs)
	if s.err = nil; err != nil {
		lost = s.lost
	}
	for i, d := range docs {
		text, err := extjson.Append(nil, d.GetBson(), extjson.Relaxed)
		switch {
		case err != nil:
			return err
		case i < lost:
			s.docs = append(s.docs, string(text))
		case s.late:
			s.rest = append(s.rest, string(text))
		}
	}
	response.(*mooringv1.InsertManyResponse).InsertedCount = new(int64(len(docs)))
	return err
}

// backwards returns a document whose fields are in another order, as those in them.
func backwards(d bson.Raw) bson.Raw {
	var other bson.Raw
	for key, v := range d.All() {
		if inner, ok := v.Document(); ok {
			v = bson.DocumentValue(backwards(inner))
		}
		other = bson.PrependID(other, key, v)
	}
	return other
}

// TestUnendedLine continues an import whose last line had no end yet, with what the file has later.
func TestUnendedLine(t *testing.T) {
	to := orders(takeAll)
	type run struct {
		file     string // what has been added to it
		inserted int64
		rejects  string // their lines
		finished bool
	}
	for name, tt := range map[string]struct {
		upsert bool
		runs   []run
	}{
		"a document": {false, []run{
			{"{\"a\":1}\n{\"a\"", 1, "2", false},
			{"", 1, "2", true},
			{":2}\n{\"a\":", 2, "3", false},
			{"3}\n{\"a\":4}", 4, "", false},
			{"\n", 4, "", true},
		}},
		"a row": {false, []run{
			{"a,b\n1,2\n3,4", 2, "", false},
			{"5\n", 2, "3", false},
			{"", 2, "3", true},
			{"6,7\n8", 3, "3 5", false},
			{",9\r", 4, "3", false},
			{"\n", 4, "3", true},
		}},
		"a row in steps": {false, []run{
			{"a\n1", 1, "", false},
			{"2", 1, "2", false},
			{"", 1, "2", true},
			{"3", 1, "2", false},
			{"4\r\n", 1, "2", false},
			{"", 1, "2", true},
			{"5\n6", 3, "2", false},
			{"7\n8", 4, "2 4", false},
		}},
		"a row of an upsert": {true, []run{
			{"a,b\n1,2", 1, "", false},
			{"3\n4,5\n", 2, "2", false},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			not := new(rejected)
			i := Import{
				Collection: to, Rejects: not, Ends: true,
				Checkpoint: filepath.Join(t.TempDir(), "state"),
			}
			if tt.upsert {
				i.UpsertFields = []string{"a"}
			}
			file := ""
			for n, run := range tt.runs {
				file += run.file
				got, err := i.Run(t.Context(), strings.NewReader(file))
				_, finished := errors.AsType[*FinishedError](err)
				if err != nil && !finished || finished != run.finished ||
					got.Inserted != run.inserted || got.Rejected != int64(len(*not)) ||
					not.lines() != run.rejects {
					t.Errorf("run %d: %+v, rejects of lines %q, %v; want %+v", n+1, got,
						not.lines(), err, run)
				}
			}
		})
	}
}

// TestChangedRow checks what is said of a row that was written before all of it was there.
func TestChangedRow(t *testing.T) {
	to := orders(takeAll)
	for _, files := range [][]string{
		{"a\n1", "a\n123\n"}, {"a\n1", "a\n12", "a\n123"}, {"a\n1", "a\n12", "a\n123\n"},
	} {
		not := new(rejected)
		i := Import{Collection: to, Rejects: not, Checkpoint: filepath.Join(t.TempDir(), "state")}
		for _, file := range files {
			if _, err := i.Run(t.Context(), strings.NewReader(file)); err != nil {
				t.Fatal(err)
			}
		}
		want := rejected{{
			Line: 2, Column: 1, Number: 1, Text: "123",
			Reason: "an earlier run has written this line without its end: correct the document",
		}}
		if !reflect.DeepEqual(*not, want) {
			t.Errorf("%q: rejects %+v, want %+v", files, *not, want)
		}
	}
}

// TestOpenRow checks what is said of a last row that was written and cannot be read any more: only
// a file without it is another one.
func TestOpenRow(t *testing.T) {
	to := orders(takeAll)
	not := new(rejected)
	i := Import{
		Collection: to, Rejects: not, Ends: true, Checkpoint: filepath.Join(t.TempDir(), "state"),
	}
	before := "a,b\n" + strings.Repeat("1,2\n", headBytes) // its first bytes stay the same
	const another = "the checkpoint belongs to another file: after "
	for n, run := range []struct{ file, err, rejects string }{
		{before + "3,", "", ""},
		{before + "3,\"x", "line 4098, column 3: this quote is not closed", ""},
		{before, another + "4096 documents: EOF", ""},
		{
			before[:headBytes] + "\"",
			another + "1023 documents: line 1025, column 1: this quote is not closed", "",
		},
		{before + "3,\"x\"\n", "", "4098"},
	} {
		got, err := i.Run(t.Context(), strings.NewReader(run.file))
		if fmt.Sprint(cmp.Or(err, errors.New(""))) != run.err || not.lines() != run.rejects ||
			got.Inserted != headBytes+1 {
			t.Errorf("run %d: %+v, rejects of lines %q, %v; want %q, %q", n+1, got, not.lines(),
				err, run.rejects, run.err)
		}
	}
}
