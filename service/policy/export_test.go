package policy

// Remembered returns how many decisions are remembered.
func (e *Enforcer) Remembered() int { return len(e.state.Load().decisions) }
