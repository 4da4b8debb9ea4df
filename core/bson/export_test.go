package bson

import "time"

// NewObjectIDAt makes an ObjectID of a source whose counter stands at count.
func NewObjectIDAt(now time.Time, count uint32) (a, b ObjectID) {
	s := newObjectIDSource()
	s.counter.Store(count)
	return s.next(now), s.next(now)
}
