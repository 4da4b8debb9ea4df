package attack_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const collections = "/v1/databases/d/collections/"

var restAttacks = []attack{
	{"bodies of 64 MiB that stop", func(t *testing.T, g *target) string {
		return stopBodies(t, g, of(1000, 50), "Content-Length: 67108863\r\n\r\n{")
	}},
	{"chunked bodies that stop", func(t *testing.T, g *target) string {
		return stopBodies(t, g, of(10, 10), "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
	}},
	{"half bodies of 64 MiB", func(t *testing.T, g *target) string {
		n, size := of(12, 2), of(64<<20, 4<<20)
		var sending sync.WaitGroup
		var conns []net.Conn
		for range n {
			c := post(t, g, "orders_1/documents:insertMany", jsonBody,
				fmt.Sprintf("Content-Length: %d\r\n\r\n", size))
			defer func() { _ = c.Close() }()
			conns = append(conns, c)
			sending.Go(func() {
				piece := []byte(strings.Repeat(" ", 64<<10))
				for left := size - 1; left > 0; left -= len(piece) {
					if _, err := c.Write(piece[:min(left, len(piece))]); err != nil {
						return
					}
				}
			})
		}
		sending.Wait()
		return tally(statuses(t, conns))
	}},
	{"clients that go away", func(t *testing.T, g *target) string {
		const n = 140
		var hanging hangs
		for range n {
			hanging.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
				defer cancel()
				hanging.hang(t, ctx, g, "gone after 40 ms")
			})
		}
		hanging.Wait()
		<-time.After(seconds(10, 1))
		return tally(hanging.answers)
	}},
	{"clients that stay", func(t *testing.T, g *target) string {
		const n = 140
		var hanging hangs
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range n {
			hanging.Go(func() { hanging.hang(t, ctx, g, "waits") })
		}
		<-time.After(seconds(10, 7))
		cancel()
		hanging.Wait()
		return tally(hanging.answers)
	}},
	{"REST streams not read", func(t *testing.T, g *target) string {
		n := of(60, 8)
		var conns []net.Conn
		for range n {
			c := post(t, g, "docs_100_15500000/documents:streamFind", jsonBody,
				"Accept: application/x-ndjson\r\nContent-Length: 2\r\n\r\n{}")
			defer func() { _ = c.Close() }()
			conns = append(conns, c)
		}
		<-time.After(seconds(25, 10))
		return tally(soon(conns))
	}},
	{"100 finds of 3 MiB", func(t *testing.T, g *target) string {
		return flood(t, g, of(100, 10), "docs_3000_1024")
	}},
	{"32 finds of control characters", func(t *testing.T, g *target) string {
		return flood(t, g, of(32, 4), "control_3000_1024")
	}},
	{"insertMany of 1,000,000 {}", func(t *testing.T, g *target) string {
		n := of(1_000_000, 100_001)
		body := `{"documents": [{}` + strings.Repeat(`,{}`, n-1) + `]}`
		answers := map[int]int{}
		for range of(20, 1) {
			resp, err := g.http.Post(g.REST+collections+"orders_1/documents:insertMany",
				"application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			answers[resp.StatusCode]++
		}
		if answers[http.StatusRequestEntityTooLarge] == 0 || len(answers) > 1 {
			t.Errorf("by status: %v, want 413 only", answers)
		}
		return tally(answers)
	}},
	{"insertMany of 100,000 {}", func(t *testing.T, g *target) string {
		// The most that a request may have, several at once.
		n, answers := of(100_000, 20_000), map[int]int{}
		body := `{"documents": [{}` + strings.Repeat(`,{}`, n-1) + `]}`
		var mu sync.Mutex
		together(of(10, 2), of(8, 0), func() {
			resp, err := g.http.Post(g.REST+collections+"orders_1/documents:insertMany",
				"application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			answers[resp.StatusCode]++
		})
		return tally(answers)
	}},
}

// together runs work n times at once, again and again for so many seconds, at least once.
func together(n, seconds int, work func()) {
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			work()
			for time.Now().Before(until) {
				work()
			}
		})
	}
	all.Wait()
}

// post begins a request, with the end of its header and the beginning of its body.
func post(t *testing.T, g *target, path, content, rest string) net.Conn {
	t.Helper()
	c, err := connect(t, g.REST)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "POST "+collections+path+" HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: "+content+"\r\n"+rest)
	return c
}

// statuses reads the beginnings of the answers, and returns how many there are of each status.
// Those of connections that the gateway has reset count as "cut".
func statuses(t *testing.T, conns []net.Conn) map[string]int {
	t.Helper()
	answers := map[string]int{}
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(patience + slack))
		head := make([]byte, len("HTTP/1.1 408"))
		if _, err := io.ReadFull(c, head); err != nil {
			answers["cut"]++
			continue
		}
		answers[strings.TrimPrefix(string(head), "HTTP/1.1 ")]++
	}
	return answers
}

func stopBodies(t *testing.T, g *target, n int, beginning string) string {
	t.Helper()
	var conns []net.Conn
	for range n {
		c := post(t, g, "orders_1/documents:find", jsonBody, beginning)
		defer func() { _ = c.Close() }()
		conns = append(conns, c)
	}
	answers := statuses(t, conns)
	if answers["408"] != n {
		t.Errorf("by status: %v, want 408 of all %d", answers, n)
	}
	return tally(answers)
}

// hangs makes calls that the server does not answer, and counts how they end.
type hangs struct {
	sync.WaitGroup
	mu      sync.Mutex // guards answers
	answers map[string]int
}

// hang makes a call until ctx ends, which counts as gone. A call that ends before that without an
// answer counts as "cut".
func (h *hangs) hang(t *testing.T, ctx context.Context, g *target, gone string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.REST+"/v1/databases/d:runCommand",
		strings.NewReader(`{"command": {"find": "slow_60000"}}`))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	end := gone
	if resp, err := g.http.Do(r); err == nil {
		_ = resp.Body.Close()
		end = strconv.Itoa(resp.StatusCode)
	} else if ctx.Err() == nil {
		end = "cut"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answers == nil {
		h.answers = map[string]int{}
	}
	h.answers[end]++
}

// flood reads all documents of a collection as one page, so many times at once.
func flood(t *testing.T, g *target, n int, collection string) string {
	t.Helper()
	var mu sync.Mutex
	answers := map[int]int{}
	together(n, of(8, 0), func() {
		resp, err := g.http.Get(g.REST + collections + collection + "/documents?batchSize=3000")
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		mu.Lock()
		defer mu.Unlock()
		answers[resp.StatusCode]++
	})
	return tally(answers)
}
