package topology

import (
	"errors"

	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// opening says how a monitor's next connection begins. A server older than 3.6 closes a connection
// that begins with OP_MSG, and is asked once over OP_QUERY, so that it is reported as too old and
// not as unreachable. Application connections never ask that way.
type opening uint8

const (
	openUntried opening = iota // OP_MSG, which the address has never answered
	openQuery                  // OP_QUERY
	openMsg                    // OP_MSG, whatever happens
)

// after returns how the next connection begins after one that c, or err if it failed, came of.
func (o opening) after(c *conn.Conn, err error) opening {
	switch {
	case o == openQuery && err == nil && c.IsTooOld():
		return openQuery
	case o == openMsg, err == nil:
		return openMsg
	case !brokeInHello(err):
		return o // nothing was asked, or nothing was refused
	case o == openUntried:
		return openQuery
	default:
		return openMsg // the one question was refused as well
	}
}

// brokeInHello reports whether the connection broke in its first hello. Running out of time is no
// refusal of OP_MSG.
func brokeInHello(err error) bool {
	e, ok := errors.AsType[*mongoerr.NetworkError](err)
	return ok && e.Op == "hello" && !mongoerr.IsTimeout(err) && !mongoerr.IsCanceled(err)
}
