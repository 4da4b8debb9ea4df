package client

import "time"

// SetWall sets the clock that also counts while the machine is suspended.
func (c *Client) SetWall(now func() time.Time) { c.wall = now }
