package description_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/internal/recorded"
)

// TestRecorded reads the hellos of real servers.
func TestRecorded(t *testing.T) {
	hellos := 0
	for _, e := range recorded.Exchanges(t) {
		if name := strings.ToLower(e.Name); !strings.HasPrefix(name, "ismaster") &&
			name != "hello" {
			continue
		}
		hellos++
		reply, err := extjson.Parse(nil, []byte(e.JSON))
		if err != nil {
			t.Fatal(err)
		}
		s := description.NewServer("a:27017", reply, time.Millisecond)
		if s.Kind != description.ServerStandalone || s.LastError != nil || s.MaxWireVersion != 21 ||
			s.LogicalSessionTimeoutMinutes == nil || *s.LogicalSessionTimeoutMinutes != 30 {
			t.Errorf("%s, %s: %+v, want a standalone server of wire version 21 with sessions",
				e.Server, e.Name, s)
		}
	}
	if hellos < 6 {
		t.Errorf("%d hellos, want 3 of each server", hellos)
	}
}
