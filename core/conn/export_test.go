package conn

import "time"

// Expire sets a deadline on c that is over.
func Expire(c *Conn) { _ = c.nc.SetDeadline(time.Unix(1, 0)) }

// HasArrived reports whether there is unread data on c's socket.
func HasArrived(c *Conn) bool { return c.transport.arrival() == arrivedBytes }
