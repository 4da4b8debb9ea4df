package page

// Phase names what became of page Record().Next-1.
func (l Ledger) Phase() string { return l.phase.String() }
