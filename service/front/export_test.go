package front

// Unread returns how many streams of a handler wait for their clients.
func Unread(h *Handler) int {
	h.unread.mu.Lock()
	defer h.unread.mu.Unlock()
	return len(h.unread.since)
}
