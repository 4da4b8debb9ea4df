package rest

// heavyWork is the size of a text from which reading or writing it is heavy work.
const heavyWork = 256 << 10

// work does the work on a text of that size, in a turn of the call if it is heavy. The turn pauses
// while the work charges the call with memory, or writes to the client.
func (c *call) work(size int, do func() error) error {
	if size >= heavyWork {
		c.turn.Take()
		defer c.turn.Leave()
	}
	return do()
}

// pause ends the turn of the call, if it has one, before the call waits: for its client, or for
// memory, since the calls that hold it may need a turn to return it. The caller calls resume
// afterwards.
func (c *call) pause() (resume func()) {
	if !c.turn.Leave() {
		return func() {}
	}
	return c.turn.Take
}
