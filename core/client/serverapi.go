package client

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
)

// ServerAPI names the version of the stable API that a client declares with each of its commands.
// If Strict or DeprecationErrors is nil, it is not sent. A command of RunCommand must not declare
// an API as well: both are sent, and the result is undefined.
type ServerAPI = conn.ServerAPI

// checkServerAPI refuses versions of the stable API that the driver does not know.
func checkServerAPI(api *ServerAPI) error {
	if api == nil || api.Version == "1" {
		return nil
	}
	var ck check
	ck.refuse("serverApi.version", "is %q; the driver supports only 1", api.Version)
	return ck.err
}

// serverAPIElements returns what every command carries; nil: nothing.
func serverAPIElements(api *ServerAPI) bson.Raw {
	if api == nil {
		return nil
	}
	b := new(bson.Builder)
	api.AppendTo(b)
	return b.Finish()
}
