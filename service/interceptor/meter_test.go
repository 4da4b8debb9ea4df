package interceptor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
)

// meter records what it is told.
type meter struct{ lines []string }

func (m *meter) Ended(
	method string, stream bool, code codes.Code, reason string, took time.Duration,
) {
	m.lines = append(m.lines, fmt.Sprintf("%s %v %s %q %s", method, stream, code, reason, took))
}

func (m *meter) Refused(code codes.Code, reason string) {
	m.lines = append(m.lines, fmt.Sprintf("refused %s %q", code, reason))
}

// TestCallsAreCounted checks that each call is counted once, with the status that the client gets.
func TestCallsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{}
		x := interceptor.New(interceptor.Config{Meter: m})
		ctx := incoming(t.Context())
		_ = unary(ctx, x, func(context.Context) error {
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			return nil
		})
		_ = unary(ctx, x, func(context.Context) error { return paging.ErrCursorNotFound })
		_ = unary(ctx, x, func(context.Context) error { panic("x") })
		_ = stream(ctx, x, func(context.Context) error { return nil })
		guarded := interceptor.New(interceptor.Config{
			Meter: m, Callers: caller.New(caller.Config{}),
		})
		_, _ = guarded.Authenticate(ctx, "/s/M")
		want := []string{
			`/s/M false OK "" 1s`, `/s/M false NotFound "CursorNotFound" 0s`,
			`/s/M false Internal "Internal" 0s`, `/s/S true OK "" 0s`,
			`refused Unauthenticated "Unauthenticated"`,
		}
		if !slices.Equal(m.lines, want) {
			t.Errorf("counted %q, want %q", m.lines, want)
		}
	})
}

// TestForwardedCallsAreCountedOnce checks that only the replica that the client has called counts.
func TestForwardedCallsAreCountedOnce(t *testing.T) {
	for _, forwarded := range []bool{false, true} {
		m := &meter{}
		gate := interceptor.NewGate()
		x := interceptor.New(interceptor.Config{Meter: m, Gate: gate})
		ctx := &call.LocalContext{Context: t.Context(), Local: call.Local{Forwarded: forwarded}}
		err := unary(ctx, x, func(context.Context) error {
			if n := gate.InFlight(); n != 1 {
				t.Errorf("forwarded %t: %d in flight", forwarded, n)
			}
			return nil
		})
		if counted := len(m.lines) > 0; err != nil || counted == forwarded {
			t.Errorf("forwarded %t: %v, counted %q", forwarded, err, m.lines)
		}
	}
}
