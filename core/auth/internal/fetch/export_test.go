package fetch

import (
	"context"
	"net"
	"testing"
)

var Network = network

// SetDial replaces what opens connections until the end of the test.
func SetDial(t *testing.T, to func(ctx context.Context, network, addr string) (net.Conn, error)) {
	before := dial
	dial = to
	t.Cleanup(func() { dial = before })
}
