package paging_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
)

// The pages of a pinned cursor come from the replica that holds its connection, whichever is
// asked, and it never moves.
func TestPinnedPagesFromAnyReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		page := n.openPinned()
		got := numbers(page)
		for i := 0; page.Token != ""; i++ {
			token := page.Token
			page = n.mustNext([]string{"b", "c", "a"}[i%3], token)
			if again := n.mustNext("c", token); !same(again, page) {
				t.Errorf("again: %s, want %s", numbers(again), numbers(page))
			}
			got += " " + numbers(page)
			if holds := len(n.node("b").Holds()) + len(n.node("c").Holds()); holds != 0 {
				t.Errorf("%d are held elsewhere", holds)
			}
		}
		if got != "0 1 2 3 4 5 6 7 8" {
			t.Errorf("documents %s", got)
		}
		for _, asked := range n.questions() {
			if asked != "b>a page" && asked != "c>a page" {
				t.Errorf("asked %s", asked)
			}
		}
	})
}

// Without its owner a pinned cursor is lost, and that is what the client is told.
func TestOwnerGone(t *testing.T) {
	for name, end := range map[string]func(n *network){
		"gone":      func(n *network) { n.crash("a") },
		"restarted": func(n *network) { n.crash("a"); n.start("a", nil) },
		"drained":   func(n *network) { n.stop("a") },
		"drained, but not stopped yet": func(n *network) { // it still answers
			if err := n.node("a").Drain(n.t.Context()); err != nil {
				n.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, "a", "b")
				page := n.openPinned()
				end(n)
				asking := paging.Asking{Principal: "anna", Token: page.Token}
				at := n.node("b")
				if name == "restarted" { // the new life at the old address knows as little
					at = n.node("a")
				}
				if _, err := at.Next(t.Context(), asking); !errors.Is(err, paging.ErrOwnerGone) {
					t.Errorf("Next = %v", err)
				}
				if _, _, err := at.Take(t.Context(), asking); !errors.Is(err, paging.ErrOwnerGone) {
					t.Errorf("Take = %v", err)
				}
				if err := at.CloseCursor(t.Context(),
					paging.Asking{Principal: "anna", Token: page.Token}); !errors.Is(err,
					paging.ErrOwnerGone) {
					t.Errorf("CloseCursor = %v", err)
				}
			})
		})
	}
}

// An owner that gives no answer may be there still: its cursor is gone when it has been silent
// for long. Until then the same token brings the same page as soon as it answers.
func TestOwnerSilent(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault error
	}{
		{"the connection broke", errLine},
		{"no connection came about", &paging.UnreachableError{Err: errLine}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, "a", "b")
				page := n.openPinned()
				silent := true
				n.faults.after = func(context.Context, string, string) error {
					if silent {
						return test.fault
					}
					return nil
				}
				calls := func(when string, want func(error) bool) {
					t.Helper()
					if _, err := n.next("b", page.Token); !want(err) {
						t.Errorf("%s: Next = %v", when, err)
					}
				}
				gone := func(err error) bool { return errors.Is(err, paging.ErrOwnerGone) }
				calls("at first", isUnreachable)
				time.Sleep(50 * time.Second) //nolint:forbidigo // fake time
				calls("then", isUnreachable)
				silent = false
				if next := n.mustNext("b", page.Token); numbers(next) != "2 3" {
					t.Errorf("page %s", numbers(next))
				}
				silent = true
				time.Sleep(50 * time.Second) //nolint:forbidigo // fake time
				calls("after an answer", isUnreachable)
				time.Sleep(2 * time.Minute) //nolint:forbidigo // fake time
				calls("much later, when nobody had asked", isUnreachable)
				time.Sleep(50 * time.Second) //nolint:forbidigo // fake time
				calls("soon after that", isUnreachable)
				time.Sleep(20 * time.Second) //nolint:forbidigo // fake time
				calls("when it has been silent for long", gone)
				if _, _, err := n.node("b").
					Take(t.Context(),
						paging.Asking{Principal: "anna", Token: page.Token}); !gone(err) {
					t.Errorf("Take = %v", err)
				}
				if err := n.node("b").
					CloseCursor(t.Context(),
						paging.Asking{Principal: "anna", Token: page.Token}); !gone(err) {
					t.Errorf("CloseCursor = %v", err)
				}
			})
		})
	}
}

// Any answer of an owner ends its silence: a page, a refusal, or a stream.
func TestOwnerIsHeard(t *testing.T) {
	asking := func(page paging.Page) paging.Asking {
		return paging.Asking{Principal: "anna", Token: page.Token}
	}
	for name, answer := range map[string]func(*network, paging.Page) error{
		"page": func(n *network, page paging.Page) error {
			_, err := n.next("b", page.Token)
			return err
		},
		"refusal": func(n *network, page paging.Page) error {
			n.s.next = func(context.Context) error { return &mongoerr.SelectionError{} }
			_, err := n.next("b", page.Token)
			if _, ok := errors.AsType[*mongoerr.SelectionError](err); !ok {
				return fmt.Errorf("Next = %w, want a SelectionError", err)
			}
			return nil
		},
		"stream": func(n *network, page paging.Page) error {
			ctx, taken, err := n.node("b").Take(n.t.Context(), asking(page))
			if err != nil {
				return err
			}
			defer taken.Release()
			return taken.Cursor.Close(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, "a", "b")
				page := n.openPinned()
				silent := true
				n.faults.after = func(context.Context, string, string) error {
					if silent {
						return errLine
					}
					return nil
				}
				unanswered := func() {
					t.Helper()
					if _, err := n.node("b").Next(t.Context(), asking(page)); !isUnreachable(err) {
						t.Errorf("Next = %v", err)
					}
				}
				// the page stays to be asked for
				n.s.next = func(context.Context) error { return &mongoerr.SelectionError{} }
				unanswered()
				time.Sleep(50 * time.Second) //nolint:forbidigo // fake time
				unanswered()
				silent, n.s.next = false, nil
				if err := answer(n, page); err != nil {
					t.Error(err)
				}
				silent = true
				time.Sleep(50 * time.Second) //nolint:forbidigo // fake time
				unanswered()
			})
		})
	}
}

func isUnreachable(err error) bool {
	lost, ok := errors.AsType[*paging.UnreachableError](err)
	return ok && !lost.Refused
}

// An owner that cannot fetch says why, as it would to a client of its own; the caller's deadline
// is kept.
func TestErrorsOfTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		page := n.openPinned()
		n.s.next = func(context.Context) error { return &mongoerr.SelectionError{} }
		_, err := n.next("b", page.Token)
		if _, ok := errors.AsType[*mongoerr.SelectionError](err); !ok {
			t.Errorf("Next = %v", err)
		}
		n.s.next = func(context.Context) error { time.Sleep(time.Minute); return nil } //nolint:forbidigo // fake time
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.node("b").
			Next(ctx, paging.Asking{Principal: "anna", Token: page.Token}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("Next = %v", err)
		}
	})
}

// TestPinnedCursorThatIsLost breaks the connection of a pinned cursor, while a getMore waits for
// its reply or before one is sent. No getMore can use it again, so it is returned at once.
func TestPinnedCursorThatIsLost(t *testing.T) {
	for name, broken := range map[string]error{
		"no reply": &mongoerr.NetworkError{Op: "read", Sent: true, Err: errLine},
		"not sent": &mongoerr.NetworkError{Op: "write", Err: errLine},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, "a", "b")
				page := n.openPinned()
				n.s.after = func() error { return broken }
				if _, err := n.next("b", page.Token); err == nil {
					t.Fatal("the page has come")
				}
				if open, killed, _ := n.s.count(); open != 0 || killed != 1 {
					t.Errorf("%d open, %d killed", open, killed)
				}
				if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorNotFound) {
					t.Errorf("again: %v", err)
				}
			})
		})
	}
}

// A stream of a pinned cursor is relayed, from the page on that was asked for; its end is the
// cursor's, from either side.
func TestPinnedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		read := func(token string, most int) (int, error) {
			ctx, taken, err := n.node("b").
				Take(t.Context(), paging.Asking{Principal: "anna", Token: token})
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Release()
			defer func() { _ = taken.Cursor.Close(ctx) }()
			got := len(taken.Documents)
			for !taken.Cursor.Done() && got < most {
				b, err := taken.Cursor.NextLent(ctx)
				if err != nil {
					return got, err
				}
				got += len(b.Documents)
			}
			return got, nil
		}
		page := n.openPinned()
		if got, err := read(page.Token, 100); got != 7 || err != nil {
			t.Errorf("%d documents, %v, want the other 7", got, err)
		}
		if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("Next after the stream: %v", err)
		}
		page = n.openPinned()
		if got, err := read(page.Token, 2); got < 2 || err != nil { // the client goes away
			t.Errorf("%d documents, %v", got, err)
		}
		if open, _, _ := n.s.count(); open != 0 {
			t.Errorf("%d open", open)
		}
		page = n.openPinned()
		n.s.next = func(context.Context) error {
			go n.crash("a")
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			return nil
		}
		if _, err := read(page.Token, 100); !errors.Is(err, paging.ErrOwnerGone) {
			t.Errorf("the owner is gone: %v", err)
		}
		n.start("a", nil)
		page = n.openPinned()
		n.s.next = func(ctx context.Context) error {
			go func() { _ = n.node("a").Drain(context.WithoutCancel(ctx)) }()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if _, err := read(page.Token, 100); !errors.Is(err, paging.ErrOwnerGone) {
			t.Errorf("the owner drains: %v", err)
		}
	})
}

// A stream at another replica ends when its cursor is closed at any replica.
func TestCloseEndsAPinnedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		page := n.openPinned()
		n.s.next = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		ctx, taken, err := n.node("b").
			Take(t.Context(), paging.Asking{Principal: "anna", Token: page.Token})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := taken.Cursor.NextLent(ctx); !errors.Is(err, paging.ErrCursorNotFound) {
				t.Errorf("the stream ends with %v", err)
			}
			_ = taken.Cursor.Close(ctx)
			taken.Release()
		})
		synctest.Wait()
		if err := n.node("c").
			CloseCursor(t.Context(),
				paging.Asking{Principal: "anna", Token: page.Token}); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if open, killed, _ := n.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
	})
}

// A pinned cursor that no client asks for returns its connection when it expires. It does not wait
// for other cursors whose servers do not answer.
func TestPinnedCursorsAreKilledFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.start("a", func(c *paging.Config) { c.Idle = time.Minute })
		killed := make(chan struct{})
		n.s.slowKill, n.s.killedPinned = 3*time.Second, killed
		for range 80 {
			n.open("a", 9, 2, 0)
		}
		n.openPinned()
		pinned := true
		q := handle.Query{Pinned: &pinned, Limit: 1000}
		if got := n.node("a").Handles(q); len(got) != 1 {
			t.Errorf("%d pinned", len(got))
		}
		begin := time.Now()
		<-killed
		if took := time.Since(begin); took > time.Minute+8*time.Second+3*time.Second {
			t.Errorf("it was closed after %v", took)
		}
		if _, killed, _ := n.s.count(); killed > 17 {
			t.Errorf("%d were killed before it", killed)
		}
	})
}
