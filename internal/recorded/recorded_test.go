package recorded_test

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/mooringdb/mooring/internal/recorded"
)

// TestExchanges checks the files themselves: every exchange is whole, and its reply answers its
// request.
func TestExchanges(t *testing.T) {
	servers := map[string]int{}
	for _, e := range recorded.Exchanges(t) {
		servers[e.Server]++
		for what, message := range map[string][]byte{"request": e.Request, "reply": e.Reply} {
			if len(message) < 16 || binary.LittleEndian.Uint32(message) != uint32(len(message)) {
				t.Errorf("%s, %s: the %s is not one message", e.Server, e.Name, what)
			}
		}
		if !t.Failed() && binary.LittleEndian.Uint32(e.Reply[8:]) != binary.LittleEndian.Uint32(e.Request[4:]) {
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
