package interceptor_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// refusal is an error that belongs to the audit log, whatever the method.
var refusal = &rpcerr.Error{Reason: rpcerr.PolicyRefused, Message: "no"}

// panicking implements a log that panics.
type panicking struct{ slog.Handler }

func (panicking) Handle(context.Context, slog.Record) error { panic("the audit log") }

// angry is an error whose text panics.
type angry struct{}

func (angry) Error() string { panic("the error's text") }

// TestPanicsOutsideOfHandlers checks that no panic of what follows a handler leaves the
// interceptors, where it would end the process.
func TestPanicsOutsideOfHandlers(t *testing.T) {
	var out bytes.Buffer
	text := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})
	x := interceptor.New(interceptor.Config{Logger: slog.New(text)})
	err := unary(t.Context(), x, func(context.Context) error { return angry{} })
	if got := reasonOf(err); got != "Internal" {
		t.Errorf("an error that cannot be explained: %v", err)
	}
	if got := out.String(); !strings.Contains(got, `panic="the error's text"`) {
		t.Errorf("the log is %s", got)
	}
	x = interceptor.New(interceptor.Config{Logger: slog.New(panicking{text})})
	if err := unary(t.Context(), x, func(context.Context) error { return nil }); err != nil {
		t.Errorf("with a log that panics: %v", err)
	}
}

// odd implements a request that panics when the audit log describes it.
type odd struct{ *mooringv1.FindRequest }

func (odd) GetDatabase() string { panic("the audit log") }

// TestAuditPanics checks that a panic of the audit step is logged, and that the call's status
// stays.
func TestAuditPanics(t *testing.T) {
	var out bytes.Buffer
	audited := audit.New(audit.Config{Handler: slog.DiscardHandler})
	defer func() { _ = audited.Close(t.Context()) }()
	x := interceptor.New(interceptor.Config{
		Logger: slog.New(slog.NewTextHandler(&out, nil)), Audit: audited,
	})
	ctx := incoming(t.Context(), interceptor.RequestIDKey, "r1")
	_, err := x.Unary()(ctx, odd{}, &grpc.UnaryServerInfo{FullMethod: "/s/M"},
		func(context.Context, any) (any, error) { return nil, refusal })
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("%v", err)
	}
	if got := out.String(); !strings.Contains(got, `msg=panic method=/s/`) ||
		!strings.Contains(got, `request_id=r1 panic="the audit log" stack=`) {
		t.Errorf("logged %s", got)
	}
}

// TestForwardedCallsAreAuditedOnce checks that only the replica that the client has called audits.
func TestForwardedCallsAreAuditedOnce(t *testing.T) {
	refuse := func(context.Context) error { return refusal }
	for _, forwarded := range []bool{false, true} {
		var out bytes.Buffer
		audited := audit.New(audit.Config{Handler: slog.NewTextHandler(&out, nil)})
		x := interceptor.New(interceptor.Config{Audit: audited})
		ctx := &call.LocalContext{Context: t.Context(), Local: call.Local{Forwarded: forwarded}}
		if err := unary(ctx, x, refuse); status.Code(err) != codes.PermissionDenied {
			t.Errorf("forwarded %t: %v", forwarded, err)
		}
		if err := audited.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if logged := strings.Contains(out.String(), "msg=audit"); logged == forwarded {
			t.Errorf("forwarded %t: logged %q", forwarded, out.String())
		}
	}
}

// torn is a stream that has received a part of a message when its call ends, and the rest then.
type torn struct {
	serverStream
	end  func()
	over chan struct{}
}

func (s torn) RecvMsg(m any) error {
	defer close(s.over)
	r, _ := m.(*mooringv1.ImportRequest) // always
	r.Database = "half"
	s.end()
	<-s.ctx.Done()
	r.Collection = "rest"
	return s.ctx.Err()
}

// TestAuditReadsWhatHasArrived checks that the audit log does not read a message that the transport
// still writes to.
func TestAuditReadsWhatHasArrived(t *testing.T) {
	var out bytes.Buffer
	audited := audit.New(audit.Config{Handler: slog.NewTextHandler(&out, nil)})
	x := interceptor.New(interceptor.Config{Audit: audited})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan struct{})
	info := &grpc.StreamServerInfo{
		FullMethod: "/mooring.v1.DocumentService/Import", IsClientStream: true,
	}
	err := x.Stream()(nil, torn{serverStream{ctx: ctx}, cancel, over}, info,
		func(_ any, ss grpc.ServerStream) error { return ss.RecvMsg(&mooringv1.ImportRequest{}) })
	<-over
	if status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if err := audited.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "msg=audit") || strings.Contains(s, "half") {
		t.Errorf("logged %q", s)
	}
}
