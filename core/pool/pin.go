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
	cursors, transactions := p.counts.pinned[PurposeCursor], p.counts.pinned[PurposeTransaction]
	if c.purpose == PurposeOther && why != PurposeOther && p.cfg.MaxPinned > 0 &&
		uint64(cursors+transactions) >= p.cfg.MaxPinned {
		return &PinLimitError{
			Address: p.cfg.Address, Max: p.cfg.MaxPinned, Cursors: cursors,
			Transactions: transactions,
		}
	}
	c.useLocked(why)
	return nil
}

// counts counts the connections that are being established, those in use, and of these by purpose
// the pinned ones.
type counts struct {
	pending, inUse int
	pinned         [numPurposes]int
}

// useLocked counts what c is in use for.
func (c *Conn[C]) useLocked(why Purpose) {
	pinned := &c.pool.counts.pinned
	if c.purpose != PurposeOther {
		pinned[c.purpose]--
	}
	if why != PurposeOther {
		pinned[why]++
	}
	c.purpose = why
}
