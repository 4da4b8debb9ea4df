package conn

import "time"

// Expire sets a deadline on c that is over.
func Expire(c *Conn) { _ = c.nc.SetDeadline(time.Unix(1, 0)) }

// HasArrived reports whether there is unread data on c's socket.
func HasArrived(c *Conn) bool { return c.transport.arrival() == arrivedBytes }

// Rest makes c one that has rested so long that it looks for what has arrived.
func Rest(c *Conn) { c.rested = time.Time{} }

// JustUsed makes c one whose last reply has just arrived.
func JustUsed(c *Conn) { c.rested = time.Now().Add(time.Hour) }
