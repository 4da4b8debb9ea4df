package paging_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/paging"
)

// A client that went away asks again with the same token and gets the page that was fetched for
// it.
func TestClientGoesAwayDuringNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.s.next = func(context.Context) error { time.Sleep(time.Second); return nil } //nolint:forbidigo // fake time; sent: it runs on
		first := f.open(5, 2, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(time.Second/2, cancel)
		page, err := f.r.Next(ctx, paging.Asking{Principal: "anna", Token: first.Token})
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
	busy := &mongoerr.CommandError{Code: 462, Name: "IngressRequestRateLimitExceeded"}
	dead := &mongoerr.CommandError{Code: 43, Name: "CursorNotFound"}
	cut := errors.New("the gateway is shutting down")
	for _, test := range []struct {
		name  string
		err   error
		again string // what the same token brings then
		open  int    // cursors on the server
	}{
		{"not sent", notSent, "2 3", 1},
		{"no server", &mongoerr.SelectionError{}, "2 3", 1},
		{"cancelled in the queue", context.Canceled, "2 3", 1},
		{"cut while it waited for memory", &admission.WaitError{Err: cut}, "2 3", 1},
		{"cut before it was sent", mongoerr.WithDelivery(cut, mongoerr.Unsent), "2 3", 1},
		{"the server is overloaded", busy, "2 3", 1},
		{"lost", lost, paging.ErrCursorPositionUnknown.Error(), 0},
		{"of an unknown kind", io.ErrNoProgress, paging.ErrCursorPositionUnknown.Error(), 0},
		{"refused", dead, paging.ErrCursorNotFound.Error(), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, nil)
				first := f.open(5, 2, 0)
				f.s.next = func(context.Context) error { return test.err }
				if _, err := f.next(first.Token); !errors.Is(err, test.err) {
					t.Fatalf("err = %v, want %v", err, test.err)
				}
				if open, _, _ := f.s.count(); open != test.open {
					t.Errorf("%d cursors are open on the server, want %d", open, test.open)
				}
				f.s.next = nil
				page, err := f.r.Next(t.Context(), paging.Asking{
					Principal: "anna", Token: first.Token, BatchSize: new(int32(2)),
				})
				got := numbers(page)
				if err != nil {
					got = err.Error()
				}
				if got != test.again {
					t.Errorf("again: %s, want %s", got, test.again)
				}
				if f.s.fragile > 0 {
					t.Errorf("%d of %d fetches would have ended with their caller", f.s.fragile,
						f.s.fetched)
				}
			})
		})
	}
}

func TestForeignTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(5, 2, 0).Token
		other := f.start(func(c *paging.Config) { c.Deployment = "other" })
		stranger := f.start(func(c *paging.Config) { c.Keys = ring(t) })
		for name, ask := range map[string]func() (paging.Page, error){
			"another principal": func() (paging.Page, error) {
				return f.r.Next(t.Context(), paging.Asking{Principal: "berta", Token: token})
			},
			"another deployment": func() (paging.Page, error) {
				return other.Next(t.Context(), paging.Asking{Principal: "anna", Token: token})
			},
			"another key": func() (paging.Page, error) {
				return stranger.Next(t.Context(), paging.Asking{Principal: "anna", Token: token})
			},
			"nothing": func() (paging.Page, error) { return f.next("") },
		} {
			if _, err := ask(); !errors.Is(err, paging.ErrCursorNotFound) {
				t.Errorf("%s: %v, want %v", name, err, paging.ErrCursorNotFound)
			}
		}
		if page := f.mustNext(token); numbers(page) == "" {
			t.Error("its owner has lost the cursor")
		}
	})
}

// TestAfterRestart checks that a cursor ends with its gateway: its client is told.
func TestAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		first := f.open(5, 2, 0)
		if err := f.r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed; want 0 and 1", open, killed)
		}
		f.r = f.start(nil)
		if _, err := f.next(first.Token); !errors.Is(err, paging.ErrCursorPositionUnknown) {
			t.Fatalf("err = %v, want %v", err, paging.ErrCursorPositionUnknown)
		}
	})
}

// The page that is held is forgotten when the next one is lost, and kept when the next one was not
// asked for.
func TestHeldPageAfterAFailure(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		kept bool
	}{
		{"not sent", &mongoerr.NetworkError{Op: "dial", Err: io.ErrUnexpectedEOF}, true},
		{"no reply", &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.ErrUnexpectedEOF}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, nil)
			first := f.open(9, 2, 0)
			second := f.r1(first.Token, 2)
			f.s.next = func(context.Context) error { return test.err }
			if _, err := f.next(second.Token); !errors.Is(err, test.err) {
				t.Fatalf("the next page: %v", err)
			}
			if held := f.r.Held(); (held > 0) != test.kept {
				t.Errorf("%d bytes are held", held)
			}
			again, err := f.next(first.Token)
			if got := err == nil && same(again, second); got != test.kept {
				t.Errorf("the page before again: %v, %v", again, err)
			}
		})
	}
}
