package admission

// ends has what is called at the end of a call's account.
type ends struct {
	calls  []func(sent bool)
	unsent bool // there was no room for the response
}

// AtEnd has f called when the account is closed, without locks. sent is false if there was no room
// for the last bytes of the call, so that its response was not sent. If the account charges
// nothing, f is called at once.
func (c *Account) AtEnd(f func(sent bool)) {
	if !c.charges() {
		f(true)
		return
	}
	c.mu.Lock()
	closed := c.balance.closed
	if !closed {
		c.ends.calls = append(c.ends.calls, f)
	}
	c.mu.Unlock()
	if closed {
		f(true)
	}
}

// end calls what AtEnd has added.
func (c *Account) end() {
	c.mu.Lock()
	e := c.ends
	c.ends.calls = nil
	c.mu.Unlock()
	for _, f := range e.calls {
		f(!e.unsent)
	}
}

// refuseResponse records that there was no room for the response.
func (c *Account) refuseResponse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends.unsent = true
}
