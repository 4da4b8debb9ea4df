package changestream

import (
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
)

// Seal returns the ticket of a request, and when it ends.
func (t *Tickets) Seal(
	of *caller.Identity, watch *mooringv1.WatchRequest,
) (ticket string, expires time.Time, err error) {
	return t.seal(of, watch)
}

// CompareByCollection reports whether a server may compare texts by a collection's collation.
func CompareByCollection(ns client.Namespace, servers []*description.Server) bool {
	return serversOf(servers).compareByCollection(ns)
}
