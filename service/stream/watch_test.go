package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/stream"
)

// changes implements a change stream with these batches, each of event numbers and a token. After
// them it returns err.
type changes struct {
	batches []changesBatch
	err     error
	events  []bson.Raw
	token   bson.Raw
	sizes   []int32
	asked   int // how often the server was
	closed  int
	log     *[]string // of what happens, in order; may be nil
}

type changesBatch struct {
	events []int
	pad    int
	token  int // 0: none
}

func tokenOf(n int) bson.Raw { return bson.NewBuilder(nil).Int32("t", int32(n)).Finish() }

func eventOf(n, pad int) bson.Raw {
	return bson.NewBuilder(nil).Document("_id", tokenOf(n)).Binary("pad", 0, make([]byte, pad)).
		Finish()
}

func (c *changes) TryNext(context.Context) (bson.Raw, bool, error) {
	if len(c.events) == 0 {
		c.asked++
		if c.log != nil {
			*c.log = append(*c.log, "ask")
		}
		if len(c.batches) == 0 {
			return nil, false, c.err
		}
		c.take()
	}
	if len(c.events) == 0 {
		return nil, false, nil
	}
	next := c.events[0]
	c.events = c.events[1:]
	v, _ := next.Lookup("_id")
	id, ok := v.Document()
	if !ok {
		return nil, false, errors.New("an event without a token")
	}
	c.token = id
	return next, true, nil
}

// take takes the next batch.
func (c *changes) take() {
	b := c.batches[0]
	c.batches = c.batches[1:]
	for _, n := range b.events {
		c.events = append(c.events, eventOf(n, b.pad))
	}
	if len(b.events) == 0 && b.token > 0 {
		c.token = tokenOf(b.token)
	}
}

func (c *changes) Buffered() int               { return len(c.events) }
func (c *changes) ResumeToken() bson.Raw       { return c.token }
func (c *changes) SetBatchSize(n int32)        { c.sizes = append(c.sizes, n) }
func (c *changes) Close(context.Context) error { c.closed++; return nil }

// watch runs a watch and returns what it sends: "[1 2]" for events, "t3" for a token.
func watch(ctx context.Context, c *changes, maxBatch int32) (sent []string, err error) {
	if c.log == nil {
		c.log = &sent
	}
	number := func(d bson.Raw) any {
		v, _ := d.Lookup("t")
		n, _ := v.AsInt64()
		return n
	}
	err = stream.New(stream.Config{MessageBytes: 10_000}).Watch(ctx, stream.Watch{
		Changes: c, MaxBatch: maxBatch,
		Send: func(events []bson.Raw) error {
			var all []any
			for _, e := range events {
				v, _ := e.Lookup("_id")
				id, _ := v.Document()
				all = append(all, number(id))
			}
			*c.log = append(*c.log, fmt.Sprint(all))
			return nil
		},
		Progress: func(token bson.Raw) error {
			*c.log = append(*c.log, fmt.Sprintf("t%v", number(token)))
			return nil
		},
	})
	return *c.log, err
}

// chargedChanges wraps changes and charges each batch as the driver does.
type chargedChanges struct {
	changes
	admission *admission.Admission
	most      int64
}

func (c *chargedChanges) TryNext(ctx context.Context) (bson.Raw, bool, error) {
	asked := c.asked
	event, found, err := c.changes.TryNext(ctx)
	if c.asked > asked && found {
		done, err := c.admission.AdmitReply(ctx, 100)
		if err != nil {
			return nil, false, err
		}
		done(true)
		c.most = max(c.most, c.admission.Bytes().Held)
	}
	return event, found, err
}

// TestChargedChanges checks that a watch is charged with two batches, not with all.
func TestChargedChanges(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1 << 20})
	var account admission.Account
	a.Open(&account, admission.Principal{Name: "p"})
	defer account.Close()
	c := &chargedChanges{admission: a, changes: changes{err: io.EOF}}
	for n := range 20 {
		c.batches = append(c.batches, changesBatch{events: []int{n}})
	}
	ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
	err := stream.New(stream.Config{}).Watch(ctx, stream.Watch{
		Changes:  c,
		Send:     func([]bson.Raw) error { return nil },
		Progress: func(bson.Raw) error { return nil },
	})
	if err != nil || c.most != 200 {
		t.Errorf("Watch = %v, and %d bytes were charged, want 200 for two batches", err, c.most)
	}
}

// TestWatch checks what is sent and when the server is asked: a token at once, then events, and
// newer tokens where there are none. It is asked for more only after everything was sent.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changes{
			token: tokenOf(1), err: io.EOF,
			batches: []changesBatch{
				{events: []int{2, 3}},
				{token: 3}, // as the last event's
				{token: 4},
				{token: 4},
				{events: []int{5, 6, 7}, pad: 4000},
			},
		}
		sent, err := watch(t.Context(), c, 0)
		want := []string{
			"t1", "ask", "[2 3]", "ask", "ask", "t4", "ask", "ask", "[5 6]", "[7]", "ask",
		}
		if err != nil || !slices.Equal(sent, want) || c.closed != 1 {
			t.Errorf("%q, %v, closed %d times\nwant %q", sent, err, c.closed, want)
		}
	})
}

// TestWatchThatBeginsWithEvents sends what came with the first reply without asking.
func TestWatchThatBeginsWithEvents(t *testing.T) {
	c := &changes{err: io.EOF, batches: []changesBatch{{events: []int{1}}}}
	c.take()
	sent, err := watch(t.Context(), c, 0)
	if want := []string{"[1]", "ask"}; err != nil || !slices.Equal(sent, want) {
		t.Errorf("%q, %v, want %q", sent, err, want)
	}
}

// TestWatchFails checks the errors of a watch, of which the events before them are sent.
func TestWatchFails(t *testing.T) {
	failed := errors.New("failed")
	t.Run("the stream", func(t *testing.T) {
		sent, err := watch(t.Context(), &changes{err: failed, token: tokenOf(1)}, 0)
		if want := []string{"t1", "ask"}; !errors.Is(err, failed) || !slices.Equal(sent, want) {
			t.Errorf("%q, %v", sent, err)
		}
	})
	t.Run("in a batch", func(t *testing.T) {
		c := &changes{
			events: []bson.Raw{eventOf(1, 0), bson.NewBuilder(nil).Finish(), eventOf(3, 0)},
		}
		sent, err := watch(t.Context(), c, 0)
		if want := []string{"[1]"}; err == nil || !slices.Equal(sent, want) || c.closed != 1 {
			t.Errorf("%q, %v, closed %d times", sent, err, c.closed)
		}
	})
	t.Run("the transport", func(t *testing.T) {
		for _, c := range []*changes{{}, {events: []bson.Raw{eventOf(1, 0)}}} {
			err := stream.New(stream.Config{}).Watch(t.Context(), stream.Watch{
				Changes: c, Send: func([]bson.Raw) error { return failed },
				Progress: func(bson.Raw) error { return failed },
			})
			if !errors.Is(err, failed) || c.closed != 1 || c.asked > 0 {
				t.Errorf("%v, closed %d times, asked %d times", err, c.closed, c.asked)
			}
		}
	})
	t.Run("the call", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(failed)
		c := &changes{}
		sent, err := watch(ctx, c, 0)
		if !errors.Is(err, failed) || len(sent) > 0 || c.closed != 1 {
			t.Errorf("%q, %v, closed %d times", sent, err, c.closed)
		}
	})
}

// TestWatchIsInterrupted checks that a watch ends with the cause of its context.
func TestWatchIsInterrupted(t *testing.T) {
	failed := errors.New("failed")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := stream.New(stream.Config{}).Watch(ctx, stream.Watch{
		Changes: &changes{events: []bson.Raw{eventOf(1, 0)}},
		Send: func([]bson.Raw) error {
			cancel(failed)
			return context.Canceled
		},
	})
	if !errors.Is(err, failed) {
		t.Errorf("%v, want the cause", err)
	}
}

// TestWatchSizes checks that batches follow the size of events, and the client's batch size.
func TestWatchSizes(t *testing.T) {
	for name, test := range map[string]struct {
		most int32
		want []int32
	}{
		"by size":         {0, []int32{101, 131}},
		"by the client's": {7, []int32{7, 7}},
	} {
		c := &changes{err: io.EOF, batches: []changesBatch{{events: []int{1}, pad: 4000 - 37}}}
		if _, err := watch(t.Context(), c, test.most); err != nil ||
			!slices.Equal(c.sizes, test.want) {
			t.Errorf("%s: batches of %v, %v, want %v", name, c.sizes, err, test.want)
		}
	}
}
