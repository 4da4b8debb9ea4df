package handle

import "github.com/mooringdb/mooring/service/admission"

// owned holds the open handles by their owners, in no order, so that a call looks only at those of
// its own principal.
type owned map[admission.Principal][]*Handle

func (o owned) add(h *Handle) {
	h.place = len(o[h.Owner])
	o[h.Owner] = append(o[h.Owner], h)
}

// remove takes a handle out. The last one of its owner gets its place.
func (o owned) remove(h *Handle) {
	of := o[h.Owner]
	last := len(of) - 1
	of[h.place], of[last].place = of[last], h.place
	of[last] = nil
	if o[h.Owner] = of[:last]; last == 0 {
		delete(o, h.Owner)
	}
}
