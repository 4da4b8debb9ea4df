package interceptor_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/interceptor"
)

// transactions records which calls run in which transaction. A call runs, and a stream joins,
// unless err says why not.
type transactions struct {
	call.Transactions
	err  error
	in   []call.InTransaction
	left []error // what the streams that joined have ended with
}

func (tx *transactions) Run(
	ctx context.Context, in call.InTransaction, run call.Handler,
) (proto.Message, error) {
	tx.in = append(tx.in, in)
	if tx.err != nil {
		return nil, tx.err
	}
	return run(ctx)
}

func (tx *transactions) Join(
	ctx context.Context, in call.InTransaction,
) (context.Context, func(error), error) {
	tx.in = append(tx.in, in)
	return ctx, func(err error) { tx.left = append(tx.left, err) }, tx.err
}

// tokens lists where the token of a transaction can be: in the request, and in the metadata.
var tokens = []struct {
	name     string
	field    *string
	metadata []string
	code     codes.Code
	token    string // of the transaction that the call runs in; empty: none
}{
	{"none", nil, nil, codes.OK, ""},
	{"an empty field", new(""), nil, codes.OK, ""},
	{"a field", new("a"), nil, codes.OK, "a"},
	{"metadata", nil, []string{"a"}, codes.OK, "a"},
	{"the same in both", new("a"), []string{"a"}, codes.OK, "a"},
	{"another in the metadata", new("a"), []string{"b"}, codes.InvalidArgument, ""},
	{"two in the metadata", nil, []string{"a", "b"}, codes.InvalidArgument, ""},
}

// TestCallsInTransactions checks which calls run in a transaction, and with which number.
func TestCallsInTransactions(t *testing.T) {
	const method = "/mooring.v1.DocumentService/InsertOne"
	for _, row := range tokens {
		for _, statement := range []*int32{nil, new(int32(0)), new(int32(7))} {
			tx := &transactions{}
			x := interceptor.New(interceptor.Config{Transactions: tx})
			ctx := metadata.NewIncomingContext(t.Context(),
				metadata.MD{call.TransactionKey: row.metadata})
			request := &mooringv1.InsertOneRequest{Transaction: row.field, Statement: statement}
			ran := 0
			response, err := x.Unary()(ctx, request, &grpc.UnaryServerInfo{FullMethod: method},
				func(context.Context, any) (any, error) {
					ran++
					return &mooringv1.InsertOneResponse{}, nil
				})
			if ok := row.code == codes.OK; status.Code(err) != row.code || (ran == 1) != ok ||
				(response != nil) != ok {
				t.Errorf("%s: %v, %v, and the handler ran %d times", row.name, response, err, ran)
			}
			if row.token == "" {
				if len(tx.in) > 0 {
					t.Errorf("%s: it runs in %v", row.name, tx.in)
				}
				continue
			}
			if len(tx.in) != 1 {
				t.Fatalf("%s: it runs in %v", row.name, tx.in)
			}
			in := tx.in[0]
			if in.Token != row.token || in.Method != method || in.Request != request ||
				(in.Statement == nil) != (statement == nil) ||
				statement != nil && *in.Statement != *statement {
				t.Errorf("%s: it runs in %+v", row.name, in)
			}
		}
	}
}

// TestStreamEndsWith checks that the transaction of a stream learns the error of that.
func TestStreamEndsWith(t *testing.T) {
	for _, want := range []error{nil, io.ErrUnexpectedEOF} {
		tx := &transactions{}
		x := interceptor.New(interceptor.Config{Transactions: tx})
		sent := &mooringv1.StreamFindRequest{Transaction: new("a")}
		_ = x.Stream()(nil, &received{ctx: t.Context(), message: sent}, &grpc.StreamServerInfo{
			FullMethod: "/mooring.v1.DocumentService/StreamFind", IsServerStream: true,
		}, func(_ any, ss grpc.ServerStream) error {
			return errors.Join(ss.RecvMsg(&mooringv1.StreamFindRequest{}), want)
		})
		if len(tx.left) != 1 || !errors.Is(tx.left[0], want) {
			t.Errorf("the stream leaves its transaction with %v, want %v", tx.left, want)
		}
	}
}

// TestStreamsInTransactions checks which streams join a transaction, that they leave it at their
// end, and that one that cannot join fails.
func TestStreamsInTransactions(t *testing.T) {
	busy := status.Error(codes.Aborted, "busy")
	for _, row := range tokens {
		for _, refused := range []error{nil, busy} {
			tx := &transactions{err: refused}
			x := interceptor.New(interceptor.Config{Transactions: tx})
			ctx := metadata.NewIncomingContext(t.Context(),
				metadata.MD{call.TransactionKey: row.metadata})
			sent := &mooringv1.StreamFindRequest{Transaction: row.field}
			var joined error
			err := x.Stream()(nil, &received{ctx: ctx, message: sent}, &grpc.StreamServerInfo{
				FullMethod: "/mooring.v1.DocumentService/StreamFind", IsServerStream: true,
			}, func(_ any, ss grpc.ServerStream) error {
				joined = ss.RecvMsg(&mooringv1.StreamFindRequest{})
				return joined
			})
			want := row.code
			joins := row.token != ""
			if joins && refused != nil {
				want = codes.Aborted
			}
			if status.Code(err) != want || (joined == nil) != (want == codes.OK) {
				t.Errorf("%s, %v: %v, the handler gets %v, want %v",
					row.name, refused, err, joined, want)
			}
			if (len(tx.in) == 1) != joins || joins && tx.in[0].Token != row.token {
				t.Errorf("%s: it joins %+v", row.name, tx.in)
			}
			if left := joins && refused == nil; (len(tx.left) == 1) != left {
				t.Errorf("%s, %v: it leaves %d times", row.name, refused, len(tx.left))
			}
		}
	}
}

// TestFailedTransaction checks that the error of a transaction is that of its call.
func TestFailedTransaction(t *testing.T) {
	tx := &transactions{err: errors.New("no")}
	x := interceptor.New(interceptor.Config{Transactions: tx})
	request := &mooringv1.InsertOneRequest{Transaction: new("a")}
	info := &grpc.UnaryServerInfo{FullMethod: "/mooring.v1.DocumentService/InsertOne"}
	_, err := x.Unary()(t.Context(), request, info, func(context.Context, any) (any, error) {
		t.Error("the handler runs")
		return request, nil
	})
	if err == nil {
		t.Error("the call succeeds")
	}
}
