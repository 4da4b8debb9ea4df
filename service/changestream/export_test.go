package changestream

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/service/caller"
)

// Seal returns the ticket of a request, and when it ends.
func (t *Tickets) Seal(
	of *caller.Identity, stream proto.Message,
) (ticket string, expires time.Time, err error) {
	return t.seal(of, stream)
}

// CompareByCollection reports whether a server may compare texts by a collection's collation.
func CompareByCollection(ns client.Namespace, servers []*description.Server) bool {
	return serversOf(servers).compareByCollection(ns)
}
