package haproxy_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/haproxy"
)

// named is a server that says its name and ends the connection.
func named(t *testing.T, name string) (net.Listener, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(nc, name)
			nc.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l, l.Addr().String()
}

func ask(t *testing.T, address string) string {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRoundRobin(t *testing.T) {
	first, a := named(t, "a")
	_, b := named(t, "b")
	balancer := haproxy.Start(t, a, b)
	said := map[string]int{}
	for range 10 {
		said[ask(t, balancer.Address)]++
	}
	if said["a"] != 5 || said["b"] != 5 {
		t.Errorf("of ten connections %v", said)
	}
	_ = first.Close()
	for range 4 {
		if got := ask(t, balancer.Address); got != "b" {
			t.Errorf("got %q from a service that is gone", got)
		}
	}
}
