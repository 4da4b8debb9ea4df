package pool

// Purpose says what a connection is in use for.
type Purpose uint8

// The purposes. A connection is checked out for PurposeOther; the others pin it.
const (
	PurposeOther Purpose = iota
	PurposeCursor
	PurposeTransaction
	numPurposes
)

func (p Purpose) String() string { return [...]string{"other", "cursor", "transaction"}[p] }

// Pin marks a connection that its owner keeps for longer than one operation, with the purpose. It
// fails with a *PinLimitError if MaxPinned connections are already pinned. The caller owns the
// connection either way. A pin for another purpose replaces the present one. PurposeOther removes
// the pin, as CheckIn does.
func (p *Pool[C]) Pin(c *Conn[C], why Purpose) error {
	if c.pool != p {
		panic("bug: pin of a connection of another pool")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.state != connInUse {
		panic("bug: pin of a connection that is not checked out")
	}
	cursors, transactions := p.pinned[PurposeCursor], p.pinned[PurposeTransaction]
	if c.purpose == PurposeOther && why != PurposeOther && p.cfg.MaxPinned > 0 &&
		uint64(cursors+transactions) >= p.cfg.MaxPinned {
		return &PinLimitError{
			Address: p.cfg.Address, Max: p.cfg.MaxPinned, Cursors: cursors,
			Transactions: transactions,
		}
	}
	p.useLocked(c, why)
	return nil
}

// useLocked counts what c is in use for.
func (p *Pool[C]) useLocked(c *Conn[C], why Purpose) {
	if c.purpose != PurposeOther {
		p.pinned[c.purpose]--
	}
	if why != PurposeOther {
		p.pinned[why]++
	}
	c.purpose = why
}
