// Package idempotency makes writes with an Idempotency-Key exactly-once. A call's key, principal,
// operation and content give the ids of the sessions that its writes run in, and the _ids that are
// generated for it: the same call again, at any replica, has the same ids, so that the server
// itself knows the writes that it has done. Nothing is stored for that. The ids also depend on a
// key of the gateway's own, which all replicas have: see Schedule.
//
// What each replica remembers is which content a key came with, to refuse the same key for another
// call.
package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

const (
	// Life is how long a key is remembered: as long as servers keep a session.
	Life = 30 * time.Minute
	// maxKeys is how many keys are remembered; the oldest are forgotten first.
	maxKeys = 10_000
	// MaxKeyBytes is the length of the longest key.
	MaxKeyBytes = 255
)

// Keys makes the sessions of calls with a key.
type Keys struct {
	client   *client.Client
	schedule atomic.Pointer[Schedule]

	// mu guards the fields below. Nothing blocks while it is held.
	mu    sync.Mutex
	known map[digest]*remembered
	order []digest // of the known keys, the oldest first
}

type digest = [sha256.Size]byte

type remembered struct {
	content digest
	expires time.Time
	// running counts the calls with the key. sent says that one of them has sent a command: if none
	// has when the last ends, the key is forgotten.
	running int
	sent    bool
}

var _ call.Idempotency = (*Keys)(nil)

// New returns the keys of a client.
func New(c *client.Client, schedule Schedule) *Keys {
	k := &Keys{client: c, known: map[digest]*remembered{}}
	k.schedule.Store(&schedule)
	return k
}

// ErrSuddenChange reports that a schedule would change the key at once: a call that was made with
// the old key could run again with the new one.
var ErrSuddenChange = errors.New("the key would change at once, and repeated calls would run " +
	"twice: write the time of the change before it " +
	"(docs/operations.md)")

// Replace replaces the schedule, or returns ErrSuddenChange and keeps the old one. late is how much
// longer the old key was used here than the new schedule allows: calls of that time may be done
// again at replicas that have changed the key in time.
func (k *Keys) Replace(next Schedule) (late time.Duration, err error) {
	now, old := time.Now(), *k.schedule.Load()
	used, known := old.last(now)
	ids, wait := next.at(now)
	if wait == 0 && (!known || !ids.Equal(used)) {
		return 0, ErrSuddenChange
	}
	k.schedule.Store(&next)
	if wait > 0 {
		late = max(Life-now.Add(wait).Sub(old.until(now)), 0)
	}
	return late, nil
}

// Begin returns the write of a call, whose End the caller calls. It refuses a key that came with
// another call: of another operation, or with another request.
func (k *Keys) Begin(
	principal, key, operation string, request call.Digest,
) (*call.ExactWrite, error) {
	if key == "" || len(key) > MaxKeyBytes {
		return nil, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: call.IdempotencyKey,
			Message: "is empty, or longer than 255 bytes",
		}
	}
	ids, wait := k.schedule.Load().at(time.Now())
	if wait > 0 {
		return nil, &rpcerr.Error{
			Reason: rpcerr.IdempotencyUnavailable, Field: call.IdempotencyKey, RetryAfter: wait,
			Message: "the gateway's own key is being changed: calls with a key are " +
				"refused for half an hour",
		}
	}
	root := ids.Digest([]byte(principal), []byte(operation), []byte(key), request[:])
	name := sha256.Sum256(append([]byte(principal+"\x00"), key...))
	s, err := k.client.ResumeSession(
		session.State{Derive: func(n int) bson.UUID { return newUUID(derive(root, 's', n)) }},
		session.Options{CausalConsistency: new(false)})
	if err != nil {
		return nil, err
	}
	r := k.remember(name, root, time.Now())
	if r == nil {
		return nil, &rpcerr.Error{
			Reason: rpcerr.IdempotencyKeyReused, Field: call.IdempotencyKey,
			Message: "the key was used with another call before: use a new one",
		}
	}
	return &call.ExactWrite{
		Session: s,
		NewID: func(document int) bson.ObjectID {
			sum := derive(root, 'i', document)
			return bson.ObjectID(sum[:12])
		},
		End: func() { k.ended(name, r, s.WasSent()) },
	}, nil
}

// derive returns a digest of the n-th thing of a kind.
func derive(root digest, kind byte, n int) digest {
	return sha256.Sum256(binary.BigEndian.AppendUint64(append(root[:], kind), uint64(n)))
}

// newUUID returns a UUID of version 8, whose bits are the application's own (RFC 9562).
func newUUID(sum digest) bson.UUID {
	u := bson.UUID(sum[:16])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// remember remembers a key, and that a call with it runs. It returns nil if the key has come with
// other content.
func (k *Keys) remember(name, content digest, now time.Time) *remembered {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.order) > 0 {
		oldest := k.order[0]
		if len(k.order) < maxKeys && now.Before(k.known[oldest].expires) {
			break
		}
		delete(k.known, oldest)
		k.order = k.order[1:]
	}
	r, ok := k.known[name]
	if ok && r.content != content {
		return nil
	}
	if !ok {
		r = &remembered{content: content, expires: now.Add(Life)}
		k.known[name] = r
		k.order = append(k.order, name)
	}
	r.running++
	return r
}

// ended records the end of a call, for which remember has returned r. If no command of any call
// with the key was sent, the key is forgotten.
func (k *Keys) ended(name digest, r *remembered, sent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known[name] != r {
		return // it was forgotten before
	}
	r.running--
	r.sent = r.sent || sent
	if r.sent || r.running > 0 {
		return
	}
	delete(k.known, name)
	for i := len(k.order) - 1; i >= 0; i-- { // it is most often the newest
		if k.order[i] == name {
			k.order = slices.Delete(k.order, i, i+1)
			return
		}
	}
}
