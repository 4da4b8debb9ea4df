package ctxwatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/internal/ctxwatch"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		interrupt := func() { calls.Add(1) }

		ctx, cancel := context.WithCancel(t.Context())
		if ctxwatch.Start(ctx, interrupt).Stop() {
			t.Error("Stop() = true without an end of the context")
		}
		w := ctxwatch.Start(ctx, interrupt)
		cancel()
		synctest.Wait()
		if !w.Stop() || calls.Load() != 1 {
			t.Errorf("after the end of the context: Stop() false or %d calls, want 1", calls.Load())
		}
		if ctxwatch.Start(context.Background(), interrupt).Stop() || (ctxwatch.Watch{}).Stop() {
			t.Error("Stop() = true for a context that cannot end")
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
	if err := ctxwatch.Err(ctx); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) || err.Error() != "cause" {
		t.Errorf("Err = %v, want the cause and context.Canceled", err)
	}
	plain, cancelPlain := context.WithCancel(t.Context())
	cancelPlain()
	if err := ctxwatch.Err(plain); !errors.Is(err, context.Canceled) {
		t.Errorf("Err = %v, want context.Canceled", err)
	}
}
