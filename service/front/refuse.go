package front

import "github.com/mooringdb/mooring/service/rpcerr"

// refuse returns the error of a request that is refused as a whole.
func refuse(reason rpcerr.Reason, message string) *rpcerr.Error {
	return &rpcerr.Error{Reason: reason, Message: message}
}
