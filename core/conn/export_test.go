package conn

import "time"

// Expire makes c as if the deadline of its last use were over.
func Expire(c *Conn) { _ = c.nc.SetDeadline(time.Unix(1, 0)) }

// HasArrived reports whether something lies on c's socket.
func HasArrived(c *Conn) bool { return c.transport.arrival() == arrivedBytes }
