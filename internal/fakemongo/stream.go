package fakemongo

import (
	"net"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// hello answers at once, or, where the client says what it knows, when there is news: one reply,
// or more of them if the client allows that.
func (h *Host) hello(cmd *Command) Reply {
	h.cluster.mu.Lock()
	lie := h.lie
	h.cluster.mu.Unlock()
	if lie != nil {
		return lie(cmd)
	}
	known, awaits := field(cmd.Body, "topologyVersion").Document()
	await, bounded := field(cmd.Body, "maxAwaitTimeMS").Int64()
	if awaits != bounded {
		return Error(51368, "Location51368", "topologyVersion and maxAwaitTimeMS go together")
	}
	if awaits {
		return Reply{act: func(nc net.Conn, cmd *Command) bool {
			return h.stream(nc, cmd, known, time.Duration(await)*time.Millisecond)
		}}
	}
	h.waitForRole()
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	return Document(h.helloLocked(cmd)).After(h.delay)
}

// version represents a topologyVersion.
type version struct {
	process bson.ObjectID
	counter int64
}

func (h *Host) stream(nc net.Conn, cmd *Command, known bson.Raw, await time.Duration) bool {
	var v version
	v.process, _ = field(known, "processId").ObjectID()
	v.counter, _ = field(known, "counter").AsInt64()
	h.count(+1)
	defer h.count(-1)
	// A reply answers the last one, as servers do that announced more.
	id, to := cmd.RequestID+firstReply, cmd.RequestID
	for ; ; id, to = id+1, id {
		gone, stop := h.watchClient(nc)
		var doc bson.Raw
		alive := h.awaitNews(v, await, gone)
		if stop() && alive {
			h.cluster.mu.Lock()
			v = version{h.process, h.counter}
			doc = h.helloLocked(cmd)
			h.cluster.mu.Unlock()
		}
		if doc == nil {
			return false
		}
		flags := uint32(0)
		if cmd.ExhaustAllowed {
			flags = wire.MoreToCome
		}
		reply := wire.Msg(wire.Header{ID: id, ResponseTo: to}, flags, doc, nil)
		if _, err := nc.Write(reply); err != nil {
			return false
		}
		if !cmd.ExhaustAllowed {
			return true
		}
	}
}

func (h *Host) count(n int) {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	h.streams += n
}

// awaitNews waits until h is no longer what the client knows, or for await. It returns false if
// the client is gone.
func (h *Host) awaitNews(known version, await time.Duration, gone <-chan struct{}) bool {
	timer := time.NewTimer(await)
	defer timer.Stop()
	for due := false; ; {
		h.cluster.mu.Lock()
		news := h.process != known.process || h.counter > known.counter
		hanging, changed := h.hanging, h.cluster.changed
		h.cluster.mu.Unlock()
		if (news || due) && !hanging {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			due = true
		case <-gone:
			return false
		case <-h.done:
			return false
		}
	}
}

// watchClient notices that the client closes the connection. stop ends the watch; it is false
// where the connection is of no use any more. A client that sends anything meanwhile breaks the
// protocol.
func (h *Host) watchClient(nc net.Conn) (gone <-chan struct{}, stop func() bool) {
	closed, over := make(chan struct{}), make(chan struct{})
	ok := true
	h.wg.Go(func() {
		defer close(over)
		var one [1]byte
		n, err := nc.Read(one[:])
		if n == 0 && isDeadline(err) {
			return
		}
		ok = false
		if n > 0 {
			h.cluster.mu.Lock()
			h.violation = "a client sent something while a reply was under way"
			h.cluster.mu.Unlock()
		}
		close(closed)
	})
	return closed, func() bool {
		_ = nc.SetReadDeadline(time.Unix(1, 0))
		<-over
		_ = nc.SetReadDeadline(time.Time{})
		return ok
	}
}

func isDeadline(err error) bool {
	e, ok := err.(net.Error) //nolint:errorlint // of net.Conn itself
	return ok && e.Timeout()
}
