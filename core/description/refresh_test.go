package description_test

import (
	"fmt"
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
)

// TestSupportedWireVersions checks the first and the last wire version of each end.
func TestSupportedWireVersions(t *testing.T) {
	for _, tt := range []struct {
		least, most int
		compatible  bool
	}{
		{0, 6, true}, {0, 5, false}, {27, 30, true}, {28, 30, false}, {6, 6, true}, {27, 27, true},
	} {
		topo := undiscovered(t, "a:27017", "b:27017").
			Apply(withVersions(t, "a:27017", tt.least, tt.most))
		if err := topo.CompatibilityError; (err == nil) != tt.compatible {
			t.Errorf("wire versions %d to %d: %v, want compatible %v", tt.least, tt.most, err,
				tt.compatible)
		}
	}
}

// TestRescannedWithoutTheIncompatibleServer checks that what follows from the servers follows from
// those that are left.
func TestRescannedWithoutTheIncompatibleServer(t *testing.T) {
	topo := undiscovered(t, "a:27017", "b:27017").
		Apply(hello(t, "a:27017",
			`{"ok": 1, "msg": "isdbgrid", "maxWireVersion": 21, "logicalSessionTimeoutMinutes": 30}`)).
		Apply(hello(t, "b:27017",
			`{"ok": 1, "msg": "isdbgrid", "maxWireVersion": 5, "logicalSessionTimeoutMinutes": 10}`))
	if topo.CompatibilityError == nil || *topo.LogicalSessionTimeoutMinutes != 10 {
		t.Fatalf("with both: %v, sessions of %v minutes", topo.CompatibilityError,
			topo.LogicalSessionTimeoutMinutes)
	}
	topo = topo.Rescanned([]address.Address{"c:27017"}, []address.Address{"b:27017"})
	if topo.CompatibilityError != nil || *topo.LogicalSessionTimeoutMinutes != 30 {
		t.Errorf("without the one: %v, sessions of %d minutes", topo.CompatibilityError,
			*topo.LogicalSessionTimeoutMinutes)
	}
}

func undiscovered(t *testing.T, seeds ...address.Address) description.Topology {
	t.Helper()
	topo, err := description.New(description.Settings{Seeds: seeds})
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func withVersions(t *testing.T, addr address.Address, least, most int) *description.Server {
	t.Helper()
	return hello(t, addr,
		fmt.Sprintf(`{"ok": 1, "msg": "isdbgrid", "minWireVersion": %d, "maxWireVersion": %d}`,
			least, most))
}
