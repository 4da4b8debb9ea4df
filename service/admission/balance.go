package admission

// balance records what an account holds. Its methods return the balance afterwards. It has no lock,
// and knows no budget: what it says is freed, the account returns to the budget.
type balance struct {
	held int64 // all bytes
	// reserved is the part of held for replies that are not read yet.
	reserved int64
	// replies is the part of held for replies that were read since takeReplies.
	replies int64
	// vacant is the part of held in which nothing is: it is for messages to servers.
	vacant int64
	closed bool
}

// add adds bytes that were taken. A closed balance keeps none.
func (b balance) add(n int64) (_ balance, kept bool) {
	if !b.closed {
		b.held += n
	}
	return b, !b.closed
}

// addReserved adds bytes that were taken for replies to come.
func (b balance) addReserved(n int64) (_ balance, kept bool) {
	if b, kept = b.add(n); kept {
		b.reserved += n
	}
	return b, kept
}

// addReply adds the bytes of a reply that was read.
func (b balance) addReply(n int64) (_ balance, kept bool) {
	if b, kept = b.add(n); kept {
		b.replies += n
	}
	return b, kept
}

// remove removes n bytes, or what there is if that is less.
func (b balance) remove(n int64) (_ balance, removed int64) {
	removed = min(max(n, 0), b.held)
	b.held -= removed
	b.vacant = min(b.vacant, b.held)
	b.reserved = min(b.reserved, b.held)
	b.replies = min(b.replies, b.held-b.reserved)
	return b, removed
}

// draw removes what is reserved for a reply of n bytes, which is about to be read.
func (b balance) draw(n int64) (_ balance, drawn int64) {
	drawn = min(n, b.reserved)
	b.reserved -= drawn
	b.held -= drawn
	return b, drawn
}

// vacate says that nothing is in n bytes any more. If n is negative, so many are not vacant.
func (b balance) vacate(n int64) balance {
	b.vacant = min(max(b.vacant+n, 0), b.held)
	return b
}

// occupy removes what is vacant for a message of n bytes, which is about to be built.
func (b balance) occupy(n int64) (_ balance, removed int64) {
	n = min(n, b.vacant)
	b.vacant -= n
	return b.remove(n)
}

// takeReplies returns the bytes of the replies since it was last called, which stay in the balance,
// and removes what was reserved for replies and not used.
func (b balance) takeReplies() (_ balance, replies, freed int64) {
	replies, freed = b.replies, b.reserved
	b.replies, b.reserved = 0, 0
	b.held -= freed
	return b, replies, freed
}

// close removes everything, for good.
func (b balance) close() (_ balance, freed int64) { return balance{closed: true}, b.held }
