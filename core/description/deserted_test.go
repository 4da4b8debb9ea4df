package description_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
)

// TestDeserted checks that the reason is known if no server is left (SDAM-037).
func TestDeserted(t *testing.T) {
	seeds := func(all ...address.Address) []address.Address { return all }
	for name, test := range map[string]struct {
		settings description.Settings
		checks   []*description.Server
		want     string
	}{
		"no seeds": {want: "no servers are configured"},
		"another set": {
			description.Settings{Seeds: seeds("a:27017"), SetName: "mine"},
			[]*description.Server{newServer(t, description.ServerRSSecondary, "a:27017")},
			`no server is left: a:27017 is a member of replica set "rs", not of "mine"`,
		},
		"another set's primary": {
			description.Settings{Seeds: seeds("a:27017"), SetName: "mine"},
			[]*description.Server{newServer(t, description.ServerRSPrimary, "a:27017")},
			`no server is left: a:27017 is a member of replica set "rs", not of "mine"`,
		},
		"no replica set": {
			description.Settings{Seeds: seeds("a:27017"), SetName: "mine"},
			[]*description.Server{newServer(t, description.ServerStandalone, "a:27017")},
			"no server is left: a:27017 is of kind Standalone, which does not belong to a deployment of kind ReplicaSetNoPrimary",
		},
		"several standalone servers": {
			description.Settings{Seeds: seeds("a:27017", "b:27017")},
			[]*description.Server{newServer(t, description.ServerStandalone, "a:27017"), newServer(t, description.ServerStandalone, "b:27017")},
			"no server is left: b:27017 is a standalone server, but 2 servers are configured",
		},
		"a member without members": {
			description.Settings{Seeds: seeds("a:27017"), SetName: "rs"},
			[]*description.Server{hello(t, "a:27017", `{"ok": 1, "secondary": true, "setName": "rs", "me": "b", "maxWireVersion": 21}`)},
			"no server is left: a:27017 calls itself b:27017",
		},
		"a primary without members": {
			description.Settings{Seeds: seeds("a:27017"), SetName: "rs"},
			[]*description.Server{hello(t, "a:27017", `{"ok": 1, "isWritablePrimary": true, "setName": "rs", "maxWireVersion": 21}`)},
			"no server is left: a:27017 is not in the member list of the primary a:27017",
		},
	} {
		topo, err := description.New(test.settings)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range test.checks {
			if err := topo.Deserted(); err != nil {
				t.Errorf("%s: Deserted = %v too early", name, err)
			}
			topo = topo.Apply(s)
		}
		if err := topo.Deserted(); err == nil || err.Error() != test.want {
			t.Errorf("%s: Deserted = %v, want %s", name, err, test.want)
		}
	}
}
