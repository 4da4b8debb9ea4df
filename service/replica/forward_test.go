package replica_test

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/transaction"
)

// calls answers the calls that other replicas forward.
type calls struct {
	got      transaction.Forwarding
	messages []string
	err      error
}

func (c *calls) Answer(_ context.Context, f transaction.Forwarding) ([]byte, error) {
	c.got = f
	return []byte("response"), c.err
}

func (c *calls) AnswerStream(_ context.Context, f transaction.Forwarding, send func([]byte) error) error {
	c.got = f
	for _, m := range c.messages {
		if err := send([]byte(m)); err != nil {
			return err
		}
	}
	return c.err
}

// TestForward: every field of a call arrives, and so do its response, its messages and its errors.
func TestForward(t *testing.T) {
	peer := bind(t, "a")
	made := &calls{messages: []string{"one", "", "three"}}
	peer.SetCalls(made)
	peer.Serve(&fake{})
	n, idle := start(t, "a", nil), start(t, "a", nil)
	ctx, address := t.Context(), peer.Advertised()
	f := transaction.Forwarding{
		Owner: [16]byte{1, 2}, Method: "/a/b", Request: []byte("request"), RequestID: "id",
		Identity: &caller.Identity{Principal: "ann", Groups: []string{"g"}, Claims: map[string]any{"a": []any{"b", 1.5}}},
		Metadata: metadata.Pairs("x", "1", "x", "2", "y", "3"), Text: true, Casual: true,
		Client: netip.MustParseAddr("192.0.2.1"),
	}
	response, err := n.Forward(ctx, address, f)
	if err != nil || string(response) != "response" || !reflect.DeepEqual(made.got, f) {
		t.Errorf("Forward = %q, %v; arrived %+v, want %+v", response, err, made.got, f)
	}
	made.got = transaction.Forwarding{}
	var messages []string
	receive := func(b []byte) error {
		messages = append(messages, string(b))
		return nil
	}
	if err := n.ForwardStream(ctx, address, f, receive); err != nil || !slices.Equal(messages, made.messages) || !reflect.DeepEqual(made.got, f) {
		t.Errorf("ForwardStream = %q, %v; arrived %+v, want %+v", messages, err, made.got, f)
	}
	full := errors.New("full")
	if err := n.ForwardStream(ctx, address, f, func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("ForwardStream whose message is not taken = %v", err)
	}
	for _, row := range []struct {
		name string
		err  error
		want func(error) bool
	}{
		{"a named error", paging.ErrNotHere, func(err error) bool { return errors.Is(err, paging.ErrNotHere) }},
		{"another error", &rpcerr.Error{Reason: rpcerr.TransactionBusy, Message: "busy"}, func(err error) bool {
			return status.Code(err) == codes.Aborted && rpcerr.HTTP(err).Body.GetError().GetReason() == string(rpcerr.TransactionBusy)
		}},
	} {
		made.err, made.messages = row.err, nil
		if _, err := n.Forward(ctx, address, f); !row.want(err) {
			t.Errorf("%s: Forward = %v", row.name, err)
		}
		if err := n.ForwardStream(ctx, address, f, receive); !row.want(err) {
			t.Errorf("%s: ForwardStream = %v", row.name, err)
		}
	}
	if _, err := n.Forward(ctx, idle.Advertised(), f); status.Code(err) != codes.Unimplemented {
		t.Errorf("Forward to a replica that makes no calls = %v", err)
	}
	if err := n.ForwardStream(ctx, idle.Advertised(), f, receive); status.Code(err) != codes.Unimplemented {
		t.Errorf("ForwardStream to a replica that makes no calls = %v", err)
	}
}
