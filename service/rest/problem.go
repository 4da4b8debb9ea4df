package rest

import (
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A request that never reaches a handler, because something is wrong with its path, its headers
// or its body, fails with an *rpcerr.Error.

// refuse is a request that is refused as a whole.
func refuse(reason rpcerr.Reason, message string) *rpcerr.Error {
	return &rpcerr.Error{Reason: reason, Message: message}
}

// refuseField is a request with a field, a header or a parameter that is wrong.
func refuseField(field, message string) *rpcerr.Error {
	return &rpcerr.Error{Reason: rpcerr.InvalidArgument, Field: field, Message: message}
}

// malformed is a body that cannot be read at the offset.
func malformed(field string, offset int, message string) *rpcerr.Error {
	return &rpcerr.Error{Reason: rpcerr.MalformedDocument, Field: field, Offset: int64(offset), Message: message}
}
