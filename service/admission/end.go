package admission

// ends has what is called at the end of a call's account.
type ends struct {
	calls  []func(sent bool)
	unsent bool // there was no room for the response
}

// AtEnd makes Close call f, without locks. sent is false if GrowLast failed, so that the response
// of the call was not sent. If the account charges nothing or is closed, AtEnd calls f at once.
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
