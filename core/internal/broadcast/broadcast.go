// Package broadcast holds a value that many readers follow: a read returns the value and a channel
// that is closed when a newer value is published. It keeps no history (a slow reader sees only the
// newest value), starts no goroutine and takes no lock.
package broadcast

import "sync/atomic"

// Value holds a T. The zero Value is not usable; New makes one.
type Value[T any] struct {
	current atomic.Pointer[state[T]]
}

type state[T any] struct {
	value   T
	changed chan struct{}
}

// New returns a Value that holds v.
func New[T any](v T) *Value[T] {
	b := &Value[T]{}
	b.current.Store(newState(v))
	return b
}

func newState[T any](v T) *state[T] {
	return &state[T]{value: v, changed: make(chan struct{})}
}

// Load returns the value and a channel that is closed as soon as it is no longer the newest.
func (b *Value[T]) Load() (T, <-chan struct{}) {
	s := b.current.Load()
	return s.value, s.changed
}

// Store makes v the value and wakes all waiters on the last value's channel, also if v equals that
// value.
func (b *Value[T]) Store(v T) {
	close(b.current.Swap(newState(v)).changed)
}
