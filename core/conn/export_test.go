package conn

import "time"

// Age makes c as if it had not been used for d, and the deadline of its last use were over.
func Age(c *Conn, d time.Duration) {
	c.lastUse = c.lastUse.Add(-d)
	_ = c.nc.SetDeadline(time.Unix(1, 0))
}
