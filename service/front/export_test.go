package front

import "github.com/mooringdb/mooring/service/admission"

// Unread returns how many streams of a handler wait for their clients.
func Unread(h *Handler) int {
	h.unread.mu.Lock()
	defer h.unread.mu.Unlock()
	return len(h.unread.since)
}

// Cut ends streams that are idle until they hold so many bytes.
func Cut(h *Handler, bytes int64, only *admission.Principal) { h.unread.cut(bytes, only) }
