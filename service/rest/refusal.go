package rest

import (
	"net/http"
	"strconv"

	"github.com/mooringdb/mooring/core/bson/extjson"
	servicecall "github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// refusals holds the reasons of what is refused before there is a request; all others have
// InvalidArgument.
var refusals = map[int]rpcerr.Reason{
	http.StatusRequestHeaderFieldsTooLarge: rpcerr.HeaderTooLarge,
	http.StatusNotImplemented:              rpcerr.Unimplemented,
}

// Refusal returns the whole HTTP/1.1 response to bytes that are not a request, which closes the
// connection. Its body is that of all errors.
func (a *API) Refusal(code int, why string) []byte {
	reason, ok := refusals[code]
	if !ok {
		reason = rpcerr.InvalidArgument
	}
	id := interceptor.NewRequestID()
	err := refuse(reason, "the request cannot be read: "+why)
	of := servicecall.Call{Local: servicecall.Local{RequestID: id}}
	failed := rpcerr.Explain(err, of).HTTP()
	text := a.errorText(failed.Body, extjson.RelaxedSafe)
	head := "HTTP/1.1 " + strconv.Itoa(code) + " " + http.StatusText(code) +
		"\r\nContent-Type: " + contentTypes[media.JSON][0] +
		"\r\nContent-Length: " + strconv.Itoa(len(text)) +
		"\r\nConnection: close\r\nCache-Control: no-store" +
		"\r\nX-Content-Type-Options: nosniff\r\n" + front.RequestIDHeader + ": " + id + "\r\n\r\n"
	return append([]byte(head), text...)
}
