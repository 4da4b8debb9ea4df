package server

import (
	"sync"
	"time"

	"github.com/mooringdb/mooring/service/admission"
)

// The pace of a client, as on REST.
const (
	// paceBytes of a message must pass within pacePatience, in both directions.
	paceBytes    = 64 << 10
	pacePatience = 30 * time.Second
	// readRate is the least average rate of a request, after pacePatience.
	readRate = 16 << 10 // bytes a second
	// maxUnread is the number of calls whose requests have not arrived. One more ends the call
	// that has made no progress for longest.
	maxUnread = 1000
	// maxUnreadOfOne is the number of them on one connection, with those that have ended so, from
	// which it is closed then.
	maxUnreadOfOne = 50
	// hurry is how long a message may make no progress if there is no room for others.
	hurry = 500 * time.Millisecond
	// statusTime is how much later than its stream a client that reads nothing loses its
	// connection. If it reads meanwhile, it learns why the stream has ended.
	statusTime = 2 * time.Second
	// sweepEvery is the time between two looks at the messages on their way.
	sweepEvery = time.Second
)

// readTime returns how long a request may take of which n bytes have arrived.
func readTime(n int) time.Duration {
	return pacePatience + time.Duration(n)*time.Second/readRate
}

// sendTime returns how long a response of n bytes may take.
func sendTime(n int) time.Duration {
	return pacePatience * time.Duration(1+n/paceBytes)
}

// watchdog watches the messages that clients send and take, and ends those that make no progress.
// It has a timer while there are any. One that is nil watches nothing that clients send.
type watchdog struct {
	// mu guards the fields below, and those of the entries. Nothing blocks while it is held.
	mu      sync.Mutex
	unread  line // in the order of their progress
	unsent  map[*sending]struct{}
	ticking bool
	// received and queued are the bytes of the two.
	received, queued int
	checked          time.Time // when the connections were looked at for room

	room int // for the bytes in each direction; 0: no limit
}

func newWatchdog(room int) *watchdog {
	return &watchdog{unsent: map[*sending]struct{}{}, room: room}
}

// reading represents a message on its way from a client.
type reading struct {
	begun, progress time.Time
	patience        time.Duration // for the next progress
	received        int
	of              *stream

	watched      bool     // it is in the line
	ahead, after *reading // its neighbors there; nil: it has none
}

// sending represents a message on its way to a client, in the buffers of grpc. It acts as the pool
// of the message's buffer, so that it learns when that is written.
type sending struct {
	dog      *watchdog
	size     int
	deadline time.Time
	patience time.Duration // for the next progress
	progress time.Time
	written  int64 // by the connection, at that time
	to       *client
	account  *admission.Account // charged for it; nil: none is
}

// The reasons for the end of a call whose request does not arrive.
const (
	whySlow = "the request did not arrive in time"
	whyMany = "too many calls wait for their requests"
)

// watch begins to watch a message from a client.
func (w *watchdog) watch(r *reading) {
	if w == nil {
		return
	}
	r.begun = time.Now()
	r.progress, r.received = r.begun, 0
	oldest, isFlood := w.admit(r)
	switch {
	case isFlood:
		_ = oldest.of.client.Close() // its error does not matter any more
	case oldest != nil:
		oldest.of.cut(whyMany)
	}
}

// admit adds a message from a client. If there are too many, it returns the message whose call must
// end, and whether its connection must end, too, since that has more than its part of them.
func (w *watchdog) admit(r *reading) (oldest *reading, isFlood bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unread.append(r)
	if r.of.client != nil {
		r.of.client.unread++
	}
	w.tickLocked()
	if w.unread.length <= maxUnread {
		return nil, false
	}
	oldest = w.unread.first
	w.forgetLocked(oldest)
	client := oldest.of.client
	if client == nil {
		return oldest, false
	}
	client.cut++
	return oldest, client.unread+client.cut >= maxUnreadOfOne
}

// moved records progress of a message from a client. If there is no room for so many bytes, it ends
// a call.
func (w *watchdog) moved(r *reading, received int) {
	if w == nil {
		return
	}
	if victim := w.move(r, received); victim != nil {
		victim.of.cut(whyMany)
	}
}

// move records progress, and returns the call that must end: one that has made no progress in
// hurry, else r itself, and none if r is the only one.
func (w *watchdog) move(r *reading, received int) (victim *reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !r.watched {
		return nil // it is over
	}
	r.received += received
	r.progress = time.Now()
	w.received += received
	w.unread.remove(r)
	w.unread.append(r)
	if w.room == 0 || w.received <= w.room || w.received == r.received {
		return nil
	}
	victim = r
	for other := w.unread.first; r.progress.Sub(other.progress) >= hurry; other = other.after {
		if other.received > 0 {
			victim = other
			break
		}
	}
	w.forgetLocked(victim)
	return victim
}

// arrived ends the watching.
func (w *watchdog) arrived(r *reading) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.watched {
		w.forgetLocked(r)
	}
}

func (w *watchdog) forgetLocked(r *reading) {
	w.unread.remove(r)
	if client := r.of.client; client != nil {
		if client.unread--; client.unread == 0 {
			client.cut = 0
		}
	}
	w.received -= r.received
}

// sent ends the watching of a message to a client.
func (w *watchdog) sent(s *sending) {
	w.mu.Lock()
	w.dropLocked(s)
	w.mu.Unlock()
	s.account.Close()
}

// end closes the connections of messages, which are watched no more. grpc frees no message of a
// connection that is closed.
func end(stuck []*sending) {
	for _, s := range stuck {
		_ = s.to.Close() // its error does not matter any more
		s.account.Close()
	}
}

func (w *watchdog) dropLocked(s *sending) {
	if _, ok := w.unsent[s]; ok {
		delete(w.unsent, s)
		w.queued -= s.size
	}
}

// send begins to watch a message to a client. If there is no room for it, it closes the connections
// that take nothing.
func (w *watchdog) send(s *sending) {
	s.progress, s.written = time.Now(), s.to.written.Load()
	end(w.queue(s))
}

func (w *watchdog) queue(s *sending) (idle []*sending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unsent[s] = struct{}{}
	w.queued += s.size
	w.tickLocked()
	return w.idleLocked(s.progress)
}

// idleLocked returns the messages whose connections have taken nothing for hurry, if there is no
// room. It looks at most once in a fraction of that time.
func (w *watchdog) idleLocked(now time.Time) (idle []*sending) {
	if w.room == 0 || w.queued <= w.room || now.Sub(w.checked) < hurry/10 {
		return nil
	}
	w.checked = now
	for s := range w.unsent {
		if now.Sub(s.to.tookAt()) > hurry && now.Sub(s.progress) > hurry {
			idle = append(idle, s)
			w.dropLocked(s)
		}
	}
	return idle
}

func (w *watchdog) tickLocked() {
	if !w.ticking {
		w.ticking = true
		time.AfterFunc(sweepEvery, w.sweep)
	}
}

// sweep ends the messages that make no progress.
func (w *watchdog) sweep() {
	slow, stuck := w.late(time.Now())
	for _, r := range slow {
		r.of.cut(whySlow)
	}
	end(stuck)
}

// late returns the messages that have made no progress, and those to connections that are closed.
// It watches them no more.
func (w *watchdog) late(now time.Time) (slow []*reading, stuck []*sending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var next *reading
	for r := w.unread.first; r != nil; r = next {
		next = r.after
		if now.Sub(r.progress) > r.patience || now.Sub(r.begun) > readTime(r.received) {
			w.forgetLocked(r)
			slow = append(slow, r)
		}
	}
	for s := range w.unsent {
		if s.to.closed.Load() || s.isStuck(now) {
			stuck = append(stuck, s)
			w.dropLocked(s)
		}
	}
	stuck = append(stuck, w.idleLocked(now)...)
	w.ticking = false
	if w.unread.length > 0 || len(w.unsent) > 0 {
		w.tickLocked()
	}
	return slow, stuck
}

// isStuck reports whether the client does not take the message, and records its progress.
func (s *sending) isStuck(now time.Time) bool {
	if written := s.to.written.Load(); written-s.written >= paceBytes {
		s.progress, s.written = now, written
	}
	return now.After(s.deadline) || now.Sub(s.progress) > s.patience
}
