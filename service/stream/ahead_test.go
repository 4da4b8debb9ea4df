package stream_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/stream"
)

// distant is a cursor whose server is away by a round trip, and whose batches are lent.
type distant struct {
	fake
	trip     time.Duration
	running  atomic.Int32
	parallel atomic.Bool // a getMore has run while another one did
	panics   bool        // in the third batch
}

func (d *distant) NextLent(ctx context.Context) (cursor.Batch, error) {
	if d.running.Add(1) > 1 {
		d.parallel.Store(true)
	}
	defer d.running.Add(-1)
	select {
	case <-time.After(d.trip):
	case <-ctx.Done():
		return cursor.Batch{}, context.Cause(ctx)
	}
	if d.panics && len(d.sizes) == 2 {
		panic("of a listener")
	}
	b, err := d.fake.NextLent(ctx)
	b.Lent = buffer.Get(16 << 10)
	for i := range b.Documents {
		b.Documents[i] = b.Lent.Bytes()[:d.size]
		b.Documents[i][0] = byte(d.size)
	}
	return b, err
}

// TestReadAhead checks what a stream of ten batches takes: a round trip, and then for each batch
// the longer of a round trip and what its client takes, and without ReadAhead their sum.
func TestReadAhead(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name                string
		trip, client, takes time.Duration
		ahead               bool
	}{
		{"the client is slower", 1 * ms, 3 * ms, 1*ms + 10*3*ms, true},
		{"the server is slower", 4 * ms, 1 * ms, 10*4*ms + 1*ms, true},
		{"a server nearby", 0, 3 * ms, 10 * 3 * ms, true},
		{"not ahead", 1 * ms, 3 * ms, 10 * (1 + 3) * ms, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &distant{fake: fake{left: 100, size: 10}, trip: test.trip}
				begin, got := time.Now(), 0
				err := stream.New(stream.Config{}).Run(t.Context(), stream.Source{
					Cursor: d, MaxBatch: 10, ReadAhead: test.ahead,
				}, func(docs []bson.Raw) error {
					time.Sleep(test.client) //nolint:forbidigo // fake time
					got += len(docs)
					return nil
				})
				if took := time.Since(begin); err != nil || got != 100 || took != test.takes ||
					d.parallel.Load() || d.closed != 1 {
					t.Errorf("%d documents in %v, %v, in parallel %t, closed %d times; want %v",
						got, took, err,
						d.parallel.Load(), d.closed, test.takes)
				}
			})
		})
	}
}

// TestReadAheadEnds checks that a stream that ends early ends what is read ahead, closes its cursor
// afterwards and leaves nothing lent; a panic there is one of the call.
func TestReadAheadEnds(t *testing.T) {
	gone := errors.New("the client is gone")
	for _, test := range []struct {
		name   string
		send   error
		cancel bool
		panics bool
	}{
		{name: "sending fails", send: gone},
		{name: "the call is canceled", cancel: true},
		{name: "reading panics", panics: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := buffer.Lent()
				d := &distant{
					fake: fake{left: 100, size: 10}, trip: time.Second, panics: test.panics,
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var panicked any
				err := func() error {
					defer func() { panicked = recover() }()
					return stream.New(stream.Config{}).Run(ctx, stream.Source{
						Cursor: d, MaxBatch: 10, ReadAhead: true,
					}, func([]bson.Raw) error {
						if test.cancel {
							cancel(gone)
						}
						return test.send
					})
				}()
				if !test.panics && !errors.Is(err, gone) || (panicked != nil) != test.panics {
					t.Errorf("Run() = %v, panic %v", err, panicked)
				}
				if n := buffer.Lent() - before; n != 0 || d.running.Load() != 0 || d.closed != 1 {
					t.Errorf("%d are lent, %d run, closed %d times", n, d.running.Load(), d.closed)
				}
			})
		})
	}
}

// TestNothingIsReadAhead checks that a stream reads no batch ahead while there is no memory for it,
// after an empty batch, and at the end.
func TestNothingIsReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1 << 20})
		var account, other admission.Account
		a.Open(&account, admission.Principal{Name: "p"})
		a.Open(&other, admission.Principal{Name: "q"})
		defer account.Close()
		ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
		d := &distant{fake: fake{left: 50, size: 10 << 10}, trip: time.Second}
		var running []int32
		err := stream.New(stream.Config{}).Run(ctx, stream.Source{
			Cursor: d, MaxBatch: 10, ReadAhead: true,
		}, func([]bson.Raw) error {
			synctest.Wait()
			running = append(running, d.running.Load())
			switch len(running) {
			case 1:
				other.Force(1 << 20)
			case 3:
				other.Close()
			}
			return nil
		})
		// The second batch is read while the first is sent. The other call's memory keeps the
		// third and the fourth from that. Nothing follows the fifth.
		if want := []int32{1, 0, 0, 1, 0}; err != nil || !slices.Equal(running, want) {
			t.Errorf("%v; getMores under way while a batch is sent: %v, want %v", err, running,
				want)
		}
	})
}

// TestBatchesAreLent checks how long the documents of a batch are valid: until the one after it is
// sent, and those of the last until the call ends. A batch that was not sent stays valid.
func TestBatchesAreLent(t *testing.T) {
	for name, fails := range map[string]bool{"all are sent": false, "the last is not sent": true} {
		t.Run(name, func(t *testing.T) {
			before := buffer.Lent()
			l := &call.Lent{}
			ctx := &call.Context{Context: t.Context(), Call: call.Call{Local: call.Local{Lent: l}}}
			var sent []bson.Raw
			err := stream.New(stream.Config{}).Run(ctx, stream.Source{
				Cursor: &distant{fake: fake{left: 50, size: 10}}, MaxBatch: 10, ReadAhead: true,
			}, func(docs []bson.Raw) error {
				sent = append(sent, docs[0])
				for _, valid := range sent[max(len(sent)-2, 0):] {
					if valid[0] != 10 {
						t.Errorf("batch %d: a document reads %x", len(sent), valid)
					}
				}
				if fails && len(sent) == 5 {
					return errors.New("gone")
				}
				return nil
			})
			if (err != nil) != fails || sent[4][0] != 10 || len(sent) != 5 {
				t.Errorf("Run() = %v, and the last of %d batches reads %x", err, len(sent), sent[4])
			}
			l.Close()
			if n := buffer.Lent() - before; n != 0 || fails && sent[4][0] != 10 {
				t.Errorf("%d are lent; the last reads %x", n, sent[4])
			}
			if buffer.Poisoned &&
				(sent[2][0] != buffer.Poison || !fails && sent[4][0] != buffer.Poison) {
				t.Error("what was sent can be read after the call")
			}
		})
	}
}

// late is a cursor whose server says with an empty batch that there is no more.
type late struct {
	distant
	ended bool
}

func (l *late) NextLent(ctx context.Context) (cursor.Batch, error) {
	b, err := l.distant.NextLent(ctx)
	l.ended = len(b.Documents) == 0
	return b, err
}

func (l *late) Done() bool { return l.ended }

// TestEmptyBatchesEndNothing checks that a last batch without documents leaves the one before valid
// until the call ends: its client may still read it.
func TestEmptyBatchesEndNothing(t *testing.T) {
	before := buffer.Lent()
	l := &call.Lent{}
	ctx := &call.Context{Context: t.Context(), Call: call.Call{Local: call.Local{Lent: l}}}
	var sent []bson.Raw
	err := stream.New(stream.Config{}).Run(ctx, stream.Source{
		Cursor:   &late{distant: distant{fake: fake{left: 20, size: 10}}},
		MaxBatch: 10,
	}, func(docs []bson.Raw) error {
		sent = append(sent, docs[0])
		return nil
	})
	if err != nil || len(sent) != 2 {
		t.Fatalf("Run() = %v; %d batches", err, len(sent))
	}
	if sent[1][0] != 10 {
		t.Errorf("the last document reads %x before the call ends", sent[1])
	}
	l.Close()
	if n := buffer.Lent() - before; n != 0 || buffer.Poisoned && sent[1][0] != buffer.Poison {
		t.Errorf("%d are lent after the call; the last document reads %x", n, sent[1])
	}
}
