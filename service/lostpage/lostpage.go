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
// for the header only, and of which it has no token. If m is no page, Close does nothing. request
// is that of the page.
func Close(ctx context.Context, x *front.Exchange, request any, m proto.Message, err error) {
	page, ok := m.(interface {
		GetDocuments() []*mooringv1.Document
		GetCursor() string
	})
	if !ok || page.GetCursor() == "" || isRepeatable(request, m, err) {
		return
	}
	ctx = x.Incoming(context.WithoutCancel(ctx), nil, call.Local{})
	closing := mooringv1.NewCursorServiceClient(x.Conn())
	this := &mooringv1.CloseCursorRequest{Cursor: page.GetCursor()}
	_, _ = closing.CloseCursor(ctx, this) // if this fails, the cursor expires
}

// isRepeatable reports whether a client that gets no page gets it when it makes the call again:
// with the number of its statement, which is known until the transaction and with it the cursor
// ends, or for lack of memory with the token that it has. A page that is too large to be remembered
// counts, too, although its statement does not bring it again: its cursor is left to the end of the
// transaction.
func isRepeatable(request any, m proto.Message, err error) bool {
	statement, ok := request.(interface{ GetStatement() int32 })
	if ok && statement.GetStatement() > 0 {
		return true
	}
	_, isNext := m.(*mooringv1.NextPageResponse)
	_, refused := errors.AsType[*admission.Error](err)
	return isNext && refused
}
