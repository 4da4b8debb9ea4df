package interceptor_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/policy"
)

// received implements a stream whose client sends one message.
type received struct {
	grpc.ServerStream
	ctx     context.Context //nolint:containedctx // as grpc has it
	message proto.Message
}

func (s *received) Context() context.Context { return s.ctx }

func (s *received) RecvMsg(m any) error {
	into, ok := m.(proto.Message)
	if !ok {
		return errors.New("not a message")
	}
	proto.Merge(into, s.message)
	return nil
}

// TestOperatorTexts checks that only operators get the server's words where others get none.
func TestOperatorTexts(t *testing.T) {
	p, err := policy.Parse([]byte(`
		permit (principal, action == Action::"Find", resource);
		permit (principal == Principal::"key:operator", action in Action::"operate", resource);`))
	if err != nil {
		t.Fatal(err)
	}
	rules := policy.NewEnforcer(policy.Config{Policy: p})
	for _, row := range []struct {
		name      string
		cfg       interceptor.Config
		principal string
		shown     bool
	}{
		{"operator", interceptor.Config{Policy: rules, Terse: true, OperatorTexts: true}, "key:operator", true},
		{"client", interceptor.Config{Policy: rules, Terse: true, OperatorTexts: true}, "key:client", false},
		{"no policy", interceptor.Config{Terse: true, OperatorTexts: true}, "key:operator", false},
		{
			"operator without a policy",
			interceptor.Config{Terse: true, OperatorTexts: true, Operators: []string{"key:operator"}},
			"key:operator", true,
		},
		{
			"client without a policy",
			interceptor.Config{Terse: true, OperatorTexts: true, Operators: []string{"key:operator"}},
			"key:client", false,
		},
		{"none gets them", interceptor.Config{Policy: rules, Terse: true}, "key:operator", false},
		{"all get them", interceptor.Config{Policy: rules}, "key:client", true},
	} {
		ctx := &call.LocalContext{Context: t.Context(), Local: call.Local{
			Identity: &caller.Identity{Principal: row.principal},
		}}
		_, err := interceptor.New(row.cfg).Unary()(ctx,
			&mooringv1.FindRequest{Database: "d", Collection: "c"},
			&grpc.UnaryServerInfo{FullMethod: "/mooring.v1.DocumentService/Find"},
			func(context.Context, any) (any, error) {
				return nil, &mongoerr.CommandError{Code: 2, Name: "BadValue", Message: "E42 at a:1"}
			})
		if got := strings.Contains(status.Convert(err).Message(), "E42"); got != row.shown {
			t.Errorf("%s: %v, want the server's words: %v", row.name, err, row.shown)
		}
		response, err := interceptor.New(row.cfg).Unary()(ctx,
			&mooringv1.FindRequest{Database: "d", Collection: "c"},
			&grpc.UnaryServerInfo{FullMethod: "/mooring.v1.DocumentService/Find"},
			func(context.Context, any) (any, error) {
				return &mooringv1.InsertManyResponse{
					WriteErrors: []*mooringv1.WriteError{{Message: "E42 at a:1"}},
				}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		text := response.(*mooringv1.InsertManyResponse).GetWriteErrors()[0].GetMessage()
		if got := strings.Contains(text, "E42"); got != row.shown {
			t.Errorf("%s: %q, want the server's words: %v", row.name, text, row.shown)
		}
	}
}

// TestOperators checks who may call DeploymentService without a policy, unary and as a stream, and
// that refusals are logged.
func TestOperators(t *testing.T) {
	const operate = "/mooring.v1.DeploymentService/"
	const other = "/mooring.v1.DocumentService/Find"
	named := []string{"key:ann", "jwt:bob"}
	for _, row := range []struct {
		name      string
		operators []string
		principal string // empty: none
		method    string
		want      codes.Code
	}{
		{"all may", nil, "key:client", operate + "KillHandle", codes.OK},
		{"all may, without a name", nil, "", operate + "KillHandle", codes.OK},
		{"none may", []string{}, "key:ann", operate + "GetTopology", codes.PermissionDenied},
		{"none may, without a name", []string{}, "", operate + "GetTopology", codes.PermissionDenied},
		{"operator", named, "key:ann", operate + "GetTopology", codes.OK},
		{"second operator", named, "jwt:bob", operate + "KillHandle", codes.OK},
		{"client", named, "key:bob", operate + "ListHandles", codes.PermissionDenied},
		{"another service", named, "key:bob", other, codes.OK},
		{"another service, none may", []string{}, "key:bob", other, codes.OK},
	} {
		ctx := &call.LocalContext{Context: t.Context()}
		if row.principal != "" {
			ctx.Identity = &caller.Identity{Principal: row.principal}
		}
		var log bytes.Buffer
		x := interceptor.New(interceptor.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Operators: row.operators,
		})
		_, unary := x.Unary()(ctx, &mooringv1.FindRequest{},
			&grpc.UnaryServerInfo{FullMethod: row.method},
			func(context.Context, any) (any, error) { return &mooringv1.FindResponse{}, nil })
		stream := x.Stream()(nil, &received{ctx: ctx, message: &mooringv1.FindRequest{}},
			&grpc.StreamServerInfo{FullMethod: row.method, IsServerStream: true},
			func(_ any, s grpc.ServerStream) error { return s.RecvMsg(&mooringv1.FindRequest{}) })
		if status.Code(unary) != row.want || status.Code(stream) != row.want {
			t.Errorf("%s: %v and %v, want %v", row.name, unary, stream, row.want)
		}
		said := status.Convert(unary).Message()
		if row.want != codes.OK && (strings.Contains(said, "does not allow") ||
			!strings.HasPrefix(said, "only operators may call "+row.method[len(operate):]+":")) {
			t.Errorf("%s: the client is told %q", row.name, said)
		}
		logged := strings.Count(log.String(),
			`msg="request refused: the client is not an operator"`)
		if named := strings.Count(log.String(), "rule=auth.operators"); named != logged {
			t.Errorf("%s: %d records, of which %d name the option", row.name, logged, named)
		}
		if want := 2; (row.want != codes.OK) != (logged == want) ||
			row.want != codes.OK && !strings.Contains(log.String(), "principal="+row.principal) {
			t.Errorf("%s: the log is %s", row.name, &log)
		}
	}
}

// TestPolicy checks that unary calls and streams of both kinds are checked before their handlers
// see the request, and that a refusal is logged with its rule.
func TestPolicy(t *testing.T) {
	p, err := policy.Parse([]byte(`
		@filter("{'a': 1}") permit (principal, action, resource == Collection::"d.open");
		@id("closed") forbid (principal, action, resource == Collection::"d.closed");`))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	x := interceptor.New(interceptor.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Policy: policy.NewEnforcer(policy.Config{Policy: p}),
	})
	const service = "/mooring.v1.DocumentService/"
	broken := &mongoerr.CommandError{Code: 2, Name: "BadValue", Message: "secret"}
	unaryCall := func(collection string) error {
		request := &mooringv1.FindRequest{Database: "d", Collection: collection}
		_, err := x.Unary()(t.Context(), request,
			&grpc.UnaryServerInfo{FullMethod: service + "Find"}, func(
				_ context.Context, got any,
			) (any, error) {
				if r, ok := got.(*mooringv1.FindRequest); !ok || len(r.GetFilter().GetBson()) == 0 {
					t.Errorf("the handler gets %v", got)
				}
				return nil, broken
			})
		return err
	}
	streamCall := func(method string, message, into proto.Message, sends bool) error {
		info := &grpc.StreamServerInfo{
			FullMethod: service + method, IsServerStream: !sends, IsClientStream: sends,
		}
		return x.Stream()(nil, &received{ctx: t.Context(), message: message}, info, func(
			_ any, ss grpc.ServerStream,
		) error {
			if err := ss.RecvMsg(into); err != nil {
				return err
			}
			return broken
		})
	}
	calls := map[string]func(collection string) error{
		"unary": unaryCall,
		"server stream": func(collection string) error {
			return streamCall("StreamFind",
				&mooringv1.StreamFindRequest{Database: "d", Collection: collection},
				&mooringv1.StreamFindRequest{}, false)
		},
		"client stream": func(collection string) error {
			return streamCall("Import",
				&mooringv1.ImportRequest{Database: "d", Collection: collection},
				&mooringv1.ImportRequest{}, true)
		},
	}
	for name, call := range calls {
		log.Reset()
		err := call("closed")
		if status.Code(err) != codes.PermissionDenied ||
			strings.Contains(status.Convert(err).Message(), `"closed"`) {
			t.Errorf("%s: %v", name, err)
		}
		if text := log.String(); !strings.Contains(text, "rule=closed") ||
			!strings.Contains(text, "resource=d.closed") {
			t.Errorf("%s: logged %s", name, text)
		}
		if err := call("open"); status.Code(err) != codes.InvalidArgument ||
			strings.Contains(status.Convert(err).Message(), "secret") {
			t.Errorf("%s under a filter: %v", name, err)
		}
	}
}

// away is the error of calls whose transactions the replica b keeps.
type away struct{}

func (away) Error() string { return "b keeps it" }

func (away) Route(
	ctx context.Context, _ func(context.Context) error, there call.There,
) (call.Reply, error) {
	return there(ctx, page.Replica{Address: "b", Instance: page.Instance{1}})
}

// elsewhere implements call.Transactions whose transactions the replica b keeps, and the way there.
type elsewhere struct {
	call.Transactions
	asked *call.Forwarding
	reply call.Reply
}

func (e *elsewhere) Run(
	context.Context, call.InTransaction, call.Handler,
) (proto.Message, error) {
	return nil, away{}
}

func (e *elsewhere) Join(
	context.Context, call.InTransaction,
) (context.Context, func(error), error) {
	return nil, nil, away{}
}

func (e *elsewhere) Forward(_ context.Context, f *call.Forwarding) (call.Reply, error) {
	e.asked = f
	return e.reply, nil
}

// TestForwardedCallsAreDecidedOnce checks that the replica which keeps a transaction gets the
// request as the policy has changed it, and does not decide again: it would refuse the filter that
// the policy has added.
func TestForwardedCallsAreDecidedOnce(t *testing.T) {
	p, err := policy.Parse(
		[]byte(`@filter("{'a': 1}") @hidden("a") permit (principal, action, resource);`))
	if err != nil {
		t.Fatal(err)
	}
	owner := &elsewhere{}
	rules := policy.NewEnforcer(policy.Config{Policy: p})
	x := interceptor.New(interceptor.Config{Policy: rules, Transactions: owner, Replicas: owner})
	const service = "/mooring.v1.DocumentService/"
	find := func(
		x *interceptor.Chain, ctx context.Context, filter proto.Message,
	) (got proto.Message, err error) {
		_, err = x.Unary()(ctx, filter, &grpc.UnaryServerInfo{FullMethod: service + "FindOne"},
			func(_ context.Context, r any) (any, error) {
				got, _ = r.(proto.Message)
				return nil, &mongoerr.CommandError{Code: 2, Name: "BadValue", Message: "secret"}
			})
		return got, err
	}
	streamFind := func(
		x *interceptor.Chain, ctx context.Context, sent proto.Message,
	) (got proto.Message, err error) {
		info := &grpc.StreamServerInfo{FullMethod: service + "StreamFind", IsServerStream: true}
		got = &mooringv1.StreamFindRequest{}
		//nolint:contextcheck // the stream has it
		err = x.Stream()(nil, &received{ctx: ctx, message: sent}, info, func(
			_ any, ss grpc.ServerStream,
		) error {
			if err := ss.RecvMsg(got); err != nil {
				return err
			}
			return &mongoerr.CommandError{Code: 2, Name: "BadValue", Message: "secret"}
		})
		return got, err
	}
	forwarded := &call.LocalContext{
		Context: t.Context(), Local: call.Local{Forwarded: true, Quiet: true},
	}
	for name, row := range map[string]struct {
		sent interface {
			proto.Message
			GetFilter() *mooringv1.Document
		}
		make func(*interceptor.Chain, context.Context, proto.Message) (proto.Message, error)
	}{
		"unary":  {&mooringv1.FindOneRequest{Database: "d", Collection: "c", Transaction: new("token")}, find},
		"stream": {&mooringv1.StreamFindRequest{Database: "d", Collection: "c", Transaction: new("token")}, streamFind},
	} {
		_, _ = row.make(x, t.Context(), row.sent)
		asked, ok := owner.asked.Request.(interface{ GetFilter() *mooringv1.Document })
		if !ok || len(asked.GetFilter().GetBson()) == 0 {
			t.Errorf("%s: the owner gets %v, want the policy's filter", name, owner.asked.Request)
		}
		got, err := row.make(interceptor.New(interceptor.Config{Policy: rules}), forwarded,
			owner.asked.Request)
		if !proto.Equal(got, owner.asked.Request) {
			t.Errorf("%s: the owner's handler gets %v, want %v", name, got, owner.asked.Request)
		}
		if status.Code(err) != codes.InvalidArgument ||
			strings.Contains(status.Convert(err).Message(), "secret") {
			t.Errorf("%s: the owner fails with %v, want no word of the server", name, err)
		}
		if !owner.asked.Local.Quiet {
			t.Errorf("%s: the owner may tell the server's words", name)
		}
	}
}

// repeating implements transactions in which each operation was run before, and has failed.
type repeating struct {
	call.Transactions
	err error
}

func (r repeating) Run(context.Context, call.InTransaction, call.Handler) (proto.Message, error) {
	return nil, r.err
}

// TestRepeatedErrors checks that an error of an operation that is not run again is without the
// server's words if the policy keeps them back.
func TestRepeatedErrors(t *testing.T) {
	p, err := policy.Parse([]byte(`
		@filter("{'a': 1}") permit (principal, action, resource == Collection::"d.open");
		permit (principal, action, resource == Collection::"d.free");`))
	if err != nil {
		t.Fatal(err)
	}
	x := interceptor.New(interceptor.Config{
		Policy: policy.NewEnforcer(policy.Config{Policy: p}),
		Transactions: repeating{
			err: &mongoerr.CommandError{Code: 2, Name: "BadValue", Message: "secret"},
		},
	})
	for collection, want := range map[string]struct {
		code codes.Code
		told bool
	}{
		"open":   {codes.InvalidArgument, false},
		"free":   {codes.InvalidArgument, true},
		"closed": {codes.PermissionDenied, false},
	} {
		request := &mooringv1.FindOneRequest{
			Database: "d", Collection: collection, Transaction: new("t"),
		}
		info := &grpc.UnaryServerInfo{FullMethod: "/mooring.v1.DocumentService/FindOne"}
		_, err := x.Unary()(t.Context(), request, info, func(context.Context, any) (any, error) {
			t.Errorf("%s: the handler runs", collection)
			return "", nil
		})
		told := strings.Contains(status.Convert(err).Message(), "secret")
		if status.Code(err) != want.code || told != want.told {
			t.Errorf("%s: %v, want %v", collection, err, want)
		}
	}
}

// TestStreamsEndBeforeTheLog checks that a log that is slow does not keep open the streams that new
// rules end.
func TestStreamsEndBeforeTheLog(t *testing.T) {
	parse := func(rules string) *policy.Policy {
		p, err := policy.Parse([]byte(rules))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	synctest.Test(t, func(t *testing.T) {
		const streams = 3
		var ended atomic.Int32
		lines := 0
		log := writer(func(b []byte) (int, error) {
			lines++
			synctest.Wait()
			if n := ended.Load(); n != streams {
				t.Errorf("%d streams have ended when the log has %s", n, b)
			}
			return len(b), nil
		})
		rules := policy.NewEnforcer(policy.Config{
			Policy: parse(`permit (principal, action, resource);`),
		})
		x := interceptor.New(interceptor.Config{
			Policy: rules,
			Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		info := &grpc.StreamServerInfo{
			FullMethod: "/mooring.v1.DocumentService/StreamFind", IsServerStream: true,
		}
		for range streams {
			sent := &received{
				ctx:     t.Context(),
				message: &mooringv1.StreamFindRequest{Database: "d", Collection: "c"},
			}
			go func() {
				err := x.Stream()(nil, sent, info, func(_ any, ss grpc.ServerStream) error {
					if err := ss.RecvMsg(&mooringv1.StreamFindRequest{}); err != nil {
						return err
					}
					<-ss.Context().Done()
					return ss.Context().Err()
				})
				if status.Code(err) != codes.PermissionDenied {
					t.Errorf("the stream ends with %v", err)
				}
				ended.Add(1)
			}()
		}
		synctest.Wait()
		rules.Replace(parse(`forbid (principal, action, resource);`))
		synctest.Wait()
		if lines != streams {
			t.Errorf("%d lines", lines)
		}
	})
}

type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
