package interceptor_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/mooringdb/mooring/core/operation"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// from returns the context of a call from an address.
func from(ctx context.Context, address string) context.Context {
	client := &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(address), Port: 1}}
	return peer.NewContext(ctx, client)
}

func reasonOf(err error) string { return rpcerr.HTTP(err).Body.GetError().GetReason() }

// TestAdmission checks that a call has a place among the calls in flight of its principal while
// its handler runs, and an open account.
func TestAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{
			Bytes: 1000, Calls: admission.Limits{Each: 1}, Streams: admission.Limits{Each: 1},
			Patience: time.Second,
		})
		x := interceptor.New(interceptor.Config{Admission: a})
		one, other := from(t.Context(), "192.0.2.1"), from(t.Context(), "192.0.2.2")
		for name, run := range map[string]func(
			context.Context, *interceptor.Chain, func(context.Context) error,
		) error{"unary": unary, "stream": stream} {
			err := run(one, x, func(ctx context.Context) error {
				if err := call.From(ctx).Account.Grow(ctx, 100); err != nil {
					t.Error(err)
				}
				again := run(one, x, func(context.Context) error {
					t.Errorf("%s: a second handler runs", name)
					return nil
				})
				if got := reasonOf(again); got != "QuotaExceeded" {
					t.Errorf("%s: a second call: %v", name, again)
				}
				return run(other, x, func(context.Context) error {
					return nil
				})
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if a.Bytes().Held+a.Calls().Held+a.Streams().Held != 0 {
				t.Errorf("%s: at the end %+v, %+v, %+v are held", name, a.Bytes(), a.Calls(),
					a.Streams())
			}
		}
	})
}

// TestAdmissionOfForwardedCalls checks that a forwarded call uses the memory of its client, not
// that of the replica which forwards it, and needs no place: it has one at that replica.
func TestAdmissionOfForwardedCalls(t *testing.T) {
	a := admission.New(admission.Config{
		Bytes: 1000, Calls: admission.Limits{Each: 1}, Streams: admission.Limits{Each: 1},
		RateEach: 1,
	})
	x := interceptor.New(interceptor.Config{Admission: a})
	client := netip.MustParseAddr("192.0.2.1")
	for name, run := range map[string]func(
		context.Context, *interceptor.Chain, func(context.Context) error,
	) error{"unary": unary, "stream": stream, "unary, with a name": unary} {
		local := call.Local{Forwarded: true, Client: client}
		want := admission.PrincipalOf("", client)
		if strings.Contains(name, "with a name") {
			local.Identity, want = &caller.Identity{Principal: "key:a"},
				admission.Principal{Name: "key:a"}
		}
		ctx := &call.LocalContext{Context: from(t.Context(), "192.0.2.9"), Local: local}
		ran := false
		err := run(ctx, x, func(in context.Context) error {
			if got := call.From(in).Account.Principal(); got != want {
				t.Errorf("%s: the account of %v, want %v", name, got, want)
			}
			//nolint:contextcheck // the second call is another one, not part of the first
			return run(ctx, x, func(context.Context) error {
				ran = true
				return nil
			})
		})
		if err != nil || !ran {
			t.Errorf("%s: two calls at a time: %v", name, err)
		}
	}
}

// TestAdmissionByName checks that the name of an authenticated client counts, not its address.
func TestAdmissionByName(t *testing.T) {
	a := admission.New(admission.Config{Calls: admission.Limits{Each: 1}})
	x := interceptor.New(interceptor.Config{Admission: a, Callers: caller.New(caller.Config{})})
	as := func(name, address string) context.Context {
		local := call.Local{Identity: &caller.Identity{Principal: name}}
		return &call.LocalContext{Context: from(t.Context(), address), Local: local}
	}
	nothing := func(context.Context) error { return nil }
	first, moved := as("key:a", "192.0.2.1"), as("key:a", "192.0.2.2")
	second := as("key:b", "192.0.2.1")
	err := unary(first, x, func(context.Context) error {
		again := unary(moved, x, nothing)
		if got := reasonOf(again); got != "QuotaExceeded" {
			t.Errorf("the same name at another address: %v", again)
		}
		return unary(second, x, nothing)
	})
	if err != nil {
		t.Errorf("another name at the same address: %v", err)
	}
}

// TestOpenAccount checks that the account that a listener has opened is used, and stays open.
func TestOpenAccount(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1000})
	x := interceptor.New(interceptor.Config{Admission: a})
	var account admission.Account
	a.Open(&account, admission.PrincipalOf("key:a", netip.Addr{}))
	ctx := &call.LocalContext{Context: t.Context(), Local: call.Local{Account: &account}}
	if err := unary(ctx, x, func(ctx context.Context) error {
		return call.From(ctx).Account.Grow(ctx, 100)
	}); err != nil {
		t.Error(err)
	}
	if got := account.Held(); got != 100 {
		t.Errorf("the account holds %d bytes, want 100", got)
	}
}

// TestRoomForAnswers checks that the answer of a call that must not be made again waits for memory,
// also in an account that goes on with it, and that one of a read is refused.
func TestRoomForAnswers(t *testing.T) {
	for method, waits := range map[string]bool{
		"/mooring.v1.DocumentService/FindOneAndUpdate": true,
		"/mooring.v1.TransactionService/Run":           true,
		"/mooring.v1.DocumentService/FindOne":          false,
		"/mooring.v1.CursorService/NextPage":           false,
	} {
		synctest.Test(t, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 1000, Patience: time.Second})
			x := interceptor.New(interceptor.Config{Admission: a})
			var all, account, kept admission.Account
			a.Open(&all, admission.PrincipalOf("key:b", netip.Addr{}))
			a.Open(&account, admission.PrincipalOf("key:a", netip.Addr{}))
			ctx := &call.LocalContext{Context: t.Context(), Local: call.Local{Account: &account}}
			_, err := x.Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(
				context.Context, any,
			) (any, error) {
				return &mooringv1.FindOneResponse{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			all.Force(1000)
			time.AfterFunc(time.Minute, all.Close)
			account.OpenFor(&kept)
			for _, of := range []*admission.Account{&account, &kept} {
				begun := time.Now()
				err := of.GrowLast(t.Context(), 100)
				if waits != (err == nil) || !waits && time.Since(begun) != time.Second {
					t.Errorf("%s: GrowLast = %v after %s", method, err, time.Since(begun))
				}
			}
			kept.Close()
			account.Close()
			all.Close()
		})
	}
}

// TestDeadlineInQueue checks that a call whose deadline passes while it waits for its place, or
// for the memory of its request, may be repeated: nothing of it was sent.
func TestDeadlineInQueue(t *testing.T) {
	for name, test := range map[string]struct {
		limits admission.Config
		work   func(context.Context) error
		held   bool // the place of another call is waited for
		what   string
	}{
		"a place": {
			limits: admission.Config{Calls: admission.Limits{Total: 1}}, held: true,
			what: "calls in flight",
		},
		"memory": {
			limits: admission.Config{Bytes: 1000},
			work:   func(ctx context.Context) error { return call.From(ctx).Account.Grow(ctx, 800) },
			what:   "memory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.limits.Patience = time.Minute
				a := admission.New(test.limits)
				x := interceptor.New(interceptor.Config{Admission: a})
				if test.held {
					if err := a.EnterCall(t.Context(),
						admission.Principal{Name: "other"}); err != nil {
						t.Fatal(err)
					}
				}
				var other admission.Account
				a.Open(&other, admission.Principal{Name: "other"})
				if err := other.Grow(t.Context(), 500); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				e := rpcerr.HTTP(unary(ctx, x, test.work)).Body.GetError()
				if e.GetReason() != "DeadlineExceeded" || e.GetRetry() != "same-request" ||
					!strings.HasSuffix(e.GetMessage(), "waited for the gateway's "+test.what) {
					t.Errorf("the call ends with %v, want DeadlineExceeded, same-request", e)
				}
			})
		})
	}
}

// TestRefusedReply checks that the client of a call that a reply without room has ended is told so,
// and not that the call was canceled.
func TestRefusedReply(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1000})
	x := interceptor.New(interceptor.Config{Admission: a})
	for name, run := range map[string]func(
		context.Context, *interceptor.Chain, func(context.Context) error,
	) error{"unary": unary, "stream": stream} {
		err := run(t.Context(), x, func(ctx context.Context) error {
			_, _ = a.AdmitReply(ctx, 5000)
			return ctx.Err()
		})
		if got := reasonOf(err); got != "TooLarge" {
			t.Errorf("%s: %v, want TooLarge", name, err)
		}
		err = run(t.Context(), x, func(ctx context.Context) error {
			_, _ = a.AdmitReply(ctx, 5000)
			return &operation.OutcomeUnknownError{Err: ctx.Err()}
		})
		if got := reasonOf(err); got != "WriteOutcomeUnknown" {
			t.Errorf("%s, a write that was sent: %v, want WriteOutcomeUnknown", name, err)
		}
	}
}

// TestOpenAccountOfClient checks that the messages of a call are charged to its client, by its name
// or its address, as the call itself is.
func TestOpenAccountOfClient(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1000})
	x := interceptor.New(interceptor.Config{Admission: a})
	at := from(t.Context(), "192.0.2.1")
	client, shop := netip.MustParseAddr("192.0.2.9"), &caller.Identity{Principal: "key:shop"}
	for name, row := range map[string]struct {
		local call.Local
		want  admission.Principal
	}{
		"address": {
			call.Local{}, admission.Principal{Address: netip.MustParseAddr("192.0.2.1")},
		},
		"name": {call.Local{Identity: shop}, admission.Principal{Name: "key:shop"}},
		"forwarded, address": {
			call.Local{Forwarded: true, Client: client}, admission.PrincipalOf("", client),
		},
		"forwarded, name": {
			call.Local{Forwarded: true, Client: client, Identity: shop},
			admission.Principal{Name: "key:shop"},
		},
	} {
		ctx := &call.LocalContext{Context: at, Local: row.local}
		var c admission.Account
		x.OpenAccount(ctx, &c)
		if got := c.Principal(); got != row.want {
			t.Errorf("%s: the account of %v, want %v", name, got, row.want)
		}
		if c.CheckTotal(1001) == nil || c.CheckTotal(1000) != nil {
			t.Errorf("%s: the account has another budget", name)
		}
	}
	var c admission.Account
	interceptor.New(interceptor.Config{}).OpenAccount(at, &c)
	if err := c.Grow(t.Context(), 1<<40); err != nil {
		t.Errorf("without limits: %v", err)
	}
}
