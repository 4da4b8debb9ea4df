package server

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// waste counts a gRPC call that was of no use (see flood.Connection.Waste) when it ends: it has no
// request, needs no credential, or was reset by its client at once. s is nil if the call was
// refused before its request was read.
func waste(ctx context.Context, s *stream, begun time.Time) {
	if s != nil && s.arrived.Load() && !s.free && !isReset(ctx, begun) {
		return
	}
	if c := clientOf(ctx); c != nil && refusedEarly(ctx) == nil { // else it is counted
		c.cost.Waste()
	}
}

// trust records that the client of an authenticated call is known, if it is (see
// flood.Connection.Trust). ctx is what Authenticate has returned.
func trust(ctx context.Context) {
	if call.LocalFrom(ctx).Identity == nil {
		return
	}
	if c := clientOf(ctx); c != nil {
		c.cost.Trust()
	}
}

// isReset reports whether the client has given a call up as soon as it has begun.
func isReset(ctx context.Context, begun time.Time) bool {
	return errors.Is(ctx.Err(), context.Canceled) && time.Since(begun) < flood.Rapid
}

// infrastructure runs a stream of health or reflection. They need no credential, or no right, and
// have no end of their own: there may be only so many (see refuseEarly), and they end with the
// server, or when they are as old as connections may become.
func (cfg *GRPCConfig) infrastructure(run func() error) error {
	var old <-chan time.Time
	if cfg.MaxAge > 0 {
		timer := time.NewTimer(cfg.MaxAge)
		defer timer.Stop()
		old = timer.C
	}
	done := make(chan error, 1)
	// The stream ends when this function returns, which ends the goroutine.
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-old:
		return rpcerr.Status(&rpcerr.Error{
			Reason:  rpcerr.ShuttingDown,
			Message: "the stream has reached the maximum age of a connection",
		}).Err()
	case <-cfg.Stopping:
		return rpcerr.Status(&rpcerr.Error{
			Reason: rpcerr.ShuttingDown, Message: "the gateway is shutting down",
		}).Err()
	}
}

// tooManyStreams returns the error of a stream beyond those that clients may hold. A client that
// watches the health of its connection does without that if it is not implemented, and goes on with
// its calls (gRFC A17). With any other status it would make none.
func tooManyStreams(isHealth bool) *rpcerr.Error {
	e := &rpcerr.Error{
		Reason: rpcerr.QuotaExceeded, Message: "too many streams of health and reflection are open",
	}
	if isHealth {
		e.Reason = rpcerr.Unimplemented
	}
	return e
}
