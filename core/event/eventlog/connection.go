package eventlog

import (
	"fmt"
	"strings"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
)

// addConnection makes the messages of pools (Connection Monitoring and Pooling, "Connection Pool
// Logging"). All are of the level debug.
func addConnection(c *Config, s *event.Sink) {
	write := func(text func() string, message string, addr address.Address, fields ...Field) {
		c.Write(Message{
			Component: Connection, Level: Debug, Message: message, text: text,
			Fields: append(server(addr), fields...),
		})
	}
	addPool(write, s)
	addCheckOut(write, s)
	s.ConnectionCreated = func(e event.ConnectionCreated) {
		write(func() string { return "Connection created: " + which(e.Address, e.ConnectionID) },
			"Connection created", e.Address, driverID(e.ConnectionID))
	}
	s.ConnectionReady = func(e event.ConnectionReady) {
		write(func() string {
			return fmt.Sprintf("Connection ready: %s, established in=%d ms",
				which(e.Address, e.ConnectionID), e.Duration.Milliseconds())
		}, "Connection ready", e.Address, driverID(e.ConnectionID),
			milliseconds("durationMS", e.Duration))
	}
	s.ConnectionClosed = func(e event.ConnectionClosed) {
		reason := closedReasons[e.Reason]
		write(func() string {
			return fmt.Sprintf("Connection closed: %s. Reason: %s.%s",
				which(e.Address, e.ConnectionID),
				reason, errorText(e.Err))
		}, "Connection closed", e.Address, withError(e.Err, driverID(e.ConnectionID),
			Field{"reason", reason})...)
	}
}

// writer writes one message about a pool.
type writer func(text func() string, message string, addr address.Address, fields ...Field)

func addPool(write writer, s *event.Sink) {
	s.PoolCreated = func(e event.PoolCreated) {
		options := poolOptions(e.Options)
		write(func() string {
			text := "Connection pool created for " + e.Address.String()
			for i, o := range options {
				text += [2]string{" using options ", ", "}[min(i, 1)] +
					fmt.Sprintf("%s=%d", o.Key, o.Value)
			}
			return text
		}, "Connection pool created", e.Address, options...)
	}
	s.PoolReady = func(e event.PoolReady) {
		write(func() string { return "Connection pool ready for " + e.Address.String() },
			"Connection pool ready", e.Address)
	}
	s.PoolCleared = func(e event.PoolCleared) {
		var fields []Field
		of := ""
		if e.ServiceID != (bson.ObjectID{}) {
			fields = []Field{{"serviceId", e.ServiceID.Hex()}}
			of = " for serviceId " + e.ServiceID.Hex()
		}
		write(func() string {
			return "Connection pool for " + e.Address.String() + " cleared" +
				of
		},
			"Connection pool cleared", e.Address, fields...)
	}
	s.PoolClosed = func(e event.PoolClosed) {
		write(func() string { return "Connection pool closed for " + e.Address.String() },
			"Connection pool closed", e.Address)
	}
}

func addCheckOut(write writer, s *event.Sink) {
	s.ConnectionCheckOutStarted = func(e event.ConnectionCheckOutStarted) {
		write(func() string { return "Checkout started for connection to " + e.Address.String() },
			"Connection checkout started", e.Address)
	}
	s.ConnectionCheckOutFailed = func(e event.ConnectionCheckOutFailed) {
		reason, err := failedReasons[e.Reason], e.Err
		if e.Reason != event.CheckOutConnectionError {
			err = nil // the reason says everything
		}
		write(func() string {
			return fmt.Sprintf("Checkout failed for connection to %s. Reason: %s.%s Duration: "+
				"%d ms",
				e.Address, reason, errorText(err), e.Duration.Milliseconds())
		}, "Connection checkout failed", e.Address,
			withError(err, Field{"reason", reason}, milliseconds("durationMS", e.Duration))...)
	}
	s.ConnectionCheckedOut = func(e event.ConnectionCheckedOut) {
		write(func() string {
			return fmt.Sprintf("Connection checked out: %s, duration=%d ms",
				which(e.Address, e.ConnectionID), e.Duration.Milliseconds())
		}, "Connection checked out", e.Address, driverID(e.ConnectionID),
			milliseconds("durationMS", e.Duration))
	}
	s.ConnectionCheckedIn = func(e event.ConnectionCheckedIn) {
		write(func() string { return "Connection checked in: " + which(e.Address, e.ConnectionID) },
			"Connection checked in", e.Address, driverID(e.ConnectionID))
	}
}

// closedReasons has the specification's sentences for why a connection was closed.
var closedReasons = map[event.ClosedReason]string{
	event.ClosedStale: "Connection became stale because the pool was cleared",
	event.ClosedIdle: "Connection has been available but unused for longer than the " +
		"configured max idle time",
	event.ClosedError:      "An error occurred while using the connection",
	event.ClosedPoolClosed: "Connection pool was closed",
}

// failedReasons has the specification's sentences for why there is no connection.
var failedReasons = map[event.CheckOutFailedReason]string{
	event.CheckOutTimeout: "Wait queue timeout elapsed without a connection becoming " +
		"available",
	event.CheckOutConnectionError: "An error occurred while trying to establish a new connection",
	event.CheckOutPoolClosed:      "Connection pool was closed",
}

// poolOptions returns the options that are not the defaults.
func poolOptions(o event.PoolOptions) []Field {
	var set []Field
	for _, f := range []Field{
		milliseconds("maxIdleTimeMS", o.MaxIdleTime),
		{"minPoolSize", int64(o.MinSize)},
		{"maxPoolSize", int64(o.MaxSize)},
		{"maxConnecting", int64(o.MaxConnecting)},
		milliseconds("waitQueueTimeoutMS", o.WaitQueueTimeout),
	} {
		if f.Value != int64(0) || o.Unlimited && f.Key == "maxPoolSize" {
			set = append(set, f)
		}
	}
	return set
}

func which(addr address.Address, id uint64) string {
	return fmt.Sprintf("address=%s, driver-generated ID=%d", addr, id)
}

func driverID(id uint64) Field { return Field{"driverConnectionId", int64(id)} }

func withError(err error, fields ...Field) []Field {
	if err == nil {
		return fields
	}
	return append(fields, Field{"error", err.Error()})
}

// errorText returns err as a sentence, empty if err is nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return " Error: " + strings.TrimSuffix(err.Error(), ".") + "."
}
