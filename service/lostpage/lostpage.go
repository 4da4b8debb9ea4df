// Package lostpage closes the cursors of pages that do not reach their clients.
package lostpage

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/front"
)

// Close closes the cursor of a page that the client does not get, because of err or since it asks
// for the header only, and of which it has no token. If m is no page, Close does nothing.
func Close(ctx context.Context, x *front.Exchange, m proto.Message, err error) {
	page, ok := m.(interface {
		GetDocuments() []*mooringv1.Document
		GetCursor() string
	})
	if !ok || page.GetCursor() == "" || isRepeatable(m, err) {
		return
	}
	ctx = x.Incoming(context.WithoutCancel(ctx), nil, call.Local{})
	closing := mooringv1.NewCursorServiceClient(x.Conn())
	request := &mooringv1.CloseCursorRequest{Cursor: page.GetCursor()}
	_, _ = closing.CloseCursor(ctx, request) // if this fails, the cursor expires
}

// isRepeatable reports whether a client that gets no page for lack of memory gets it with the token
// that it has.
func isRepeatable(m proto.Message, err error) bool {
	_, isNext := m.(*mooringv1.NextPageResponse)
	_, refused := errors.AsType[*admission.Error](err)
	return isNext && refused
}
