package client_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

func (g *gateway) FindOneAndUpdate(
	ctx context.Context, _ *mooringv1.FindOneAndUpdateRequest,
) (*mooringv1.FindOneAndUpdateResponse, error) {
	return &mooringv1.FindOneAndUpdateResponse{
		Document: g.answer, WriteConcernError: g.unmet,
	}, g.called(ctx, "FindOneAndUpdate")
}

func (g *gateway) FindOneAndReplace(
	ctx context.Context, _ *mooringv1.FindOneAndReplaceRequest,
) (*mooringv1.FindOneAndReplaceResponse, error) {
	return &mooringv1.FindOneAndReplaceResponse{
		Document: g.answer, WriteConcernError: g.unmet,
	}, g.called(ctx, "FindOneAndReplace")
}

func (g *gateway) FindOneAndDelete(
	ctx context.Context, _ *mooringv1.FindOneAndDeleteRequest,
) (*mooringv1.FindOneAndDeleteResponse, error) {
	return &mooringv1.FindOneAndDeleteResponse{
		Document: g.answer, WriteConcernError: g.unmet,
	}, g.called(ctx, "FindOneAndDelete")
}

func (g *gateway) DeleteDocument(
	ctx context.Context, _ *mooringv1.DeleteDocumentRequest,
) (*mooringv1.DeleteDocumentResponse, error) {
	return &mooringv1.DeleteDocumentResponse{WriteConcernError: g.unmet}, g.called(ctx, "Delete")
}

// TestUnmetWriteConcern: a write that is not acknowledged as its write concern asks returns its
// document and an error.
func TestUnmetWriteConcern(t *testing.T) {
	for _, c := range []struct {
		name     string
		document bool // it returns one
		call     func(context.Context, on) (bson.Raw, error)
	}{
		{"FindOneAndUpdate", true, func(ctx context.Context, on on) (bson.Raw, error) {
			return on.orders.FindOneAndUpdate(ctx, nil, increment)
		}},
		{"FindOneAndReplace", true, func(ctx context.Context, on on) (bson.Raw, error) {
			return on.orders.FindOneAndReplace(ctx, nil, empty)
		}},
		{"FindOneAndDelete", true, func(ctx context.Context, on on) (bson.Raw, error) {
			return on.orders.FindOneAndDelete(ctx, nil)
		}},
		{"Delete", false, func(ctx context.Context, on on) (bson.Raw, error) {
			return nil, on.orders.Delete(ctx, bson.Int32Value(1))
		}},
		{"Aggregate", false, func(ctx context.Context, on on) (bson.Raw, error) {
			return nil, aggregate(ctx, on)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &gateway{answer: doc(1)}
			on := newOn(t, g, client.Options{})
			if d, err := c.call(t.Context(), on); err != nil || d.Has("_id") != c.document {
				t.Errorf("met: %v, %v", d, err)
			}
			g.unmet = &mooringv1.WriteConcernError{
				Code: 91, CodeName: "ShutdownInProgress", Message: "stopping",
			}
			d, err := c.call(t.Context(), on)
			e, ok := err.(*client.Error) //nolint:errorlint // it is not wrapped
			if !ok || d.Has("_id") != c.document {
				t.Fatalf("unmet: %v, %v", d, err)
			}
			if e.Code != codes.Unavailable || e.Reason != "WriteConcernFailed" ||
				e.Retry != client.Never || e.HTTPStatus != 503 || e.Server.GetCode() != 91 ||
				e.Server.GetWriteConcernError().GetCodeName() != "ShutdownInProgress" ||
				e.Error() != "mooring: WriteConcernFailed: done, but not acknowledged "+
					"as the write concern asks: stopping" {
				t.Errorf("the error is %+v", e)
			}
			if len(g.calls) != 2 {
				t.Errorf("the calls are %q", g.calls)
			}
			g.answer = nil
			_, err = c.call(t.Context(), on)
			if errors.Is(err, client.ErrNoDocument) != c.document {
				t.Errorf("without a document: %v", err)
			}
			e, ok = errors.AsType[*client.Error](err)
			if !ok || e.Reason != "WriteConcernFailed" {
				t.Errorf("without a document: %v", err)
			}
		})
	}
}
