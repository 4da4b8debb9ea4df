// Package flood bounds what clients cost the gateway before it knows what they may do, by
// connection and by address. It counts; it does no I/O, and has no goroutine. It knows nothing of
// the messages of calls that have begun: the watchdog of package server and package front demand a
// pace of these, and package admission gives each principal its share.
//
// What each bound is for:
//
//   - Connections, in all and of an address: each takes some 10 KiB and a file descriptor. One more
//     is reset as soon as it is accepted (Enter).
//   - Streams without an end that need no credential (Watch of health, reflection): each takes some
//     14 KiB for as long as its client likes. One more is refused (Hold).
//   - Calls that do no work: those without a valid credential or of an unknown method, requests
//     for health and for the API's description, and calls that are reset as soon as they have
//     begun. Each takes some 20 µs, and nothing in HTTP/2 limits how many there are. A connection
//     with more of them than it may have is closed (Waste). One whose address has more is closed,
//     too, unless a call on it had a valid credential (Trust): behind a NAT or an ingress
//     its neighbours have its address.
package flood

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Rapid is the age below which a call that its client resets is of no use.
const Rapid = 100 * time.Millisecond

// The streams that clients without a credential may hold.
const (
	mostHeld             = 2048
	mostHeldOfAddress    = 512
	mostHeldOfConnection = 32
)

// The calls of no use: so many at once, and half as many in each second after that.
const (
	mostWasted          = 1000 // of a connection
	mostWastedOfAddress = 4000
)

// logEvery is the least time between two lines of the log about the same.
const logEvery = 10 * time.Second

// What a Meter counts.
const (
	Connections = "connections" // refused when they were accepted
	Calls       = "calls"       // connections closed, since too many of their calls are of no use
	Streams     = "streams"     // streams refused whose clients need no credential
)

// Meter counts what a Guard refuses and closes, each of it. It is safe for concurrent use.
type Meter interface {
	Flood(what string)
}

// Guard counts what all clients cost. A nil Guard admits everything. It is safe for concurrent use.
type Guard struct {
	log   *slog.Logger
	meter Meter // nil: none

	// mu guards the fields below, and those of connections and sources. Nothing blocks while it is
	// held.
	mu sync.Mutex

	most, mostOfOne int // connections; 0: no limit
	open, held      int
	of              map[netip.Addr]*source
	swept           time.Time

	refused, closed tally
}

// source counts what the clients of one address cost. The connections of a Unix domain socket, and
// of a proxy, have no address that is a client's. They may be those of many clients, and count in
// all only.
type source struct {
	open, held int
	wasted     bucket
	// suspect is the time until which the address counts as one that wastes, in Unix nanoseconds.
	// Guard.mu does not guard it.
	suspect atomic.Int64
}

// Connection counts what one connection costs. A nil Connection may cost anything.
type Connection struct {
	guard  *Guard
	from   netip.Addr
	of     *source
	end    func()
	held   int
	wasted bucket
	// closing says that end is called.
	closing bool
	trusted atomic.Bool // see Trust
	number  uint64
}

// numbers counts the connections of the process.
var numbers atomic.Uint64

// Number returns a number that no other connection of the process has. That of nil is 0.
func (c *Connection) Number() uint64 {
	if c == nil {
		return 0
	}
	return c.number
}

// New returns a Guard for so many connections, in all and of an address; 0 means no limit. meter
// may be nil.
func New(most, mostOfOne int, log *slog.Logger, meter Meter) *Guard {
	return &Guard{
		log: log, meter: meter, most: most, mostOfOne: mostOfOne, of: map[netip.Addr]*source{},
	}
}

func (g *Guard) counts(what string) {
	if g.meter != nil {
		g.meter.Flood(what)
	}
}

// Set changes the limits of connections. Connections beyond them stay.
func (g *Guard) Set(most, mostOfOne int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.mostOfOne = most, mostOfOne
}

// Enter counts a connection, or reports that there are too many. end closes the connection; it may
// be called from any goroutine, and until Leave. from is invalid if the client has no address.
func (g *Guard) Enter(from netip.Addr, end func()) (c *Connection, ok bool) {
	if g == nil {
		return nil, true
	}
	c, refused := g.enter(from, end, time.Now())
	if c == nil {
		g.counts(Connections)
	}
	if refused > 0 {
		g.log.Warn("connections refused: there are too many", "refused", refused,
			"client", from.String())
	}
	return c, c != nil
}

// enter counts a connection or returns nil. If it is time for a line in the log, it returns the
// number of connections that were refused since the last one.
func (g *Guard) enter(
	from netip.Addr, end func(), now time.Time,
) (c *Connection, refused int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweepLocked(now)
	of := g.of[from]
	if g.most > 0 && g.open >= g.most ||
		from.IsValid() && g.mostOfOne > 0 && of != nil && of.open >= g.mostOfOne {
		return nil, g.refused.add(now)
	}
	if of == nil {
		g.makeRoomLocked()
		of = &source{}
		g.of[from] = of
	}
	g.open++
	of.open++
	return &Connection{
		guard: g, from: from, of: of, end: end, number: numbers.Add(1),
	}, 0
}

// sweepLocked forgets the addresses without connections that may waste as much as others again.
func (g *Guard) sweepLocked(now time.Time) {
	if now.Sub(g.swept) < refill {
		return
	}
	g.swept = now
	for from, of := range g.of {
		if of.open == 0 && of.wasted.isFull(now) {
			delete(g.of, from)
		}
	}
}

// mostSources is how many addresses without connections are remembered.
const mostSources = 10_000

// makeRoomLocked forgets the addresses without connections if there are too many.
func (g *Guard) makeRoomLocked() {
	if len(g.of) < g.open+mostSources {
		return
	}
	maps.DeleteFunc(g.of, func(_ netip.Addr, of *source) bool { return of.open == 0 })
}

// Leave ends the counting of a connection.
func (c *Connection) Leave() {
	if c == nil {
		return
	}
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
	c.of.open--
	if c.of.open == 0 && c.of.wasted.isFull(time.Now()) {
		delete(g.of, c.from)
	}
}

// Hold counts a stream of a client without a credential until Release, or reports that there are
// too many.
func (c *Connection) Hold() bool {
	if c == nil {
		return true
	}
	held := c.hold()
	if !held {
		c.guard.counts(Streams)
	}
	return held
}

func (c *Connection) hold() bool {
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held >= mostHeld || c.from.IsValid() &&
		(c.held >= mostHeldOfConnection || c.of.held >= mostHeldOfAddress) {
		return false
	}
	g.held++
	c.of.held++
	c.held++
	return true
}

// Release ends what Hold has begun.
func (c *Connection) Release() {
	if c == nil {
		return
	}
	c.guard.mu.Lock()
	defer c.guard.mu.Unlock()
	c.guard.held--
	c.of.held--
	c.held--
}

// Trust records that a call on the connection had a credential that counts: what other connections
// of its address waste does not close it.
func (c *Connection) Trust() {
	if c != nil && !c.trusted.Load() {
		c.trusted.Store(true)
	}
}

// Waste counts a call of no use. It closes the connection if it has had too many, or its address
// has, unless it is trusted.
func (c *Connection) Waste() {
	if c == nil {
		return
	}
	closed, flood := c.waste(time.Now())
	if flood {
		c.guard.counts(Calls)
		c.end()
	}
	if closed > 0 {
		c.guard.log.Warn("connections closed: too many of their calls do no work",
			"closed", closed, "client", c.from.String())
	}
}

// waste counts a call of no use, and reports whether there are too many. If it is time for a line
// in the log, it returns the number of connections that were closed since the last one.
func (c *Connection) waste(now time.Time) (closed int, flood bool) {
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.closing || !c.from.IsValid() {
		return 0, false
	}
	// Both count it.
	mine, all := c.wasted.take(mostWasted, now), c.of.wasted.take(mostWastedOfAddress, now)
	if !all {
		c.of.suspect.Store(now.Add(refill).UnixNano())
	}
	if mine && (all || c.trusted.Load()) {
		return 0, false
	}
	c.closing = true
	return g.closed.add(now), true
}

// Suspect reports whether the calls of the connection's address were of no use too often, a moment
// ago, and none on the connection had a credential that counts.
func (c *Connection) Suspect() bool {
	if c == nil || c.trusted.Load() {
		return false
	}
	until := c.of.suspect.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// key keys the *Connection of a request.
type key struct{}

// NewContext returns a context for the requests of a connection.
func NewContext(ctx context.Context, c *Connection) context.Context {
	return context.WithValue(ctx, key{}, c)
}

// From returns the connection of a request, nil if it has none.
func From(ctx context.Context) *Connection {
	c, _ := ctx.Value(key{}).(*Connection)
	return c
}
