package bson

import "time"

// ObjectIDsAt makes two ObjectIDs of a source whose counter stands at count.
func ObjectIDsAt(now time.Time, count uint32) (a, b ObjectID) {
	s := newObjectIDSource()
	s.counter.Store(count)
	return s.next(now), s.next(now)
}
