package session

import (
	"bytes"
	"sync/atomic"

	"github.com/mooringdb/mooring/core/bson"
)

// ClusterTime holds a $clusterTime as a server sent it, with its signature. Its zero value is none.
type ClusterTime struct {
	doc  bson.Raw
	t, i uint32
}

const clusterTimeKey = "$clusterTime"

// maxClusterTime is how many bytes a $clusterTime may have. That of a server has less than 200; it
// comes back in each command.
const maxClusterTime = 4096

// NewClusterTime returns the cluster time that doc is, as a view on it, or none if it has no
// clusterTime or more bytes than one needs.
func NewClusterTime(doc bson.Raw) ClusterTime {
	if len(doc) > maxClusterTime {
		return ClusterTime{}
	}
	v, ok := doc.Lookup("clusterTime")
	if !ok {
		return ClusterTime{}
	}
	t, i, ok := v.Timestamp()
	if !ok {
		return ClusterTime{}
	}
	return ClusterTime{doc, t, i}
}

// clone returns the cluster time with a document of its own.
func (c ClusterTime) clone() ClusterTime { return ClusterTime{bytes.Clone(c.doc), c.t, c.i} }

// IsZero reports whether there is none.
func (c ClusterTime) IsZero() bool { return c.doc == nil }

// Document returns the document as the server sent it, nil for none.
func (c ClusterTime) Document() bson.Raw { return c.doc }

// Timestamp returns the time itself, zero for none.
func (c ClusterTime) Timestamp() Timestamp { return Timestamp{c.t, c.i} }

// After reports whether c is later than o, by the timestamps alone. None is before all others.
func (c ClusterTime) After(o ClusterTime) bool {
	if c.IsZero() || o.IsZero() {
		return o.IsZero() && !c.IsZero()
	}
	return c.t > o.t || c.t == o.t && c.i > o.i
}

// Later returns the later one of both.
func Later(a, b ClusterTime) ClusterTime {
	if b.After(a) {
		return b
	}
	return a
}

// Append appends the cluster time to a command, unchanged. It appends nothing for none.
func (c ClusterTime) Append(b *bson.Builder) {
	if !c.IsZero() {
		b.Document(clusterTimeKey, c.doc)
	}
}

// Clock holds the latest cluster time. Its zero value has none. Its methods may be called from many
// goroutines at once, and take no lock.
type Clock struct {
	latest atomic.Pointer[ClusterTime]
}

// Now returns the latest cluster time.
func (c *Clock) Now() ClusterTime {
	if latest := c.latest.Load(); latest != nil {
		return *latest
	}
	return ClusterTime{}
}

// Advance moves the clock to t if that is later. It keeps a copy of t's document.
func (c *Clock) Advance(t ClusterTime) {
	var kept *ClusterTime
	for {
		latest := c.latest.Load()
		if latest == nil && t.IsZero() || latest != nil && !t.After(*latest) {
			return
		}
		if kept == nil {
			kept = new(t.clone())
		}
		if c.latest.CompareAndSwap(latest, kept) {
			return
		}
	}
}
