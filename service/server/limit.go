package server

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// limit counts the connections of clients, in all and by network. A nil limit admits all.
type limit struct {
	log *slog.Logger

	// mu guards the fields below. Nothing blocks while it is held.
	mu sync.Mutex

	most, mostOfOne int // 0: no limit

	open    int
	of      map[netip.Addr]int
	refused int       // since the last line of the log
	logged  time.Time // the time of that line
}

// logRefusedEvery is the least time between two lines about refused connections.
const logRefusedEvery = 10 * time.Second

func newLimit(most, mostOfOne int, log *slog.Logger) *limit {
	return &limit{most: most, mostOfOne: mostOfOne, log: log, of: map[netip.Addr]int{}}
}

// set changes the limits. Connections beyond them stay.
func (l *limit) set(most, mostOfOne int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most, l.mostOfOne = most, mostOfOne
}

// enter counts a connection and returns true, or returns false if there are too many.
func (l *limit) enter(from netip.Addr) bool {
	if l == nil {
		return true
	}
	admitted, refused := l.count(from)
	if refused > 0 {
		l.log.Warn("connections refused: there are too many", "refused", refused,
			"client", from.String())
	}
	return admitted
}

// count counts a connection or refuses it. If it is time for a line in the log, it returns the
// number of connections that were refused since the last one.
func (l *limit) count(from netip.Addr) (admitted bool, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.most > 0 && l.open >= l.most ||
		from.IsValid() && l.mostOfOne > 0 && l.of[from] >= l.mostOfOne
	if !full {
		l.open++
		l.of[from]++
		return true, 0
	}
	l.refused++
	now := time.Now()
	if now.Sub(l.logged) < logRefusedEvery {
		return false, 0
	}
	refused, l.refused, l.logged = l.refused, 0, now
	return false, refused
}

// leave takes back what enter has counted.
func (l *limit) leave(from netip.Addr) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.of[from]--; l.of[from] == 0 {
		delete(l.of, from)
	}
}

// network returns what is counted as one client: an IPv4 address or an IPv6 network (/64), since
// one machine has so many IPv6 addresses. The clients of a Unix domain socket have no address and
// only count in all.
func network(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, _ := netip.AddrFromSlice(tcp.IP)
	if ip = ip.Unmap(); ip.Is6() {
		p, _ := ip.Prefix(64) // the length is a valid one
		return p.Addr()
	}
	return ip
}

// SetMaxConnections changes Config.MaxConnections and Config.MaxPerAddress. Connections beyond them
// stay.
func (s *Server) SetMaxConnections(most, mostPerAddress int) { s.limit.set(most, mostPerAddress) }
