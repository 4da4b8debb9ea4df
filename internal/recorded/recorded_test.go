package recorded_test

import (
	"encoding/json"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo/wire"
	"github.com/mooringdb/mooring/internal/recorded"
)

// TestExchanges checks the files themselves: every exchange is whole, and its reply answers its
// request.
func TestExchanges(t *testing.T) {
	servers := map[string]int{}
	for _, e := range recorded.Exchanges(t) {
		servers[e.Server]++
		request, reply := wire.Message(e.Request), wire.Message(e.Reply)
		for what, m := range map[string]wire.Message{"request": request, "reply": reply} {
			if len(m) < wire.HeaderSize || m.Header().Length != uint32(len(m)) {
				t.Errorf("%s, %s: the %s is not one message", e.Server, e.Name, what)
			}
		}
		if !t.Failed() && reply.Header().ResponseTo != request.Header().ID {
			t.Errorf("%s, %s: the reply answers another request", e.Server, e.Name)
		}
		if !json.Valid([]byte(e.JSON)) {
			t.Errorf("%s, %s: json is %q", e.Server, e.Name, e.JSON)
		}
	}
	if len(servers) < 2 {
		t.Errorf("exchanges of %v, want two servers", servers)
	}
}
