package rest

import (
	"net/http"
)

// Protocol serves another API, or the same API in another protocol, on the port of REST. Its
// requests pass the same checks as those of REST, and have the same limits.
type Protocol interface {
	// Takes reports whether the request is one of the protocol.
	Takes(r *http.Request) bool
	// Serve answers the request. When it returns, the request holds no memory any more.
	Serve(x *Exchange)
}

// AcceptsEJSON chooses between application/json and application/ejson by the values of Accept, and
// reports whether it is the latter. ok is false if neither is acceptable.
func AcceptsEJSON(accepts []string) (ejson, ok bool) {
	chosen, ok := accept(accepts, offerSingle)
	return chosen.media == mediaEJSON, ok
}
