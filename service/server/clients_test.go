package server_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/server"
)

// TestStopDoesNotWaitForSilentClients checks that connections without any data do not delay the
// stop.
func TestStopDoesNotWaitForSilentClients(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) { cfg.DrainTimeout = time.Minute })
	close(r.finish)
	r.start(t)
	for _, address := range []string{r.Addresses().GRPC, r.Addresses().REST} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		defer func() {
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the silent connection is still open")
			}
		}()
	}
	// An answer means that the previous connection was accepted.
	if got := get(t, client(t, nil), "http://"+r.Addresses().REST); got != "rest" {
		t.Errorf("REST says %q", got)
	}
	begun := time.Now()
	r.stop(t)
	if took := time.Since(begun); took > 4*time.Second { // net/http waits 5 s for them, gRPC 10
		t.Errorf("Stop took %v", took)
	}
}

// TestStopBreaksHandshakes checks that a client that never completes its handshake delays the
// stop to its time limit, and no longer.
func TestStopBreaksHandshakes(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) { cfg.DrainTimeout = 0 })
	close(r.finish)
	r.start(t)
	c, err := net.Dial("tcp", r.Addresses().GRPC)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PRI * HTTP"); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Read(make([]byte, 1)) // the server's settings, or the end: it has read
	r.stop(t)
}

// asks reports whether the server answers a request over a new connection from an address.
func asks(t *testing.T, from, to string) bool {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		return false
	}
	defer c.Close()
	// Both fail if the server has closed the connection.
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	text, _ := io.ReadAll(c)
	return strings.HasSuffix(string(text), "rest")
}

// TestConnectionLimits checks that connections beyond the limits are closed, those of gRPC and REST
// counted together, and that a connection that ends makes room.
func TestConnectionLimits(t *testing.T) {
	for _, row := range []struct {
		name        string
		most, ofOne int
		// whether a third connection is served: from the same address, from another
		same, elsewhere bool
	}{
		{"in all", 2, 0, false, false},
		{"of one address", 0, 2, false, true},
		{"both", 3, 2, false, true},
		{"none", 0, 0, true, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			var log safeLog
			r := newRig(t, func(cfg *server.Config) {
				cfg.MaxConnections, cfg.MaxPerAddress = row.most, row.ofOne
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			r.start(t)
			defer r.stop(t)
			defer close(r.finish)
			var held []net.Conn
			for _, address := range []string{r.Addresses().GRPC, r.Addresses().REST} {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if held = append(held, c); address != r.Addresses().GRPC {
					continue
				}
				// Its settings say that the connection is accepted. Those of REST are in order.
				if _, err := io.ReadFull(c, make([]byte, 9)); err != nil {
					t.Fatal(err)
				}
			}
			if got := asks(t, "127.0.0.1", r.Addresses().REST); got != row.same {
				t.Errorf("a third connection is served: %v, want %v", got, row.same)
			}
			if got := asks(t, "127.0.0.2", r.Addresses().REST); got != row.elsewhere {
				t.Errorf("a connection from elsewhere is served: %v, want %v", got, row.elsewhere)
			}
			if got := strings.Count(log.String(), "connections refused"); got != btoi(!row.same) {
				t.Errorf("%d lines about refused connections, want %d: %s", got, btoi(!row.same),
					&log)
			}
			_ = held[0].Close()
			for begun := time.Now(); !asks(t, "127.0.0.1", r.Addresses().REST); {
				if time.Since(begun) > time.Minute {
					t.Fatal("a connection that ended makes no room")
				}
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// safeLog collects a log.
type safeLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *safeLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestNetwork checks what counts as one address.
func TestNetwork(t *testing.T) {
	for _, row := range [][2]string{
		{"10.1.2.3", "10.1.2.3"}, {"::ffff:10.1.2.3", "10.1.2.3"}, {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"},
	} {
		if got := server.Network(&net.TCPAddr{IP: net.ParseIP(row[0])}); got.String() != row[1] {
			t.Errorf("network(%s) = %s, want %s", row[0], got, row[1])
		}
	}
	if got := server.Network(&net.UnixAddr{Name: "@"}); got.IsValid() {
		t.Errorf("network of a Unix domain socket = %s, want none", got)
	}
}

// TestSetMaxConnections changes the limits while the server runs.
func TestSetMaxConnections(t *testing.T) {
	r := newRig(t, func(*server.Config) {})
	r.start(t)
	defer r.stop(t)
	defer close(r.finish)
	c, err := net.Dial("tcp", r.Addresses().GRPC)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, 9)); err != nil { // its settings: it is accepted
		t.Fatal(err)
	}
	for _, tt := range []struct {
		most, ofOne int
		want        bool
	}{{1, 0, false}, {0, 1, false}, {0, 0, true}} {
		r.SetMaxConnections(tt.most, tt.ofOne)
		if got := asks(t, "127.0.0.1", r.Addresses().REST); got != tt.want {
			t.Errorf("%d in all, %d of one address: served %v, want %v", tt.most, tt.ofOne, got,
				tt.want)
		}
	}
}

// TestAcceptIsPaced checks that a flood of connections is accepted over some time, and that a
// connection that comes alone does not wait.
func TestAcceptIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		p := pipeListener{make(chan net.Conn, n), make(chan struct{})}
		l := server.Watched(p)
		defer func() { _ = l.Close() }()
		accept := func(n int) time.Duration {
			begun := time.Now()
			for range n {
				near, far := net.Pipe()
				defer func() { _ = far.Close() }()
				p.conns <- near
				c, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
			}
			return time.Since(begun)
		}
		if took := accept(1); took != 0 {
			t.Errorf("the first connection waits %v", took)
		}
		if took := accept(n); took < 90*time.Millisecond || took > 110*time.Millisecond {
			t.Errorf("%d connections at once are accepted within %v, want 100 ms", n, took)
		}
		time.Sleep(time.Second) //nolint:forbidigo // time is fake here
		if took := accept(1); took != 0 {
			t.Errorf("a connection waits %v after the flood", took)
		}
	})
}

// TestAcceptInTurns checks that a connection does not wait for those of another address, which
// opens more than are accepted.
func TestAcceptInTurns(t *testing.T) {
	const rounds, every, each = 30, 20 * time.Millisecond, 140
	quiet, hostile := net.IPv4(192, 0, 2, 1), net.IPv4(192, 0, 2, 2)
	synctest.Test(t, func(t *testing.T) {
		p := pipeListener{make(chan net.Conn, rounds*(each+1)), make(chan struct{})}
		l := server.Watched(p)
		begun := time.Now()
		var far []net.Conn
		open := func(from net.IP, round int) {
			near, end := net.Pipe()
			far = append(far, end)
			p.conns <- connFrom{near, &net.TCPAddr{IP: from, Port: round}}
		}
		var waits []time.Duration // of the quiet address
		others, served := 0, make(chan struct{})
		go func() {
			defer close(served)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				from := c.RemoteAddr().(interface{ AddrPort() netip.AddrPort }).AddrPort()
				if quiet.Equal(from.Addr().AsSlice()) {
					waits = append(waits, time.Since(begun)-time.Duration(from.Port())*every)
				} else {
					others++
				}
				_ = c.Close()
			}
		}()
		for round := range rounds {
			for range each { // calls that are given up, each with its connection
				open(hostile, round)
			}
			open(quiet, round)
			time.Sleep(every) //nolint:forbidigo // time is fake here
		}
		_ = l.Close()
		<-served
		if n := len(waits); n != rounds || slices.Max(waits) > every/2 {
			t.Errorf("%d of %d connections are accepted, after at most %v", n, rounds,
				slices.Max(waits))
		}
		if want := rounds * 70; others < want {
			t.Errorf("%d connections of the other address are accepted, want %d", others, want)
		}
		for _, c := range far { // also those that wait
			_ = c.SetDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatalf("a connection is left open: %v", err)
			}
		}
	})
}

// connFrom is a connection of a client at an address.
type connFrom struct {
	net.Conn
	from *net.TCPAddr
}

func (c connFrom) RemoteAddr() net.Addr { return c.from }

// TestPieces checks that the beginning of a connection is read in small pieces, as is one of an
// address whose calls were of no use, and the rest whole.
func TestPieces(t *testing.T) {
	g := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
	p := pipeListener{make(chan net.Conn, 1), make(chan struct{})}
	l := server.Guarded(p, g)
	defer func() { _ = l.Close() }()
	near, far := net.Pipe()
	p.conns <- near
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = far.Write(make([]byte, 20<<10))
		_ = far.Close()
	}()
	var sizes []int
	b := make([]byte, 8<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			break
		}
		if sizes = append(sizes, n); len(sizes) == 9 {
			for range 5 {
				wasteful, _ := g.Enter(netip.AddrFrom4([4]byte{192, 0, 2, 1}), func() {})
				for range 1000 {
					wasteful.Waste()
				}
			}
		}
	}
	<-sent
	want := append(slices.Repeat([]int{512}, 8), 8<<10)
	want = append(want, slices.Repeat([]int{512}, 16)...)
	if !slices.Equal(sizes, want) {
		t.Errorf("read %v, want %v", sizes, want)
	}
}
