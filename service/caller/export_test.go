package caller

import (
	"time"
)

// Lane is lane.
type Lane = lane

// Reserve is reserve.
func (l lane) Reserve(
	now time.Time, cost time.Duration, processors int, most time.Duration,
) (Lane, time.Duration, bool) {
	return l.reserve(now, cost, processors, most)
}

// CostOf is costOf.
var CostOf = costOf
