package interceptor_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/recent"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestRecent checks which calls are remembered, and as what.
func TestRecent(t *testing.T) {
	for _, row := range []struct {
		name          string
		took          time.Duration
		reason        rpcerr.Reason // of the error; empty: none
		slow, refused int
	}{
		{"fast", time.Second - 1, "", 0, 0},
		{"slow", time.Second, "", 1, 0},
		{"not permitted", 0, rpcerr.PolicyRefused, 0, 1},
		{"too many", 0, rpcerr.Overloaded, 0, 1},
		{"no credential", 0, rpcerr.Unauthenticated, 0, 0},
		{"wrong", 0, rpcerr.InvalidArgument, 0, 0},
		{"slow and refused", time.Second, rpcerr.Overloaded, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var list recent.List
				x := interceptor.New(interceptor.Config{
					SlowRequest: time.Second, Recent: &list,
					Logger: slog.New(slog.DiscardHandler),
				})
				req := &mooringv1.FindRequest{Database: "shop", Collection: "orders"}
				info := &grpc.UnaryServerInfo{FullMethod: "/mooring.v1.DocumentService/Find"}
				_, _ = x.Unary()(incoming(t.Context()), req, info,
					func(context.Context, any) (any, error) {
						time.Sleep(row.took) //nolint:forbidigo // fake time
						if row.reason != "" {
							return nil, &rpcerr.Error{Reason: row.reason, Message: "no"}
						}
						return &mooringv1.FindResponse{}, nil
					})
				slow, refused := list.Entries(recent.Slow), list.Entries(recent.Refused)
				if len(slow) != row.slow || len(refused) != row.refused {
					t.Fatalf("slow %+v\nrefused %+v", slow, refused)
				}
				for _, e := range append(slow, refused...) {
					if e.Namespace != "shop.orders" || e.Method != info.FullMethod ||
						e.Took.Total != row.took || e.RequestID == "" ||
						e.Reason != string(row.reason) {
						t.Errorf("%+v", e)
					}
				}
			})
		})
	}
}

// TestRecentQueue has a call that waits for another one.
func TestRecentQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list recent.List
		x := interceptor.New(interceptor.Config{
			SlowRequest: time.Second, Recent: &list,
			Admission: admission.New(admission.Config{
				Calls:    admission.Limits{Total: 1, Each: 1},
				Patience: time.Minute,
			}),
		})
		call := func(id string) {
			info := &grpc.UnaryServerInfo{FullMethod: "/mooring.v1.DocumentService/Find"}
			ctx := incoming(t.Context(), interceptor.RequestIDKey, id)
			_, err := x.Unary()(ctx, &mooringv1.FindRequest{}, info,
				func(context.Context, any) (any, error) {
					time.Sleep(3 * time.Second) //nolint:forbidigo // fake time
					return &mooringv1.FindResponse{}, nil
				})
			if err != nil {
				t.Error(err)
			}
		}
		done := make(chan struct{})
		go func() { call("first"); close(done) }()
		synctest.Wait()
		call("second")
		<-done
		e := list.Entries(recent.Slow)[0]
		if e.Count != 2 || e.RequestID != "second" || e.Took.Total != 6*time.Second ||
			e.Took.Queue != 3*time.Second {
			t.Errorf("%+v", e)
		}
	})
}
