package changestream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

func doc(t testing.TB, json string) bson.Raw {
	t.Helper()
	if json == "" {
		return nil
	}
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatalf("Parse(%s) = %v", json, err)
	}
	return d
}

func text(t testing.TB, d bson.Raw) string {
	t.Helper()
	if d == nil {
		return ""
	}
	out, err := extjson.Append(nil, d, extjson.Relaxed)
	if err != nil {
		t.Fatalf("Append() = %v", err)
	}
	return string(out)
}

// start returns the options of $changeStream as one document.
func start(s changestream.Start) bson.Raw {
	b := bson.NewBuilder(nil)
	if s.ResumeAfter != nil {
		b.Document("resumeAfter", s.ResumeAfter)
	}
	if s.StartAfter != nil {
		b.Document("startAfter", s.StartAfter)
	}
	if !s.StartAtOperationTime.IsZero() {
		b.Value("startAtOperationTime", s.StartAtOperationTime)
	}
	return b.Finish()
}

// The tokens of the tests, and a stream's first batch and reply.
const (
	tokenA = `{"_data":"a"}`
	tokenB = `{"_data":"b"}`
	tokenP = `{"_data":"p"}`
)

func batchOf(t testing.TB, pbrt string, ids ...string) *cursor.Batch {
	b := &cursor.Batch{PostBatchResumeToken: doc(t, pbrt)}
	for _, id := range ids {
		b.Documents = append(b.Documents, doc(t, `{"_id":`+id+`}`))
	}
	return b
}

func TestPosition(t *testing.T) {
	at := bson.TimestampValue(5, 6)
	const reply = `{"operationTime":{"$timestamp":{"t":7,"i":8}}}`
	type steps = func(p changestream.Position) changestream.Position
	received := func(pbrt string, ids ...string) steps {
		return func(p changestream.Position) changestream.Position {
			return p.Received(batchOf(t, pbrt, ids...))
		}
	}
	opened := func(wire int32, reply, pbrt string, ids ...string) steps {
		return func(p changestream.Position) changestream.Position {
			b := batchOf(t, pbrt, ids...)
			return p.Received(b).Opened(b, doc(t, reply), wire)
		}
	}
	returning := func(n int, pbrt string, ids ...string) steps {
		return func(p changestream.Position) changestream.Position {
			p, err := p.Returning(batchOf(t, pbrt, ids...), n)
			if err != nil {
				t.Errorf("Returning() = %v", err)
			}
			return p
		}
	}
	tests := []struct {
		name  string
		start changestream.Start
		steps []steps
		wire  int32
		token string
		want  string
	}{
		{"now", changestream.Start{}, nil, 21, "", `{}`},
		{"resumeAfter", changestream.Start{ResumeAfter: doc(t, tokenA)}, nil, 21, tokenA, `{"resumeAfter":{"_data":"a"}}`},
		{"startAfter", changestream.Start{StartAfter: doc(t, tokenA)}, nil, 21, tokenA, `{"startAfter":{"_data":"a"}}`},
		{"startAfter before resumeAfter", changestream.Start{ResumeAfter: doc(t, tokenA), StartAfter: doc(t, tokenB)}, nil, 21, tokenB, `{"startAfter":{"_data":"b"}}`},
		{"a time", changestream.Start{StartAtOperationTime: at}, nil, 21, "", `{"startAtOperationTime":{"$timestamp":{"t":5,"i":6}}}`},
		{"a time, 4.0", changestream.Start{StartAtOperationTime: at}, nil, 7, "", `{"startAtOperationTime":{"$timestamp":{"t":5,"i":6}}}`},
		{
			"a token wins over a time",
			changestream.Start{ResumeAfter: doc(t, tokenA), StartAtOperationTime: at},
			nil, 21, tokenA,
			`{"resumeAfter":{"_data":"a"}}`,
		},

		{"operation time of the aggregate", changestream.Start{}, []steps{opened(7, reply, "")}, 7, "", `{"startAtOperationTime":{"$timestamp":{"t":7,"i":8}}}`},
		{"and resumed on 3.6", changestream.Start{}, []steps{opened(7, reply, "")}, 6, "", `{}`},
		{"not of 3.6", changestream.Start{}, []steps{opened(6, reply, "")}, 7, "", `{}`},
		{"no operation time", changestream.Start{}, []steps{opened(7, `{}`, "")}, 7, "", `{}`},
		{"operation time of a wrong type", changestream.Start{}, []steps{opened(7, `{"operationTime":1}`, "")}, 7, "", `{}`},
		{"not with events", changestream.Start{}, []steps{opened(7, reply, "", tokenA)}, 7, "", `{}`},
		{"not with a token of the batch", changestream.Start{}, []steps{opened(21, reply, tokenP)}, 21, tokenP, `{"resumeAfter":{"_data":"p"}}`},
		{"not with a time", changestream.Start{StartAtOperationTime: at}, []steps{opened(7, reply, "")}, 7, "", `{"startAtOperationTime":{"$timestamp":{"t":5,"i":6}}}`},
		{"not with resumeAfter", changestream.Start{ResumeAfter: doc(t, tokenA)}, []steps{opened(7, reply, "")}, 7, tokenA, `{"resumeAfter":{"_data":"a"}}`},

		{"batch with events", changestream.Start{}, []steps{received(tokenP, tokenA)}, 21, "", `{}`},
		{"empty batch without a token", changestream.Start{ResumeAfter: doc(t, tokenA)}, []steps{received("")}, 21, tokenA, `{"resumeAfter":{"_data":"a"}}`},
		{"first event", changestream.Start{}, []steps{returning(0, tokenP, tokenA, tokenB)}, 21, tokenA, `{"resumeAfter":{"_data":"a"}}`},
		{"last event", changestream.Start{}, []steps{returning(1, tokenP, tokenA, tokenB)}, 21, tokenP, `{"resumeAfter":{"_data":"p"}}`},
		{"last event of an old server", changestream.Start{}, []steps{returning(1, "", tokenA, tokenB)}, 7, tokenB, `{"resumeAfter":{"_data":"b"}}`},
		{"an event wins over a time", changestream.Start{StartAtOperationTime: at}, []steps{returning(0, "", tokenA)}, 21, tokenA, `{"resumeAfter":{"_data":"a"}}`},
		{"startAfter, nothing returned", changestream.Start{StartAfter: doc(t, tokenA)}, []steps{received(tokenP)}, 21, tokenP, `{"startAfter":{"_data":"p"}}`},
		{"startAfter, one returned", changestream.Start{StartAfter: doc(t, tokenA)}, []steps{returning(0, "", tokenB), received(tokenP)}, 21, tokenP, `{"resumeAfter":{"_data":"p"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := changestream.StartingAt(tt.start)
			for _, step := range tt.steps {
				p = step(p)
			}
			if got := text(t, p.Token()); got != tt.token {
				t.Errorf("token %s, want %s", got, tt.token)
			}
			if got := text(t, start(p.Resume(tt.wire))); got != tt.want {
				t.Errorf("Resume(%d) = %s, want %s", tt.wire, got, tt.want)
			}
		})
	}
}

func TestPositionWithoutToken(t *testing.T) {
	for _, event := range []string{`{}`, `{"_id":1}`, `{"id":{"_data":"a"}}`} {
		before := changestream.StartingAt(changestream.Start{ResumeAfter: doc(t, tokenB)})
		after, err := before.Returning(&cursor.Batch{
			Documents: []bson.Raw{doc(t, event)}, PostBatchResumeToken: doc(t, tokenP),
		}, 0)
		if !errors.Is(err, changestream.ErrNoResumeToken) || text(t, after.Token()) != tokenB {
			t.Errorf("Returning(%s) = %s, %v, want ErrNoResumeToken", event, text(t, after.Token()),
				err)
		}
	}
}

func TestResumable(t *testing.T) {
	code := func(n int32, labels ...string) error {
		return &mongoerr.CommandError{Code: n, Labels: labels}
	}
	const label = mongoerr.LabelResumableChangeStream
	network := &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.EOF}
	tests := []struct {
		name string
		err  error
		wire int32
		want bool
	}{
		{"network", network, 21, true},
		{"network, wrapped", fmt.Errorf("getMore: %w", network), 7, true},
		{"network, outcome unknown", &operation.OutcomeUnknownError{Err: network}, 21, true},
		{"selection", &mongoerr.SelectionError{}, 21, true},
		{"malformed reply", &mongoerr.MalformedReplyError{}, 21, false},
		{"canceled before anything was sent", context.Canceled, 21, false},
		{"another use of the cursor", cursor.ErrBusy, 21, false},
		{"cursor not found", code(43), 21, true},
		{"cursor not found, 4.2", code(43), 8, true},
		{"label", code(1, label), 9, true},
		{"label, wrapped", &operation.TimeoutError{Err: code(50, label)}, 9, true},
		{"label, 4.2", code(1, label), 8, false},
		{"code without a label", code(91), 9, false},
		{"not resumable by rule", code(136), 8, false},
		{"interrupted", code(11601), 8, false},
		{"capped position lost", code(286), 8, false},
	}
	for _, n := range []int32{
		6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13388, 13435, 13436,
	} {
		tests = append(tests, struct {
			name string
			err  error
			wire int32
			want bool
		}{fmt.Sprint("code ", n, ", 4.2"), code(n), 8, true})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := changestream.Resumable(tt.err, tt.wire); got != tt.want {
				t.Errorf("Resumable(%v, %d) = %v, want %v", tt.err, tt.wire, got, tt.want)
			}
		})
	}
}
