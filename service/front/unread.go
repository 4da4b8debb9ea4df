package front

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/service/admission"
)

// unread holds the streams that wait for their clients to read, and since when each has made no
// progress. Its zero value is empty.
type unread struct {
	// mu guards the field below. Nothing blocks while it is held.
	mu    sync.Mutex
	since map[*Exchange]time.Time
}

// moved records that a stream begins to wait for its client, or that the client has taken some.
func (u *unread) moved(x *Exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = map[*Exchange]time.Time{}
	}
	u.since[x] = time.Now()
}

// over records that a stream does not wait any more.
func (u *unread) over(x *Exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.since, x)
}

// cut ends streams whose clients have taken nothing for writePatience, until they hold so many
// bytes: those that hold the most first, so that few end, and of equal ones the longest waiting. If
// only is not nil, it ends those of that principal.
func (u *unread) cut(bytes int64, only *admission.Principal) {
	u.mu.Lock()
	defer u.mu.Unlock()
	type stream struct {
		*Exchange

		held int64
	}
	idle := make([]stream, 0, len(u.since))
	for x, since := range u.since {
		if only != nil && x.Memory.account.Principal() != *only {
			continue
		}
		if held := x.Memory.account.Held(); time.Since(since) >= writePatience && held > 0 {
			idle = append(idle, stream{x, held})
		}
	}
	slices.SortFunc(idle, func(a, b stream) int {
		return cmp.Or(cmp.Compare(b.held, a.held), u.since[a.Exchange].Compare(u.since[b.Exchange]))
	})
	for _, s := range idle {
		if bytes <= 0 {
			return
		}
		bytes -= s.held
		delete(u.since, s.Exchange)
		// The write fails, and with it the stream.
		_ = http.NewResponseController(s.w).SetWriteDeadline(time.Unix(1, 0))
	}
}
