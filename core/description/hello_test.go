package description_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// TestHelloThatMakesNoSense checks that a malformed field makes the server unknown if it decides
// what the server is, which servers there are, or which wire versions the server speaks.
func TestHelloThatMakesNoSense(t *testing.T) {
	for json, field := range map[string]string{
		`{"ok": 1, "isWritablePrimary": "yes"}`:                       "isWritablePrimary",
		`{"ok": 1, "ismaster": {}}`:                                   "ismaster",
		`{"ok": 1, "secondary": "yes"}`:                               "secondary",
		`{"ok": 1, "arbiterOnly": []}`:                                "arbiterOnly",
		`{"ok": 1, "hidden": "no"}`:                                   "hidden",
		`{"ok": 1, "isreplicaset": "no"}`:                             "isreplicaset",
		`{"ok": 1, "msg": 1}`:                                         "msg",
		`{"ok": 1, "setName": 1}`:                                     "setName",
		`{"ok": 1, "hosts": "a"}`:                                     "hosts",
		`{"ok": 1, "hosts": [1]}`:                                     "hosts",
		`{"ok": 1, "hosts": ["a:port"]}`:                              "hosts",
		`{"ok": 1, "passives": {"0": "a"}}`:                           "passives",
		`{"ok": 1, "arbiters": [{}]}`:                                 "arbiters",
		`{"ok": 1, "minWireVersion": "0"}`:                            "minWireVersion",
		`{"ok": 1, "maxWireVersion": -1}`:                             "maxWireVersion",
		`{"ok": 1, "maxWireVersion": {"$numberLong": "99999999999"}}`: "maxWireVersion",
		`{"isWritablePrimary": true}`:                                 "ok",
	} {
		s := hello(t, "a:27017", json)
		e, ok := errors.AsType[*mongoerr.MalformedReplyError](s.LastError)
		if s.Kind != description.ServerUnknown || !ok || e.Field != field {
			t.Errorf("NewServer(%s) = %v, want an unknown server because of %s", json, s, field)
		}
	}
}

// TestOptionalFieldThatMakesNoSense checks that a malformed field that a server need not send
// counts as absent, with the specification's default (SDAM-045: "else null").
func TestOptionalFieldThatMakesNoSense(t *testing.T) {
	const good = `"ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["a"], "maxWireVersion": 21`
	want := fmt.Sprintf("%+v", *hello(t, "a:27017", "{"+good+"}"))
	for _, field := range []string{
		`"helloOk": "yes"`, `"iscryptd": {}`, `"me": {}`, `"me": "a:port"`, `"primary": 1`, `"primary": "a:port"`,
		`"setVersion": "1"`, `"electionId": 1`, `"serviceId": "x"`, `"connectionId": "x"`,
		`"maxBsonObjectSize": -1`, `"maxMessageSizeBytes": 0`, `"maxWriteBatchSize": "100"`,
		`"logicalSessionTimeoutMinutes": "30"`,
		`"topologyVersion": 1`, `"topologyVersion": {}`, `"topologyVersion": {"processId": {"$oid": "000000000000000000000001"}, "counter": "7"}`,
		`"lastWrite": []`, `"lastWrite": {"lastWriteDate": 1}`, `"lastWrite": {"opTime": null}`,
		`"tags": []`, `"tags": {"a": 1}`, `"passives": []`,
	} {
		if got := fmt.Sprintf("%+v", *hello(t, "a:27017", "{"+good+", "+field+"}")); got != want {
			t.Errorf("with %s:\n\t%s\nwant as without:\n\t%s", field, got, want)
		}
	}
	s := hello(t, "a:27017",
		`{`+good+
			`, "tags": {"dc": "ny", "rack": 2}, "arbiters": ["b", "c:port"], "lastWrite": {"lastWriteDate": {"$date": "2026-01-02T03:04:05Z"}, "opTime": 1}}`)
	if s.Tags.String() != "{dc: ny}" || !slices.Equal(s.Arbiters, []address.Address{"b:27017"}) ||
		s.LastWriteDate.IsZero() {
		t.Errorf("what makes sense beside it is %v, %v, %v", s.Tags, s.Arbiters, s.LastWriteDate)
	}
}

// TestOpTime checks that opTime is kept as it came, in memory of its own (SDAM-045), and that
// equality ignores it (SDAM-021).
func TestOpTime(t *testing.T) {
	const json = `{"ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["a"], "lastWrite": {"opTime":
		{"ts": {"$timestamp": {"t": 1700000000, "i": %d}}, "t": {"$numberLong": "5"}}}}`
	reply := doc(t, fmt.Sprintf(json, 3))
	s := description.NewServer("a:27017", reply, 0)
	clear(reply)
	opTime, ok := s.OpTime.Document()
	if !ok {
		t.Fatalf("opTime = %v", s.OpTime)
	}
	ts, _ := opTime.Lookup("ts")
	if seconds, i, _ := ts.Timestamp(); seconds != 1700000000 || i != 3 {
		t.Errorf("opTime.ts = %d, %d", seconds, i)
	}
	if later := description.NewServer("a:27017", doc(t, fmt.Sprintf(json, 4)),
		0); !later.Equal(&s) {
		t.Error("a newer opTime counts as a change of the server")
	}
}

func TestHelloThatIsFull(t *testing.T) {
	s := hello(t, "a:27017", `{"ok": 1, "helloOk": true, "isWritablePrimary": true, "ismaster": false, "setName": "rs", "setVersion": 3.0,
		"electionId": {"$oid": "7fffffff0000000000000001"}, "me": "A", "primary": "A:27017", "hosts": ["B", "a", "A:27017"],
		"passives": ["C:1"], "arbiters": ["[::1]"], "tags": {"z": "1", "a": "2"}, "minWireVersion": 0, "maxWireVersion": 25,
		"maxBsonObjectSize": 1000, "maxMessageSizeBytes": 2000, "maxWriteBatchSize": 3, "logicalSessionTimeoutMinutes": 30,
		"topologyVersion": {"processId": {"$oid": "000000000000000000000001"}, "counter": {"$numberLong": "7"}},
		"lastWrite": {"lastWriteDate": {"$date": "2026-01-02T03:04:05Z"}}, "connectionId": 42, "readOnly": false, "iscryptd": null}`)
	switch {
	case s.Kind != description.ServerRSPrimary, s.LastError != nil:
		t.Errorf("server = %v", s)
	case s.Me != "a:27017", s.Primary != "a:27017",
		!slices.Equal(s.Hosts, []address.Address{"a:27017", "b:27017"}),
		!slices.Equal(s.Passives, []address.Address{"c:1"}),
		!slices.Equal(s.Arbiters, []address.Address{"[::1]:27017"}):
		t.Errorf("addresses: %+v", s)
	case *s.SetVersion != 3, s.TopologyVersion.Counter != 7, *s.LogicalSessionTimeoutMinutes != 30,
		s.ConnectionID != 42:
		t.Errorf("numbers: %+v", s)
	case s.MaxBSONObjectSize != 1000, s.MaxMessageSize != 2000, s.MaxWriteBatchSize != 3:
		t.Errorf("limits: %+v", s)
	case s.Tags.String() != "{a: 2, z: 1}":
		t.Errorf("tags = %v", s.Tags)
	case !s.LastWriteDate.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)):
		t.Errorf("lastWriteDate = %v", s.LastWriteDate)
	}
}
