package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

const (
	// idleBudget is what a connection costs that has served a findOne and waits for the next one.
	idleBudget = 24 << 10
	// quietTime is how long after a burst the memory has to fall back.
	quietTime = time.Minute
	// left is what a burst may leave of a new process's memory, in percent. The runtime keeps what
	// it needs to describe a heap of the largest size that it has had.
	left = 130
)

// TestIdleConnections opens connections that find one document each, and looks at what they cost
// while they are idle, and at what the gateway still holds a minute after they have been closed.
// LAB_CONNECTIONS is their number.
func TestIdleConnections(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel here does not tell a process's memory")
	}
	count := 1000
	if text := os.Getenv("LAB_CONNECTIONS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("LAB_CONNECTIONS: %v", err)
		}
		count = n
	}
	g := suite.Start(t, startCanned(t).URI(),
		"--connections-max", "none", "--connections-max-per-address", "none")
	path := gatewaytest.Documents("lab", "docs_1_1024", "findOne")
	g.Post(t, path, `{}`)
	before := resident(t, g)

	conns := make([]net.Conn, count)
	var open errgroup.Group
	open.SetLimit(64)
	for i := range conns {
		open.Go(func() (err error) {
			conns[i], err = findOnce(strings.TrimPrefix(g.REST, "http://"), path)
			return err
		})
	}
	err := open.Wait()
	t.Cleanup(func() { closeAll(conns) })
	if err != nil {
		t.Fatal(err)
	}
	peak := resident(t, g)
	// What the calls themselves left is not part of what a connection costs.
	idle := least(t, g, quietTime, before+int64(count)*idleBudget)
	each := (idle - before) / int64(count)
	t.Logf("%d connections: %.1f MiB before, %.1f after their calls, %.1f idle: %.1f KiB each",
		count, mib(before), mib(peak), mib(idle), float64(each)/(1<<10))
	if each > idleBudget {
		t.Errorf("%d bytes an idle connection, want at most %d", each, idleBudget)
	}

	closeAll(conns)
	after := least(t, g, quietTime, before*left/100)
	t.Logf("%.1f MiB after they were closed: %.2f times before", mib(after),
		float64(after)/float64(before))
	if after > before*left/100 {
		t.Errorf("%.1f MiB a minute after the burst, want at most %d %% of %.1f",
			mib(after), left, mib(before))
	}
}

// least returns the gateway's resident memory as soon as it is at most enough, or when the time is
// over.
func least(t *testing.T, g *gatewaytest.Gateway, within time.Duration, enough int64) int64 {
	t.Helper()
	for end := time.Now().Add(within); ; pause(t, time.Second) {
		now := resident(t, g)
		if now <= enough || time.Now().After(end) {
			return now
		}
	}
}

func resident(t *testing.T, g *gatewaytest.Gateway) int64 {
	t.Helper()
	n, err := proc.RSS(g.Pid())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// findOnce opens a connection, and finds one document over it.
func findOnce(address, path string) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", path)
	if err != nil {
		return conn, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return conn, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return conn, fmt.Errorf("status %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return conn, err
}

func closeAll(conns []net.Conn) {
	for i, c := range conns {
		if c != nil {
			c.Close()
			conns[i] = nil
		}
	}
}
