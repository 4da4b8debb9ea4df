package changestream

import (
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
)

// Seal returns the ticket of a request, and when it ends.
func (t *Tickets) Seal(
	of *caller.Identity, watch *mooringv1.WatchRequest,
) (ticket string, expires time.Time, err error) {
	return t.seal(of, watch)
}
