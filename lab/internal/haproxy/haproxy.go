// Package haproxy puts Debian's haproxy in front of servers, as a process: a load balancer that
// gives each new connection, or each HTTP request, to the next server in turn.
package haproxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/proc"
)

// Balancer represents a running haproxy.
type Balancer struct {
	*proc.Process
	Address string // host:port that it listens on
}

// Start starts haproxy before servers, each host:port, and stops it at the end of the test. It
// knows TCP and nothing of what is said over it. The test is skipped where there is no haproxy.
func Start(t testing.TB, servers ...string) *Balancer {
	t.Helper()
	return start(t, configuration(servers))
}

// CheckInterval is the time between two health checks of StartHTTP.
const CheckInterval = 200 * time.Millisecond

// StartHTTP starts haproxy as a proxy for HTTP with health checks: a server gets no new request
// while GET path on it is not answered with 200. A client keeps its connection to haproxy while
// servers come and go. haproxy repeats a request only if it was refused a connection.
func StartHTTP(t testing.TB, path string, servers ...string) *Balancer {
	t.Helper()
	checks := "balance roundrobin\n\toption httpchk GET " + path +
		"\n\thttp-check expect status 200\n\ttimeout check 5s\n" + // a slow answer is one, too
		"\tdefault-server check inter " + CheckInterval.String() + " fall 1 rise 1\n"
	text := strings.Replace(configuration(servers), "balance roundrobin\n", checks, 1)
	text = strings.Replace(text, "mode tcp\n", "mode http\n\ttimeout http-request 10s\n", 1)
	return start(t, text)
}

func start(t testing.TB, text string) *Balancer {
	t.Helper()
	path := find(t)
	// The socket is made here and handed down, so that no other process can take its port.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start(proc.Config{
		Path: path, Args: []string{"-db", "-q", "-f", file}, Files: []*os.File{socket},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Drain()
	t.Cleanup(func() {
		_ = p.Stop(5 * time.Second) // haproxy's exit code for SIGTERM is not 0
		if t.Failed() {
			t.Logf("end of haproxy's log:\n%s", p.Tail())
		}
	})
	b := &Balancer{Process: p, Address: l.Addr().String()}
	b.await(t)
	return b
}

// find looks where Debian puts it, which is not on every user's path.
func find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"haproxy", "/usr/sbin/haproxy"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("haproxy is not installed (apt-get install haproxy)")
	return ""
}

// configuration leaves out health checks: a server that refuses a connection is passed over for
// the next one, and none is ever taken for dead, so that nothing but the turn decides where a
// connection goes.
func configuration(servers []string) string {
	var b strings.Builder
	b.WriteString(`
global
	maxconn 4000
	nbthread 1
defaults
	mode tcp
	balance roundrobin
	retries 3
	option redispatch 1
	timeout connect 2s
	timeout client 1h
	timeout server 1h
listen services
	bind fd@3
`)
	for i, s := range servers {
		fmt.Fprintf(&b, "\tserver service%d %s\n", i, s)
	}
	return b.String()
}

// await waits until haproxy takes connections from the socket.
func (b *Balancer) await(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		nc, err := net.DialTimeout("tcp", b.Address, time.Second)
		if err == nil {
			// A socket without a process behind it takes connections as well. One that is closed
			// from here, and then by the other side, was seen by haproxy.
			_ = nc.SetDeadline(time.Now().Add(time.Second))
			_ = nc.(*net.TCPConn).CloseWrite()
			_, err = nc.Read(make([]byte, 1))
			_ = nc.Close()
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				return
			}
		}
		select {
		case <-b.Done():
			t.Fatalf("haproxy ended: %s", b.Tail())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("haproxy does not answer: %v\n%s", err, b.Tail())
		}
	}
}
