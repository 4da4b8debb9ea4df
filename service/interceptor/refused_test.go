package interceptor_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/recent"
	"github.com/mooringdb/mooring/service/rpcerr"
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

// TestRefuse checks how a call is recorded whose request could not be read: as one of its client,
// which is held back if it has had many.
func TestRefuse(t *testing.T) {
	const insert = "/mooring.v1.DocumentService/InsertMany"
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var list recent.List
		x := interceptor.New(interceptor.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Recent: &list,
			Admission: admission.New(admission.Config{}),
		})
		ctx := from(incoming(t.Context(), interceptor.RequestIDKey, "abc-1"), "192.0.2.1")
		ctx = &call.LocalContext{Context: ctx, Local: call.Local{
			Identity: &caller.Identity{Principal: "key:shop"},
		}}
		begun := time.Now()
		for range 110 {
			err := x.Refuse(ctx, insert, &admission.Error{Cause: admission.OwnShare})
			if e := rpcerr.HTTP(err).Body.GetError(); e.GetRequestId() != "abc-1" ||
				e.GetReason() != "QuotaExceeded" {
				t.Fatalf("the client gets %v", e)
			}
		}
		if took := time.Since(begun); took != 100*time.Millisecond {
			t.Errorf("110 refusals take %v, want 100ms, of the last ten", took)
		}
		if !strings.Contains(log.String(), "request_id=abc-1 method="+insert+
			" code=ResourceExhausted reason=QuotaExceeded principal=key:shop client=192.0.2.1") {
			t.Errorf("the log: %s", &log)
		}
		if e := list.Entries(recent.Refused); len(e) != 1 || e[0].Count != 110 ||
			e[0].Principal != "key:shop" || e[0].Method != insert || e[0].Message == "" {
			t.Errorf("remembered: %+v", e)
		}
	})
}
