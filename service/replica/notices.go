package replica

import (
	"sync"
	"time"
)

// maxNoticed is of how many it is remembered that something was said of them.
const maxNoticed = 1000

// notices keep the log from saying the same of somebody again and again.
type notices struct {
	every time.Duration // how often it may be said

	// mu guards the field below. Nothing blocks while it is held.
	mu   sync.Mutex
	said map[string]time.Time // when it was said last, of whom
}

func newNotices(every time.Duration) *notices {
	return &notices{every: every, said: map[string]time.Time{}}
}

// may says whether it is time to say it of somebody, and notes that it was said.
func (n *notices) may(who string) bool {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if last, ok := n.said[who]; ok && now.Sub(last) < n.every {
		return false
	}
	if len(n.said) >= maxNoticed {
		clear(n.said)
	}
	n.said[who] = now
	return true
}
