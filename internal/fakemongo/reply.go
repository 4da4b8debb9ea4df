package fakemongo

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// Reply says what a handler makes the server do. The zero value drops the connection without an
// answer.
type Reply struct {
	delay time.Duration
	doc   bson.Raw // that is the answer; nil where act does something else
	act   func(nc net.Conn, cmd *Command) (goOn bool)
	last  bool // the connection is closed after it
}

// Document answers with doc.
func Document(doc bson.Raw) Reply { return Reply{doc: doc} }

// Document returns the answer that is one document, nil if it is none.
func (r Reply) Document() bson.Raw { return r.doc }

// With adds elements to an answer that is one document; to any other it adds nothing.
func (r Reply) With(elements bson.Raw) Reply {
	if r.doc != nil && !elements.IsEmpty() {
		r.doc = bson.NewBuilder(nil).AppendElements(r.doc).AppendElements(elements).Finish()
	}
	return r
}

// OK answers {ok: 1} with the elements that add appends, if it is not nil, before it.
func OK(add func(*bson.Builder)) Reply {
	b := new(bson.Builder)
	if add != nil {
		add(b)
	}
	return Document(b.Double("ok", 1).Finish())
}

// Error answers {ok: 0} with a code, its name, a message and error labels.
func Error(code int32, name, message string, labels ...string) Reply {
	b := new(bson.Builder)
	b.Double("ok", 0).String("errmsg", message).Int32("code", code).String("codeName", name)
	if len(labels) > 0 {
		b.OpenArray("errorLabels")
		for _, l := range labels {
			b.String("", l)
		}
		b.Close()
	}
	return Document(b.Finish())
}

// ClusterTimes returns what the replies of a deployment with a cluster time carry of it.
func ClusterTimes(now bson.Value) bson.Raw {
	return bson.NewBuilder(nil).Value("operationTime", now).
		OpenDocument("$clusterTime").Value("clusterTime", now).
		OpenDocument("signature").Binary("hash", 0, make([]byte, 20)).Int64("keyId", 0).
		Close().Close().Finish()
}

// WithSnapshotTime adds the time of the snapshot that was read to a reply: where the cursor is, if
// there is one.
func WithSnapshotTime(reply bson.Raw, at bson.Value) bson.Raw {
	v, _ := reply.Lookup("cursor")
	if cursor, ok := v.Document(); ok {
		cursor = bson.With(cursor, "atClusterTime", at)
		return bson.With(reply, "cursor", bson.DocumentValue(cursor))
	}
	return bson.With(reply, "atClusterTime", at)
}

// Drop closes the connection without an answer.
func Drop() Reply { return Reply{} }

// DropInside closes the connection after the first n bytes of the answer doc.
func DropInside(doc bson.Raw, n int) Reply {
	return Reply{act: func(nc net.Conn, cmd *Command) bool {
		m := cmd.reply(doc, cmd.RequestID)
		_, _ = nc.Write(m[:min(n, len(m))])
		return false
	}}
}

// Hang returns a reply that never comes: the server keeps the connection until the client closes
// it.
func Hang() Reply {
	return Reply{act: func(nc net.Conn, _ *Command) bool {
		_, _ = io.Copy(io.Discard, nc)
		return false
	}}
}

// Silent does not answer this command and goes on with the next.
func Silent() Reply {
	return Reply{act: func(net.Conn, *Command) bool { return true }}
}

// Garbage writes bytes of the test's own instead of an answer, and goes on.
func Garbage(b []byte) Reply {
	return Reply{act: func(nc net.Conn, _ *Command) bool {
		_, err := nc.Write(b)
		return err == nil
	}}
}

// ToAnother answers with doc as if another request had been meant.
func ToAnother(doc bson.Raw, requestID int32) Reply {
	return Reply{act: func(nc net.Conn, cmd *Command) bool {
		_, err := nc.Write(cmd.reply(doc, requestID))
		return err == nil
	}}
}

// EvenUnasked answers with doc also where no reply is wanted, as some servers do.
func EvenUnasked(doc bson.Raw) Reply {
	return Reply{act: func(nc net.Conn, cmd *Command) bool {
		_, err := nc.Write(cmd.reply(doc, cmd.RequestID))
		return err == nil
	}}
}

// After does the same after a delay.
func (r Reply) After(d time.Duration) Reply {
	r.delay += d
	return r
}

// Then does next as well, after wait is closed.
func (r Reply) Then(wait <-chan struct{}, next Reply) Reply {
	first := r.act
	r.act = func(nc net.Conn, cmd *Command) bool {
		if !first(nc, cmd) {
			return false
		}
		<-wait
		return next.act(nc, cmd)
	}
	return r
}

// ThenDrop closes the connection after it did the same.
func (r Reply) ThenDrop() Reply {
	r.last = true
	return r
}

// Always returns the handler that does the same each time.
func Always(r Reply) Handler { return func(*Command) Reply { return r } }

// Times returns a handler that calls first for the first n commands of all connections, and then
// the other one.
func Times(n int, first, then Handler) Handler {
	var count atomic.Int64
	return func(c *Command) Reply {
		if count.Add(1) <= int64(n) {
			return first(c)
		}
		return then(c)
	}
}

// play does what the reply says; false ends the connection.
func (r Reply) play(s *Server, nc net.Conn, cmd *Command) bool {
	if r.delay > 0 {
		timer := time.NewTimer(r.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.done:
			return false
		}
	}
	switch {
	case r.doc != nil && cmd.MoreToCome:
		return !r.last
	case r.doc != nil:
		_, err := nc.Write(cmd.reply(r.doc, cmd.RequestID))
		return err == nil && !r.last
	}
	return r.act != nil && r.act(nc, cmd) && !r.last
}
