package rest

import "net/http"

// Unread returns how many streams of a handler wait for their clients.
func Unread(h http.Handler) int {
	u := &h.(*Handler).unread //nolint:forcetypeassert // of tests
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.since)
}
