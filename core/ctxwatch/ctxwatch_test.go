package ctxwatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/ctxwatch"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		w := ctxwatch.New(func() { calls.Add(1) })

		ctx, cancel := context.WithCancel(t.Context())
		if w.Start(ctx).Stop() {
			t.Error("Stop() = true without an end of the context")
		}
		watch := w.Start(ctx)
		cancel()
		synctest.Wait()
		if !watch.Stop() || calls.Load() != 1 {
			t.Errorf("after the end of the context: Stop() false or %d calls, want 1", calls.Load())
		}
		if w.Start(context.Background()).Stop() || (ctxwatch.Watch{}).Stop() {
			t.Error("Stop() = true for a context that cannot end")
		}
	})
}

// watchable implements ctxwatch.Watchable, and counts what it is asked.
type watchable struct {
	context.Context    //nolint:containedctx // it is one
	refuses            bool
	interrupt          func()
	watched, unwatched int
}

func (w *watchable) Watch(interrupt func()) bool {
	w.watched++
	w.interrupt = interrupt
	return !w.refuses
}

func (w *watchable) Unwatch() bool {
	w.unwatched++
	ok := w.interrupt != nil
	w.interrupt = nil
	return ok
}

// TestWatchable checks that a context that can be watched is, and that one that refuses, or what is
// derived from it, is observed as others are.
func TestWatchable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		w := ctxwatch.New(func() { calls.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		of := &watchable{Context: ctx}
		if w.Start(of).Stop() || of.watched != 1 || of.unwatched != 1 {
			t.Errorf("Stop() = true, or %d times watched and %d unwatched", of.watched,
				of.unwatched)
		}
		watch := w.Start(of)
		go of.interrupt()
		of.interrupt = nil
		if !watch.Stop() || calls.Load() != 1 {
			t.Errorf("Stop() = false after an interruption, or %d of them", calls.Load())
		}
		of.refuses = true
		type key struct{}
		watch, derived := w.Start(of), w.Start(context.WithValue(of, key{}, 1))
		cancel()
		if !watch.Stop() || !derived.Stop() || calls.Load() != 3 || of.watched != 3 {
			t.Errorf("%d interruptions of one that refuses, which was asked %d times", calls.Load(),
				of.watched)
		}
	})
}

// Whatever an interruption does, it has done when Stop returns, and each Stop waits for its own.
func TestStopWaitsForTheInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := int32(0) // without a lock: only the interruption that Stop waits for writes
		w := ctxwatch.New(func() {
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			over++
		})
		for n := int32(1); n <= 3; n++ {
			ctx, cancel := context.WithCancel(t.Context())
			watch := w.Start(ctx)
			cancel()
			if !watch.Stop() || over != n {
				t.Errorf("Stop() returned after %d interruptions, want %d", over, n)
			}
			ctx, cancel = context.WithCancel(t.Context())
			if w.Start(ctx).Stop() {
				t.Error("Stop() = true without an end of the context")
			}
			cancel()
		}
	})
}

func TestErr(t *testing.T) {
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := ctxwatch.Err(ctx); err != nil {
		t.Errorf("Err of a running context = %v", err)
	}
	cancel(cause)
	if err := ctxwatch.Err(ctx); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) ||
		err.Error() != "cause" {
		t.Errorf("Err = %v, want the cause and context.Canceled", err)
	}
	plain, cancelPlain := context.WithCancel(t.Context())
	cancelPlain()
	if err := ctxwatch.Err(plain); !errors.Is(err, context.Canceled) {
		t.Errorf("Err = %v, want context.Canceled", err)
	}
}

func TestPast(t *testing.T) {
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	past := ctxwatch.Past(ctxwatch.Err(ctx))
	if errors.Is(past, context.Canceled) || !errors.Is(past, cause) ||
		past.Error() != "given up by an earlier call: cause" {
		t.Errorf("Past = %v, want one that is the cause, and not context.Canceled", past)
	}
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](past)
	if errors.Is(ctxwatch.Past(context.DeadlineExceeded), context.DeadlineExceeded) || !ok ||
		!timeout.Timeout() {
		t.Errorf("Past = %v, want a timeout that is not context.DeadlineExceeded", past)
	}
}
