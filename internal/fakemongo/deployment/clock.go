package deployment

import (
	"cmp"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// timestamp holds a cluster time. Its zero value is before all others.
type timestamp struct{ t, i uint32 }

func timestampOf(v bson.Value) timestamp {
	t, i, _ := v.Timestamp()
	return timestamp{t, i}
}

func (t timestamp) value() bson.Value { return bson.TimestampValue(t.t, t.i) }

func (t timestamp) after(o timestamp) bool {
	return cmp.Or(cmp.Compare(t.t, o.t), cmp.Compare(t.i, o.i)) > 0
}

// clock holds the cluster time, which goes on with each write.
type clock struct {
	mu   sync.Mutex
	last timestamp
}

// newClock returns a clock that shows the current second.
func newClock() *clock { return &clock{last: timestamp{uint32(time.Now().Unix()), 1}} }

func (c *clock) now() timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// tick returns a time that is after all before it.
func (c *clock) tick() timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := uint32(time.Now().Unix()); now > c.last.t {
		c.last = timestamp{now, 1}
	} else {
		c.last.i++
	}
	return c.last
}

// times returns what every reply of a deployment with a cluster time carries.
func (c *clock) times() bson.Raw {
	return fakemongo.ClusterTimes(c.now().value())
}
