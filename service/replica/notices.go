package replica

import (
	"sync"
	"time"
)

// maxNoticed bounds the keys whose last notice is remembered.
const maxNoticed = 1000

// notices limits how often the log repeats a notice about the same key.
type notices struct {
	every time.Duration // the least time between two notices

	// mu guards the field below. Nothing blocks while it is held.
	mu   sync.Mutex
	said map[string]time.Time // by key: the time of the last notice
}

func newNotices(every time.Duration) *notices {
	return &notices{every: every, said: map[string]time.Time{}}
}

// may reports whether a notice about a key is due, and records that it was given.
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
