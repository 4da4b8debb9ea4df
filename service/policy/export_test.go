package policy

// Remembered returns how many decisions are remembered.
func (e *Enforcer) Remembered() int { return len(e.state.Load().decisions) }

// RememberedBytes returns how many bytes the names and filters of these have.
func (e *Enforcer) RememberedBytes() (n int) {
	for key, d := range e.state.Load().decisions {
		n += len(key.on.Database) + len(key.on.Collection) + len(d.Filter) + len(d.Forced)
	}
	return n
}

// Standings returns of how many callers it is remembered what rules say of them.
func (e *Enforcer) Standings() int { return len(e.state.Load().standings) }

// MaxRemembered is how many decisions, and callers, are remembered.
const MaxRemembered = maxRemembered
