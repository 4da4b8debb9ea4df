package rest

import (
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
	since map[*call]time.Time
}

// moved records that a stream begins to wait for its client, or that the client has taken some.
func (u *unread) moved(c *call) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = map[*call]time.Time{}
	}
	u.since[c] = time.Now()
}

// over records that a stream does not wait any more.
func (u *unread) over(c *call) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.since, c)
}

// cut ends streams whose clients have taken nothing for writePatience, the longest first, until
// they hold so many bytes. If only is not nil, it ends those of that principal.
func (u *unread) cut(bytes int64, only *admission.Principal) {
	u.mu.Lock()
	defer u.mu.Unlock()
	idle := make([]*call, 0, len(u.since))
	for c, since := range u.since {
		if only != nil && c.account.Principal() != *only {
			continue
		}
		if time.Since(since) >= writePatience && c.account.Held() > 0 {
			idle = append(idle, c)
		}
	}
	slices.SortFunc(idle, func(a, b *call) int { return u.since[a].Compare(u.since[b]) })
	for _, c := range idle {
		if bytes <= 0 {
			return
		}
		bytes -= c.account.Held()
		delete(u.since, c)
		// The write fails, and with it the stream.
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Unix(1, 0))
	}
}
