package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/operation"
)

// ReadConcern says which consistency a read asks for. A nil *ReadConcern inherits the client's.
type ReadConcern struct {
	// Level is sent as it is. An empty one is the server's default, and overrides the client's.
	Level string
}

// WriteConcern says which acknowledgement a write asks for: Nodes or Tag is w, Journal is j,
// WTimeoutMS is wtimeout. A nil *WriteConcern inherits the client's. Unset fields are not sent; if
// all are unset, no write concern is sent.
//
// Nodes 0 is an unacknowledged write; with Journal true it is an error. WTimeoutMS is not sent
// where timeoutMS is set; an inherited one is not sent either where the context has a deadline.
type WriteConcern = connstring.WriteConcern

// readConcernFor resolves an option: {} is sent only where it overrides something.
func (c *Client) readConcernFor(rc *ReadConcern) operation.ReadConcern {
	if rc == nil {
		return operation.ReadConcern{Level: c.readConcernLevel, Sent: c.readConcernLevel != ""}
	}
	return operation.ReadConcern{
		Level: rc.Level, Sent: rc.Level != "" || c.readConcernLevel != "",
	}
}

// writeConcernFor resolves an option, and objects to one that contradicts itself. In a transaction
// there is none: only its end has one.
func (c *Client) writeConcernFor(ctx context.Context, o *Common, ck *check) WriteConcern {
	if o.inTransaction() {
		return WriteConcern{}
	}
	wc := c.writeConcern
	_, timed := ctx.Deadline()
	if o.WriteConcern != nil {
		checkWriteConcern(o.WriteConcern, ck)
		wc, timed = *o.WriteConcern, false
	}
	if timed || c.timeout(o) != nil {
		wc.WTimeoutMS = nil
	}
	if o.Session != nil && unacknowledged(wc) {
		ck.refuse("session", "cannot be used for an unacknowledged write")
	}
	return wc
}

func checkWriteConcern(wc *WriteConcern, ck *check) {
	switch {
	case wc.Nodes != nil && wc.Tag != "":
		ck.refuse("writeConcern", "w is both a number and a string")
	case wc.Nodes != nil && *wc.Nodes < 0:
		ck.refuse("writeConcern", "w is negative")
	case unacknowledged(*wc) && isTrue(wc.Journal):
		ck.refuse("writeConcern", "w: 0 and j: true cannot be used together")
	case wc.WTimeoutMS != nil && *wc.WTimeoutMS < 0:
		ck.refuse("writeConcern", "wtimeout is negative")
	}
}

func unacknowledged(wc WriteConcern) bool { return wc.Nodes != nil && *wc.Nodes == 0 }

func appendWriteConcern(b *bson.Builder, wc WriteConcern) {
	if wc == (WriteConcern{}) {
		return
	}
	b.OpenDocument("writeConcern")
	switch {
	case wc.Nodes != nil:
		b.Int32("w", *wc.Nodes)
	case wc.Tag != "":
		b.String("w", wc.Tag)
	}
	appendBool(b, "j", wc.Journal)
	appendInt64(b, "wtimeout", wc.WTimeoutMS)
	b.Close()
}
