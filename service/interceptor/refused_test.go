package interceptor_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/interceptor"
)

// TestMethodsOfStrangers checks that a key in the name of a method that does not exist is in no
// log, neither of a refused request nor of a call, and that the names of all methods are.
func TestMethodsOfStrangers(t *testing.T) {
	key, _, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	called := "/v1/changes/" + key
	(&interceptor.Refusals{Logger: logger}).Refused(t.Context(), &interceptor.Refusal{
		Method: called, Code: codes.Unauthenticated, Reason: "Unauthenticated",
	})
	x := interceptor.New(interceptor.Config{Logger: logger})
	_, _ = x.Unary()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: called}, func(
		context.Context, any,
	) (any, error) {
		panic("a bug")
	})
	if text := log.String(); strings.Contains(text, key) ||
		strings.Count(text, "/v1/changes/…") < 2 {
		t.Errorf("the log: %s", text)
	}
	for _, m := range method.All() {
		if got := interceptor.LogPath(m.Name); got != m.Name {
			t.Errorf("%s is logged as %s", m.Name, got)
		}
	}
}
