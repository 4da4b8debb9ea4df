package paging_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
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
	dead := &mongoerr.CommandError{Code: 43, Name: "CursorNotFound"}
	for _, test := range []struct {
		name       string
		err        error
		again, gap string // what the same token brings then
	}{
		{"not sent", notSent, "2 3", "2 3"},
		{"no server", &mongoerr.SelectionError{}, "2 3", "2 3"},
		{"cancelled in the queue", context.Canceled, "2 3", "2 3"},
		{"lost", lost, paging.ErrCursorPositionUnknown.Error(), "2 3"},
		{"of an unknown kind", io.ErrNoProgress, paging.ErrCursorPositionUnknown.Error(), "2 3"},
		{"refused", dead, paging.ErrCursorNotFound.Error(), paging.ErrCursorNotFound.Error()},
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
					page, err := f.r.Next(t.Context(), paging.Asking{Principal: "anna", Token: first.Token, AllowGap: allowGap, BatchSize: &two})
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
					if f.s.fragile > 0 {
						t.Errorf("%d of %d fetches would have ended with their caller", f.s.fragile, f.s.fetched)
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
		_, _ = f.r.Next(t.Context(), paging.Asking{Principal: "anna", Token: first.Token, AllowGap: true})
		f.s.next = nil
		if _, err := f.next(first.Token); !errors.Is(err, paging.ErrCursorPositionUnknown) {
			t.Errorf("err = %v, want %v", err, paging.ErrCursorPositionUnknown)
		}
	})
}

func TestForeignTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(5, 2, 0).Token
		other := f.start(func(c *paging.Config) { c.Deployment = "other" })
		stranger := f.start(func(c *paging.Config) { c.Keys = ring(t) })
		for name, ask := range map[string]func() (paging.Page, error){
			"another principal": func() (paging.Page, error) {
				return f.r.Next(t.Context(), paging.Asking{Principal: "berta", Token: token, AllowGap: true})
			},
			"another deployment": func() (paging.Page, error) {
				return other.Next(t.Context(), paging.Asking{Principal: "anna", Token: token, AllowGap: true})
			},
			"another key": func() (paging.Page, error) {
				return stranger.Next(t.Context(), paging.Asking{Principal: "anna", Token: token, AllowGap: true})
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

func TestAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		first := f.open(5, 2, 0)
		if err := f.r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.r = f.start(nil)
		if _, err := f.next(first.Token); !errors.Is(err, paging.ErrCursorPositionUnknown) {
			t.Fatalf("err = %v, want %v", err, paging.ErrCursorPositionUnknown)
		}
		page, err := f.r.Next(t.Context(), paging.Asking{Principal: "anna", Token: first.Token, AllowGap: true})
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
