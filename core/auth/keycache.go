package auth

import (
	"hash"
	"sync"
)

// keyFactors holds what keys are made from.
type keyFactors struct {
	password, salt string
	iterations     int
}

// maxKeys is how many keys a cache holds. All members of a deployment have the same salt for a
// user, so that one is usual.
const maxKeys = 8

// keyCache holds the newest keys of a SCRAM mechanism. Connections that need the same keys at the
// same time wait for one computation.
type keyCache struct {
	mu      sync.Mutex // guards the fields below; not held while keys are derived
	entries []*keyEntry
	derived int // how often keys were derived
}

type keyEntry struct {
	factors keyFactors
	derive  func() (keys, error)
}

func (c *keyCache) get(h func() hash.Hash, f keyFactors) (keys, error) {
	return c.entry(h, f).derive()
}

func (c *keyCache) entry(h func() hash.Hash, f keyFactors) *keyEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.factors == f {
			return e
		}
	}
	if len(c.entries) == maxKeys {
		c.entries = append(c.entries[:0], c.entries[1:]...)
	}
	e := &keyEntry{factors: f, derive: sync.OnceValues(func() (keys, error) {
		c.mu.Lock()
		c.derived++
		c.mu.Unlock()
		return derive(h, f)
	})}
	c.entries = append(c.entries, e)
	return e
}
