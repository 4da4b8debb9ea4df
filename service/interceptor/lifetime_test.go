package interceptor_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/interceptor"
)

// TestLifetime checks that the context of a call ends as one of package context does: whatever ends
// it, and whether its end was asked for before or not.
func TestLifetime(t *testing.T) {
	cause := errors.New("cause")
	for name, end := range map[string]func(l *interceptor.Lifetime, parent context.CancelCauseFunc){
		"parent": func(_ *interceptor.Lifetime, parent context.CancelCauseFunc) { parent(cause) },
		"cause":  func(l *interceptor.Lifetime, _ context.CancelCauseFunc) { l.Cancel(cause) },
		"end":    func(l *interceptor.Lifetime, _ context.CancelCauseFunc) { l.End() },
	} {
		for _, asked := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				type key struct{}
				parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
				defer cancel(nil)
				l := interceptor.NewLifetime(parent)
				var child context.Context = l
				if asked {
					var stop context.CancelFunc
					child, stop = context.WithCancel(l)
					defer stop()
				}
				if child.Err() != nil || child.Value(key{}) != 1 {
					t.Errorf("%s: before the end: Err() = %v", name, child.Err())
				}
				end(l, cancel)
				want := cause
				if name == "end" {
					want = context.Canceled
				}
				if child.Err() != context.Canceled || context.Cause(child) != want { //nolint:errorlint // identity
					t.Errorf("%s, asked %v: Err() = %v, Cause() = %v, want %v", name, asked,
						child.Err(),
						context.Cause(child), want)
				}
				select {
				case <-child.Done():
				default:
					t.Errorf("%s, asked %v: Done is not closed", name, asked)
				}
				if l.Watch(func() {}) && name != "parent" {
					t.Errorf("%s, asked %v: Watch() = true after the end", name, asked)
				}
			})
		}
	}
}

// TestWatch checks that what watches a call is interrupted once if the call ends, whatever ends it,
// and not if it has ceased to watch.
func TestWatch(t *testing.T) {
	for name, end := range map[string]func(l *interceptor.Lifetime, parent context.CancelFunc){
		"parent": func(_ *interceptor.Lifetime, parent context.CancelFunc) { parent() },
		"cause":  func(l *interceptor.Lifetime, _ context.CancelFunc) { l.Cancel(nil) },
		"end":    func(l *interceptor.Lifetime, _ context.CancelFunc) { l.End() },
		"all": func(l *interceptor.Lifetime, parent context.CancelFunc) {
			l.Cancel(nil)
			parent()
			l.End()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := interceptor.NewLifetime(parent)
			c := &call.Context{Context: l}
			var calls atomic.Int32
			interrupt := func() { calls.Add(1) }
			if !c.Watch(interrupt) || c.Watch(interrupt) {
				t.Errorf("%s: Watch() = false, or true twice", name)
			}
			if !c.Unwatch() || !c.Watch(interrupt) {
				t.Errorf("%s: Unwatch() = false, or Watch() after it", name)
			}
			end(l, cancel)
			synctest.Wait()
			if c.Unwatch() || calls.Load() != 1 {
				t.Errorf("%s: Unwatch() = true, or %d interruptions, want 1", name, calls.Load())
			}
		})
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := interceptor.NewLifetime(parent)
			if !l.Watch(func() {
				t.Errorf("%s: interrupted after Unwatch", name)
			}) || !l.Unwatch() {
				t.Errorf("%s: Watch() or Unwatch() = false", name)
			}
			end(l, cancel)
			synctest.Wait()
		})
	}
	derived := &call.Context{Context: context.WithoutCancel(t.Context())}
	if derived.Watch(func() {}) || derived.Unwatch() {
		t.Error("a context of package context can be watched")
	}
}

// ordered implements a context of which the test says when each that depends on it hears of its
// end. It has no values, so that package context finds no other way to the end.
type ordered struct {
	context.Context //nolint:containedctx // it is a context
	told            []func()
}

func (o *ordered) Value(any) any { return nil }

func (o *ordered) AfterFunc(f func()) (stop func() bool) {
	i := len(o.told)
	o.told = append(o.told, f)
	return func() bool {
		waits := o.told[i] != nil
		o.told[i] = nil
		return waits
	}
}

// TestWatchSeesTheEnd checks that what watches a call finds it ended, with a cause, when it is
// interrupted, in whatever order the parent tells those that depend on it.
func TestWatchSeesTheEnd(t *testing.T) {
	for name, prepare := range map[string]func(l *interceptor.Lifetime, interrupt func()){
		"watched, then asked": func(l *interceptor.Lifetime, interrupt func()) {
			if !l.Watch(interrupt) {
				t.Error("Watch() = false")
			}
			l.Done()
		},
		"asked, then watched": func(l *interceptor.Lifetime, interrupt func()) {
			l.Done()
			if !l.Watch(interrupt) {
				context.AfterFunc(l, interrupt)
			}
		},
	} {
		for _, backwards := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ends, cancel := context.WithCancel(t.Context())
				parent := &ordered{Context: ends}
				l := interceptor.NewLifetime(parent)
				calls := 0
				prepare(l, func() {
					calls++
					if l.Err() == nil || context.Cause(l) == nil {
						t.Errorf("%s: Err() = %v, Cause() = %v when interrupted", name, l.Err(),
							context.Cause(l))
					}
				})
				cancel()
				if backwards {
					slices.Reverse(parent.told)
				}
				for _, tell := range parent.told {
					if tell != nil {
						tell()
						synctest.Wait()
					}
				}
				if calls != 1 {
					t.Errorf("%s: %d interruptions, want 1", name, calls)
				}
			})
		}
	}
}
