package stream_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/stream"
)

// fake implements a cursor of so many documents of a size.
type fake struct {
	left, size int
	tailable   bool
	batchSize  int32
	sizes      []int32
	err        error // of the second Next
	closed     int
}

func (f *fake) NextLent(context.Context) (cursor.Batch, error) {
	if f.err != nil && len(f.sizes) == 1 {
		return cursor.Batch{}, f.err
	}
	f.sizes = append(f.sizes, f.batchSize)
	var b cursor.Batch
	for ; f.left > 0 && int32(len(b.Documents)) < f.batchSize; f.left-- {
		b.Documents = append(b.Documents, make(bson.Raw, f.size))
		b.Bytes += f.size
	}
	return b, nil
}

func (f *fake) Done() bool                  { return f.left == 0 && !f.tailable }
func (f *fake) SetBatchSize(n int32)        { f.batchSize = n }
func (f *fake) Close(context.Context) error { f.closed++; return nil }

func TestMessagesAndBatches(t *testing.T) {
	f := &fake{left: 10_000, size: 1024}
	s := stream.New(stream.Config{MessageBytes: 300 << 10})
	got := 0
	err := s.Run(t.Context(), stream.Source{Cursor: f, Documents: []bson.Raw{make(bson.Raw, 5)}},
		func(
			docs []bson.Raw,
		) error {
			bytes := 0
			for _, doc := range docs {
				bytes += len(doc)
			}
			if bytes > 300<<10 {
				t.Errorf("a message of %d bytes", bytes)
			}
			got += len(docs)
			return nil
		})
	if err != nil || got != 10_001 || f.closed != 1 {
		t.Errorf("%d documents, closed %d times, %v", got, f.closed, err)
	}
	if f.sizes[0] != batch.First || f.sizes[1] != 4*batch.First ||
		f.sizes[2] != batch.MaxTarget/1024 {
		t.Errorf("batch sizes %v", f.sizes)
	}
}

// TestMessagesAreFull checks that documents share messages, as many as fit: with the default size
// and with one that is configured.
func TestMessagesAreFull(t *testing.T) {
	for _, row := range []struct{ configured, want int }{
		{0, stream.DefaultMessageBytes},
		{1, 1}, // one document at a time
		{10 << 10, 10 << 10},
	} {
		s := stream.New(stream.Config{MessageBytes: row.configured})
		if got := s.MessageBytes(); got != row.want {
			t.Errorf("configured %d: MessageBytes = %d, want %d", row.configured, got, row.want)
		}
		var documents []bson.Raw
		for range 4000 {
			documents = append(documents, make(bson.Raw, 1<<10))
		}
		var messages, total int
		err := s.Run(t.Context(), stream.Source{Cursor: &fake{}, Documents: documents}, func(
			docs []bson.Raw,
		) error {
			messages++
			total += len(docs)
			return nil
		})
		perMessage := max(row.want>>10, 1)
		if want := (4000 + perMessage - 1) / perMessage; err != nil || messages != want ||
			total != 4000 {
			t.Errorf("configured %d: %d documents in %d messages, want %d, %v", row.configured,
				total, messages, want, err)
		}
	}
}

func TestTheClientsBatchSizeIsTheLargest(t *testing.T) {
	for _, test := range []struct {
		name                  string
		documents, size, asks int
		want                  []int32
	}{
		{"small", 30, 10, 7, []int32{7, 7, 7, 7, 7}},
		{"more than a batch may hold", 3000, 10_000, 1_000_000, []int32{101, 52, 52, 52}},
	} {
		f := &fake{left: test.documents, size: test.size, batchSize: int32(test.asks)}
		if err := stream.New(stream.Config{}).
			Run(t.Context(), stream.Source{Cursor: f, MaxBatch: int32(test.asks)}, func(
				[]bson.Raw,
			) error {
				return nil
			}); err != nil {
			t.Fatal(err)
		}
		for i, want := range test.want {
			if f.sizes[i] != want {
				t.Errorf("%s: batches of %v, want %v", test.name, f.sizes, test.want)
				break
			}
		}
	}
}

// TestFirst checks that the first batch is the server's own or less: what the client has chosen, or
// what fills a batch.
func TestFirst(t *testing.T) {
	small, large := batch.Source{Database: "small"}, batch.Source{Database: "large"}
	sizes := batch.NewSizes()
	sizes.Saw(small, 10, 1000)
	sizes.Saw(large, 2, batch.MaxTarget)
	s := stream.New(stream.Config{Sizes: sizes})
	for _, test := range []struct {
		name   string
		of     batch.Source
		chosen *int32
		want   int32
	}{
		{"nothing is known", batch.Source{Database: "x"}, nil, batch.FirstUnknown},
		{"nothing is known, less chosen", batch.Source{}, new(int32(7)), 7},
		{"small documents", small, nil, batch.First},
		{"small documents, less chosen", small, new(int32(7)), 7},
		{"small documents, more chosen", small, new(int32(1_000_000)), batch.First},
		{"large documents", large, nil, 2},
		{"none chosen", large, new(int32(0)), 0},
	} {
		if got := *s.First(test.of, test.chosen); got != test.want {
			t.Errorf("%s: First() = %d, want %d", test.name, got, test.want)
		}
	}
}

// TestFirstBatchFits checks that a stream learns how large documents are for the next one of the
// same source, and that what is known of a cursor counts from its first batch on.
func TestFirstBatchFits(t *testing.T) {
	s := stream.New(stream.Config{})
	of := batch.Source{Database: "d", Collection: "c"}
	for _, test := range []struct {
		name string
		src  stream.Source
		want []int32
	}{
		{"nothing is known", stream.Source{Of: of}, []int32{batch.First, 5, 5}},
		{"the source is known", stream.Source{Of: of}, []int32{5, 5}},
		{"the cursor is known", stream.Source{Sizer: batch.Resume(100<<10, 1)}, []int32{4, 5}},
		{"another source", stream.Source{Of: batch.Source{Database: "x"}}, []int32{batch.First, 5}},
	} {
		f := &fake{left: 200, size: 100 << 10}
		test.src.Cursor = f
		if err := s.Run(t.Context(), test.src, func([]bson.Raw) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := f.sizes[:len(test.want)]; !slices.Equal(got, test.want) {
			t.Errorf("%s: batches of %v, want %v", test.name, got, test.want)
		}
	}
}

func TestEnds(t *testing.T) {
	cut := errors.New("cut")
	gone := errors.New("the client is gone")
	for _, test := range []struct {
		name  string
		next  error
		send  error
		cause error // the context has ended with it
		want  error
	}{
		{name: "the cursor fails", next: io.EOF, want: io.EOF}, // never the end, if the cursor is not done
		{name: "sending fails", send: gone, want: gone},
		{name: "interrupted", next: context.Canceled, cause: cut, want: cut},
		{name: "interrupted while sending", send: status.Error(codes.Canceled, ""), cause: cut, want: cut},
		{name: "failed although interrupted", next: gone, cause: cut, want: gone},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{left: 1000, size: 10, err: test.next}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			err := stream.New(stream.Config{}).Run(ctx, stream.Source{Cursor: f}, func(
				[]bson.Raw,
			) error {
				if test.cause != nil {
					cancel(test.cause)
				}
				return test.send
			})
			if !errors.Is(err, test.want) || f.closed != 1 {
				t.Errorf("Run = %v, closed %d times, want %v, once", err, f.closed, test.want)
			}
		})
	}
}

// A tailable cursor whose server does not wait is not asked in a loop.
func TestQuietTailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{tailable: true}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := stream.New(stream.Config{}).Run(ctx, stream.Source{Cursor: f}, func(
			[]bson.Raw,
		) error {
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || len(f.sizes) > 41 || len(f.sizes) < 30 {
			t.Errorf("%d getMores in 10 s: %v", len(f.sizes), err)
		}
	})
}

// relayed implements a cursor that reports its end only on one more Next.
type relayed struct {
	fake
	ended bool
}

func (r *relayed) NextLent(ctx context.Context) (cursor.Batch, error) {
	if r.left == 0 {
		r.ended = true
		return cursor.Batch{}, nil
	}
	return r.fake.NextLent(ctx)
}

func (r *relayed) Done() bool { return r.ended }

// There is no pause after an empty batch that is the last one.
func TestNoPauseAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		src := stream.Source{Cursor: &relayed{fake: fake{left: 10, size: 10}}}
		if err := stream.New(stream.Config{}).Run(t.Context(), src, func([]bson.Raw) error {
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// charging charges an account with each batch, as a connection does.
type charging struct {
	fake
	admission *admission.Admission
	most      int64 // that was charged
}

func (c *charging) NextLent(ctx context.Context) (cursor.Batch, error) {
	b, err := c.fake.NextLent(ctx)
	if err != nil {
		return b, err
	}
	done, err := c.admission.AdmitReply(ctx, b.Bytes)
	if err != nil {
		return cursor.Batch{}, err
	}
	done(true)
	c.most = max(c.most, c.admission.Bytes().Held)
	return b, nil
}

// TestChargedBatches checks that a stream is charged with two batches, not with all.
func TestChargedBatches(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1 << 30})
	var account admission.Account
	a.Open(&account, admission.Principal{Name: "p"})
	defer account.Close()
	ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
	c := &charging{fake: fake{left: 1000, size: 10 << 10}, admission: a}
	s := stream.New(stream.Config{})
	err := s.Run(ctx, stream.Source{Cursor: c, MaxBatch: 10}, func([]bson.Raw) error { return nil })
	if err != nil || c.most != 2*10*10<<10 {
		t.Errorf("Run = %v, and %d bytes were charged, want two batches", err, c.most)
	}
}

// TestTakenDocumentsAreCharged checks that what a stream has of a cursor that it takes over is
// charged like a batch: until the client has taken the batch after it.
func TestTakenDocumentsAreCharged(t *testing.T) {
	const charge, batch = 1 << 20, 10 << 10
	a := admission.New(admission.Config{Bytes: 1 << 30})
	var account admission.Account
	a.Open(&account, admission.Principal{Name: "p"})
	defer account.Close()
	account.Force(charge)
	ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
	src := stream.Source{
		Cursor:    &charging{fake: fake{left: 3, size: batch}, admission: a},
		Documents: []bson.Raw{make(bson.Raw, charge)}, Charge: charge, MaxBatch: 1,
	}
	var held []int64
	err := stream.New(stream.Config{}).Run(ctx, src, func([]bson.Raw) error {
		held = append(held, a.Bytes().Held)
		return nil
	})
	want := []int64{charge, charge + batch, 2 * batch, 2 * batch}
	if err != nil || !slices.Equal(held, want) {
		t.Errorf("Run = %v, and %d bytes were charged, want %d", err, held, want)
	}
}

// TestQuietStreamsChargeNothing checks that a tailable stream is not charged with its last document
// while it waits for others.
func TestQuietStreamsChargeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1 << 30})
		var account admission.Account
		a.Open(&account, admission.Principal{Name: "p"})
		defer account.Close()
		ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c := &charging{fake: fake{left: 1, size: 15 << 20, tailable: true}, admission: a}
		ended := make(chan error)
		go func() {
			ended <- stream.New(stream.Config{}).Run(ctx, stream.Source{Cursor: c},
				func([]bson.Raw) error { return nil })
		}()
		time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
		synctest.Wait()
		if n := a.Bytes().Held; c.most != 15<<20 || n != 0 {
			t.Errorf("%d of %d bytes are charged after 10 seconds", n, c.most)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// placed wraps a cursor and records how many places its principal has while Next runs.
type placed struct {
	fake
	admission *admission.Admission
	during    []int64
}

func (c *placed) NextLent(ctx context.Context) (cursor.Batch, error) {
	c.during = append(c.during, c.admission.Calls().Held)
	return c.fake.NextLent(ctx)
}

// TestPlaces checks that a stream has a place among the calls in flight while the server works for
// it, and not while its client reads.
func TestPlaces(t *testing.T) {
	a := admission.New(admission.Config{Calls: admission.Limits{Total: 10}})
	var account admission.Account
	a.Open(&account, admission.Principal{Name: "p"})
	ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
	c := &placed{fake: fake{left: 30, size: 10}, admission: a}
	src := stream.Source{Cursor: c, MaxBatch: 10}
	err := stream.New(stream.Config{}).Run(ctx, src, func([]bson.Raw) error {
		if held := a.Calls().Held; held != 0 {
			t.Errorf("%d places while the client reads", held)
		}
		return nil
	})
	if want := []int64{1, 1, 1}; err != nil || !slices.Equal(c.during, want) {
		t.Errorf("%v, places %v; want %v", err, c.during, want)
	}
}

// TestOpenStreamWaitsForItsPlace checks that an open stream waits as long as it must, and that one
// that is about to open is refused.
func TestOpenStreamWaitsForItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{
			Calls: admission.Limits{Each: 1}, Patience: time.Second,
		})
		var account, same admission.Account
		a.Open(&account, admission.Principal{Name: "p"})
		a.Open(&same, admission.Principal{Name: "p"})
		if err := same.EnterCommand(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
		_, err := stream.Open(ctx, func() (int, error) { panic("it was run") })
		if e, ok := errors.AsType[*admission.Error](err); !ok || e.Cause != admission.OwnShare {
			t.Errorf("Open = %v, want a refusal", err)
		}
		c := &fake{left: 10, size: 10}
		ended := make(chan error)
		go func() {
			ended <- stream.New(stream.Config{}).Run(ctx, stream.Source{Cursor: c},
				func([]bson.Raw) error { return nil })
		}()
		time.Sleep(time.Hour) //nolint:forbidigo // time is fake
		same.LeaveCommand()
		if err := <-ended; err != nil || c.left != 0 {
			t.Errorf("Run = %v, and %d documents are left", err, c.left)
		}
		if held := a.Calls().Held; held != 0 {
			t.Errorf("%d places are taken at the end", held)
		}
	})
}
