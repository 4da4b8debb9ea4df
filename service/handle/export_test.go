package handle

import "github.com/mooringdb/mooring/service/admission"

// Owned returns the ids of the handles at which HasRoom and Evict look for a principal, and the
// number of principals that have some.
func (t *Table) Owned(p admission.Principal) (ids []string, principals int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.owned[p] {
		ids = append(ids, h.ID.String())
	}
	return ids, len(t.owned)
}
