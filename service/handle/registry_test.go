package handle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/handle"
)

// server holds cursors: documents {i: n} of a given size, in batches.
type server struct {
	mu      sync.Mutex
	open    map[int64]*state
	opened  int64
	killed  int
	fetched int
	next    func(ctx context.Context) error // runs before each getMore
	sizes   []int32

	buffer   int           // of each batch
	slowKill time.Duration // that killing takes
}

type state struct{ at, total, batch, size int }

func newServer() *server { return &server{open: map[int64]*state{}} }

func (s *server) find(total, batch, size int) *fakeCursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	id := s.opened
	st := &state{total: total, batch: batch, size: size}
	first := s.take(id, st)
	if st.at < total {
		s.open[id] = st
	}
	c := &fakeCursor{s: s, first: &first}
	c.state = cursor.State{Server: "db:27017", ID: id, Database: "shop", Collection: "orders"}
	if st.at >= total {
		c.state.ID = 0
	}
	return c
}

func (s *server) take(id int64, st *state) cursor.Batch {
	b := cursor.Batch{Buffer: s.buffer}
	for ; st.at < st.total && len(b.Documents) < st.batch; st.at++ {
		doc := bson.NewBuilder(nil).Int32("i", int32(st.at)).Binary("pad", 0, make([]byte, st.size)).Finish()
		b.Documents = append(b.Documents, doc)
		b.Bytes += len(doc)
	}
	if st.at == st.total {
		delete(s.open, id)
	}
	return b
}

func (s *server) count() (open, killed, fetched int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.killed, s.fetched
}

func (s *server) resume(st cursor.State) handle.Cursor { return &fakeCursor{s: s, state: st} }

type fakeCursor struct {
	s     *server
	state cursor.State
	first *cursor.Batch
	runOn bool
}

func (c *fakeCursor) Next(ctx context.Context) (cursor.Batch, error) {
	if c.first != nil {
		b := *c.first
		c.first = nil
		return b, nil
	}
	if c.state.ID == 0 {
		return cursor.Batch{}, io.EOF
	}
	if c.s.next != nil {
		if err := c.s.next(ctx); err != nil {
			return cursor.Batch{}, err
		}
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.fetched++
	st := c.s.open[c.state.ID]
	if st == nil {
		c.state.ID = 0
		return cursor.Batch{}, &mongoerr.CommandError{Code: 43, Name: "CursorNotFound"}
	}
	c.s.sizes = append(c.s.sizes, c.state.BatchSize)
	if c.state.BatchSize > 0 {
		st.batch = int(c.state.BatchSize)
	}
	b := c.s.take(c.state.ID, st)
	if st.at == st.total {
		c.state.ID = 0
	}
	return b, nil
}

func (c *fakeCursor) Done() bool                  { return c.first == nil && c.state.ID == 0 }
func (c *fakeCursor) State() cursor.State         { return c.state }
func (c *fakeCursor) SetBatchSize(n int32)        { c.state.BatchSize = n }
func (c *fakeCursor) SetMaxAwaitTimeMS(ms *int64) { c.state.MaxAwaitTimeMS = ms }
func (c *fakeCursor) SetRunOn(on bool)            { c.runOn = on }
func (c *fakeCursor) Close(context.Context) error {
	time.Sleep(c.s.slowKill) //nolint:forbidigo // fake time
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.state.ID != 0 {
		delete(c.s.open, c.state.ID)
		c.state.ID = 0
		c.s.killed++
	}
	return nil
}

type fixture struct {
	t *testing.T
	s *server
	r *handle.Registry
}

func newFixture(t *testing.T, change func(*handle.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, s: newServer()}
	f.r = f.start(change)
	return f
}

// start starts a gateway on the fixture's server.
func (f *fixture) start(change func(*handle.Config)) *handle.Registry {
	f.t.Helper()
	cfg := handle.Config{Keys: ring(f.t, key(f.t, 7)), Deployment: "d", Continue: f.s.resume}
	if change != nil {
		change(&cfg)
	}
	r := handle.New(cfg)
	if err := r.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			f.t.Error(err)
		}
	})
	return r
}

func (f *fixture) open(total, batch, size int) handle.Page {
	f.t.Helper()
	page, err := f.r.Open(f.t.Context(), handle.Opening{
		Principal: "anna", Namespace: handle.Namespace{Database: "shop", Collection: "orders"},
		Run: func(context.Context) (handle.Cursor, error) { return f.s.find(total, batch, size), nil },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return page
}

func (f *fixture) next(token string) (handle.Page, error) {
	return f.r.Next(f.t.Context(), handle.Asking{Principal: "anna", Token: token})
}

func (f *fixture) mustNext(token string) handle.Page {
	f.t.Helper()
	page, err := f.next(token)
	if err != nil {
		f.t.Fatal(err)
	}
	return page
}

func numbers(page handle.Page) string {
	var b strings.Builder
	for _, doc := range page.Documents {
		v, _ := doc.Lookup("i")
		n, _ := v.Int32()
		fmt.Fprintf(&b, "%d ", n)
	}
	return strings.TrimSpace(b.String())
}

func same(a, b handle.Page) bool {
	if a.Token != b.Token || len(a.Documents) != len(b.Documents) {
		return false
	}
	for i := range a.Documents {
		if !bytes.Equal(a.Documents[i], b.Documents[i]) {
			return false
		}
	}
	return true
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		page := f.open(7, 3, 10)
		all := numbers(page)
		for page.Token != "" {
			if len(page.Token) > handle.MaxTokenBytes {
				t.Errorf("token of %d bytes", len(page.Token))
			}
			page = f.mustNext(page.Token)
			all += " " + numbers(page)
		}
		if all != "0 1 2 3 4 5 6" {
			t.Errorf("documents %s", all)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 0 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if page := f.open(2, 3, 0); page.Token != "" || len(page.Documents) != 2 {
			t.Errorf("a result that fits: %v", page)
		}
	})
}

func TestSameTokenSamePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		first := f.open(5, 2, 0)
		second := f.r1(first.Token, 2)
		for range 3 {
			if again := f.mustNext(first.Token); !same(again, second) {
				t.Fatalf("again: %v, want %v", again, second)
			}
		}
		third := f.mustNext(second.Token)
		if third.Token != "" {
			t.Fatal("the last page has a token")
		}
		if again := f.mustNext(second.Token); !same(again, third) {
			t.Errorf("the last page again: %v, want %v", again, third)
		}
		if _, err := f.next(first.Token); !errors.Is(err, handle.ErrCursorTokenReused) {
			t.Errorf("an older token: %v, want %v", err, handle.ErrCursorTokenReused)
		}
		if _, _, fetched := f.s.count(); fetched != 2 {
			t.Errorf("%d getMores, want 2", fetched)
		}
	})
}

func TestForgottenPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *handle.Config) { c.PageMemory = 5000 })
		var tokens, next []string
		for range 4 { // pages of 2000 bytes: two fit
			first := f.open(6, 2, 1000)
			tokens = append(tokens, first.Token)
			next = append(next, f.r1(first.Token, 2).Token)
		}
		for i, token := range tokens {
			_, err := f.next(token)
			if want := i < 2; errors.Is(err, handle.ErrCursorTokenReused) != want {
				t.Errorf("page of cursor %d: %v, want forgotten = %v", i, err, want)
			}
		}
		if page := f.mustNext(next[0]); numbers(page) != "4 5" {
			t.Errorf("after a forgotten page: %s", numbers(page))
		}
	})
}

// r1 asks for the next page with a batch size.
func (f *fixture) r1(token string, n int32) handle.Page {
	f.t.Helper()
	page, err := f.r.Next(f.t.Context(), handle.Asking{Principal: "anna", Token: token, BatchSize: &n})
	if err != nil {
		f.t.Fatal(err)
	}
	return page
}

func TestPageBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *handle.Config) { c.PageBytes = 2500 })
		page := f.open(9, 5, 1000) // a batch of five is three pages
		got := []string{numbers(page)}
		for page.Token != "" {
			page = f.mustNext(page.Token)
			got = append(got, numbers(page))
		}
		if want := "[0 1 2 3 4 5 6 7 8]"; fmt.Sprint(got) != want {
			t.Errorf("pages %q", got)
		}
		if _, _, fetched := f.s.count(); fetched != 2 { // batches are then made to fit a page
			t.Errorf("%d getMores, want 2", fetched)
		}
		if page := f.open(3, 5, 4000); numbers(page) != "0" || page.Token == "" {
			t.Errorf("a document larger than a page: %s", numbers(page))
		} else if page = f.mustNext(page.Token); numbers(page) != "1" {
			t.Errorf("the next one: %s", numbers(page))
		}
	})
}

func TestBatchSizeOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *handle.Config) { c.PageBytes = 5000 })
		page := f.open(100, 10, 1000) // 10 documents, of which 4 fit
		page = f.r1(page.Token, 2)
		if numbers(page) != "4 5" {
			t.Errorf("of what is left: %s", numbers(page))
		}
		page = f.r1(page.Token, 4)
		if page = f.r1(page.Token, 3); numbers(page) != "10 11 12" {
			t.Errorf("of the next batch: %s", numbers(page))
		}
		if page = f.mustNext(page.Token); numbers(page) != "13 14 15" {
			t.Errorf("it stays: %s", numbers(page))
		}
	})
}

func TestConcurrentNextGetsOnePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.s.next = func(context.Context) error { time.Sleep(time.Second); return nil } //nolint:forbidigo // fake time
		first := f.open(5, 2, 0)
		var wg sync.WaitGroup
		pages := make([]handle.Page, 10)
		for i := range pages {
			wg.Go(func() { pages[i] = f.mustNext(first.Token) })
		}
		wg.Wait()
		for _, page := range pages {
			if !same(page, pages[0]) {
				t.Errorf("pages differ: %v and %v", page, pages[0])
			}
		}
		if _, _, fetched := f.s.count(); fetched != 1 {
			t.Errorf("%d getMores, want 1", fetched)
		}
	})
}

// A client that went away asks again with the same token and gets the page that was fetched for it.
func TestClientGoesAwayDuringNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.s.next = func(context.Context) error { time.Sleep(time.Second); return nil } //nolint:forbidigo // fake time; sent: it runs on
		first := f.open(5, 2, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(time.Second/2, cancel)
		page, err := f.r.Next(ctx, handle.Asking{Principal: "anna", Token: first.Token})
		if err != nil {
			t.Fatal(err)
		}
		if again := f.mustNext(first.Token); !same(page, again) {
			t.Errorf("again: %v, want %v", again, page)
		}
	})
}

func TestFailures(t *testing.T) {
	lost := &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.ErrUnexpectedEOF}
	notSent := &mongoerr.NetworkError{Op: "dial", Err: io.ErrUnexpectedEOF}
	dead := &mongoerr.CommandError{Code: 43, Name: "CursorNotFound"}
	for _, test := range []struct {
		name       string
		err        error
		again, gap string // what the same token brings then
	}{
		{"not sent", notSent, "2 3", "2 3"},
		{"no server", &mongoerr.SelectionError{}, "2 3", "2 3"},
		{"cancelled in the queue", context.Canceled, "2 3", "2 3"},
		{"lost", lost, handle.ErrCursorPositionUnknown.Error(), "2 3"},
		{"of an unknown kind", io.ErrNoProgress, handle.ErrCursorPositionUnknown.Error(), "2 3"},
		{"refused", dead, handle.ErrCursorNotFound.Error(), handle.ErrCursorNotFound.Error()},
	} {
		for _, allowGap := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, allowGap %v", test.name, allowGap), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, nil)
					first := f.open(5, 2, 0)
					f.s.next = func(context.Context) error { return test.err }
					if _, err := f.next(first.Token); !errors.Is(err, test.err) {
						t.Fatalf("err = %v, want %v", err, test.err)
					}
					f.s.next = nil
					two := int32(2)
					page, err := f.r.Next(t.Context(), handle.Asking{Principal: "anna", Token: first.Token, AllowGap: allowGap, BatchSize: &two})
					got, want := numbers(page), test.again
					if err != nil {
						got = err.Error()
					}
					if allowGap {
						want = test.gap
					}
					if got != want {
						t.Errorf("again: %s, want %s", got, want)
					}
				})
			})
		}
	}
}

func TestGapThatIsNotSentStaysAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		first := f.open(5, 2, 0)
		f.s.next = func(context.Context) error { return &mongoerr.NetworkError{Sent: true, Err: io.EOF} }
		_, _ = f.next(first.Token)
		f.s.next = func(context.Context) error { return &mongoerr.SelectionError{} }
		_, _ = f.r.Next(t.Context(), handle.Asking{Principal: "anna", Token: first.Token, AllowGap: true})
		f.s.next = nil
		if _, err := f.next(first.Token); !errors.Is(err, handle.ErrCursorPositionUnknown) {
			t.Errorf("err = %v, want %v", err, handle.ErrCursorPositionUnknown)
		}
	})
}

func TestForeignTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(5, 2, 0).Token
		other := f.start(func(c *handle.Config) { c.Deployment = "other" })
		stranger := f.start(func(c *handle.Config) { c.Keys = ring(t) })
		for name, ask := range map[string]func() (handle.Page, error){
			"another principal": func() (handle.Page, error) {
				return f.r.Next(t.Context(), handle.Asking{Principal: "berta", Token: token, AllowGap: true})
			},
			"another deployment": func() (handle.Page, error) {
				return other.Next(t.Context(), handle.Asking{Principal: "anna", Token: token, AllowGap: true})
			},
			"another key": func() (handle.Page, error) {
				return stranger.Next(t.Context(), handle.Asking{Principal: "anna", Token: token, AllowGap: true})
			},
			"nothing": func() (handle.Page, error) { return f.next("") },
		} {
			if _, err := ask(); !errors.Is(err, handle.ErrCursorNotFound) {
				t.Errorf("%s: %v, want %v", name, err, handle.ErrCursorNotFound)
			}
		}
		if page := f.mustNext(token); numbers(page) == "" {
			t.Error("its owner has lost the cursor")
		}
	})
}

func TestAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		first := f.open(5, 2, 0)
		if err := f.r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.r = f.start(nil)
		if _, err := f.next(first.Token); !errors.Is(err, handle.ErrCursorPositionUnknown) {
			t.Fatalf("err = %v, want %v", err, handle.ErrCursorPositionUnknown)
		}
		page, err := f.r.Next(t.Context(), handle.Asking{Principal: "anna", Token: first.Token, AllowGap: true})
		if err != nil {
			t.Fatal(err)
		}
		if numbers(page) != "2 3 4" {
			t.Errorf("continued: %s", numbers(page))
		}
		if again := f.mustNext(first.Token); !same(page, again) {
			t.Errorf("again: %v, want %v", again, page)
		}
	})
}

func TestEphemeralKeyKillsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *handle.Config) { c.Keys = ring(t) })
		f.open(5, 2, 0)
		if err := f.r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if _, err := f.r.Open(t.Context(), handle.Opening{Run: func(context.Context) (handle.Cursor, error) { return f.s.find(5, 2, 0), nil }}); !errors.Is(err, handle.ErrClosing) {
			t.Errorf("Open after Close: %v", err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 2 {
			t.Errorf("%d open, %d killed", open, killed)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(5, 2, 0).Token
		if err := f.r.CloseCursor(t.Context(), "berta", token); !errors.Is(err, handle.ErrCursorNotFound) {
			t.Errorf("a stranger: %v", err)
		}
		if err := f.r.CloseCursor(t.Context(), "anna", token); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if _, err := f.next(token); !errors.Is(err, handle.ErrCursorNotFound) {
			t.Errorf("Next: %v", err)
		}
		if err := f.r.CloseCursor(t.Context(), "anna", token); !errors.Is(err, handle.ErrCursorNotFound) {
			t.Errorf("again: %v", err)
		}
		// One of another gateway.
		token = f.open(5, 2, 0).Token
		if err := f.start(nil).CloseCursor(t.Context(), "anna", token); err != nil {
			t.Error(err)
		}
		if open, _, _ := f.s.count(); open != 0 {
			t.Errorf("%d open", open)
		}
	})
}

func TestCloseDuringNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.s.next = func(ctx context.Context) error {
			<-ctx.Done()
			return &mongoerr.NetworkError{Sent: true, Err: context.Cause(ctx)}
		}
		token := f.open(5, 2, 0).Token
		done := make(chan error)
		go func() {
			_, err := f.next(token)
			done <- err
		}()
		synctest.Wait()
		if err := f.r.CloseCursor(t.Context(), "anna", token); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if err := <-done; !errors.Is(err, handle.ErrCursorNotFound) {
			t.Errorf("Next: %v, want %v", err, handle.ErrCursorNotFound)
		}
		if f.r.Len() != 0 {
			t.Errorf("%d cursors are held", f.r.Len())
		}
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *handle.Config) { c.Idle = time.Minute })
		token := f.open(9, 2, 0).Token
		for range 2 {
			time.Sleep(50 * time.Second) //nolint:forbidigo // fake time; each page renews
			token = f.r1(token, 2).Token
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		if _, err := f.next(token); !errors.Is(err, handle.ErrCursorNotFound) {
			t.Errorf("an expired token: %v", err)
		}
		time.Sleep(time.Minute / 4) //nolint:forbidigo // fake time
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 || f.r.Len() != 0 {
			t.Errorf("%d open, %d killed, %d held", open, killed, f.r.Len())
		}
	})
}

func TestNothingExpiresWhileItIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *handle.Config) { c.Idle = time.Minute })
		f.s.next = func(context.Context) error { time.Sleep(time.Hour); return nil } //nolint:forbidigo // fake time
		first := f.open(5, 2, 0)
		page := f.mustNext(first.Token)
		if numbers(page) != "2 3 4" {
			t.Errorf("page %s", numbers(page))
		}
	})
}

func TestOpenForAClientThatWentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := f.r.Open(ctx, handle.Opening{Run: func(context.Context) (handle.Cursor, error) {
			cancel()
			return f.s.find(5, 2, 0), nil
		}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 || f.r.Len() != 0 {
			t.Errorf("%d open, %d killed, %d held", open, killed, f.r.Len())
		}
	})
}

func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *handle.Config) { c.PageBytes, c.Idle = 2500, time.Minute })
		first := f.open(9, 5, 1000)
		ctx, taken, err := f.r.Take(t.Context(), handle.Asking{Principal: "anna", Token: first.Token})
		if err != nil {
			t.Fatal(err)
		}
		if len(taken.Documents) != 3 || taken.Cursor.Done() {
			t.Errorf("%d documents left, done %v", len(taken.Documents), taken.Cursor.Done())
		}
		if _, err := f.next(first.Token); !errors.Is(err, handle.ErrCursorTokenReused) {
			t.Errorf("Next during the stream: %v", err)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // fake time; it does not expire
		if ctx.Err() != nil {
			t.Error("the stream was ended")
		}
		_ = taken.Cursor.Close(ctx)
		taken.Release()
		if ctx.Err() == nil {
			t.Error("the context outlives the stream")
		}
		if _, _, err := f.r.Take(t.Context(), handle.Asking{Principal: "anna", Token: first.Token}); !errors.Is(err, handle.ErrCursorNotFound) {
			t.Errorf("its token has expired: %v", err)
		}
	})
}

func TestCloseEndsTheStreamThatTookIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(9, 5, 1000).Token
		ctx, taken, err := f.r.Take(t.Context(), handle.Asking{Principal: "anna", Token: token})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-ctx.Done()
			_ = taken.Cursor.Close(ctx)
			taken.Release()
		}()
		if err := f.r.CloseCursor(t.Context(), "anna", token); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if err := context.Cause(ctx); !errors.Is(err, handle.ErrCursorNotFound) {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// A page that is a small part of its batch's buffer does not keep the buffer.
func TestHeldPagesAreCompact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *handle.Config) { c.PageBytes = 8000 })
		first := f.open(12, 10, 1000) // 7 documents, then 3 of the same buffer
		page := f.mustNext(first.Token)
		if numbers(page) != "7 8 9" {
			t.Fatalf("page %s", numbers(page))
		}
		if doc := page.Documents[0]; cap(doc) != len(doc) {
			t.Errorf("the page's documents are views on %d bytes", cap(doc))
		}
		if again := f.mustNext(first.Token); !same(page, again) {
			t.Error("the page differs")
		}
	})
}
