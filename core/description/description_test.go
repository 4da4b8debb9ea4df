package description_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
)

func doc(t testing.TB, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatalf("%s: %v", json, err)
	}
	return d
}

func hello(t testing.TB, addr address.Address, json string) *description.Server {
	t.Helper()
	s := description.NewServer(addr, doc(t, json), 0)
	return &s
}

// hellos are what servers of each kind say.
var hellos = map[description.ServerKind]string{
	description.ServerStandalone:  `{"ok": 1, "isWritablePrimary": true, "maxWireVersion": 21}`,
	description.ServerMongos:      `{"ok": 1, "isWritablePrimary": true, "maxWireVersion": 21, "msg": "isdbgrid"}`,
	description.ServerRSPrimary:   `{"ok": 1, "isWritablePrimary": true, "maxWireVersion": 21, "setName": "rs", "hosts": ["a", "b", "p"]}`,
	description.ServerRSSecondary: `{"ok": 1, "secondary": true, "maxWireVersion": 21, "setName": "rs", "hosts": ["a", "b", "p", "new"]}`,
	description.ServerRSArbiter:   `{"ok": 1, "arbiterOnly": true, "maxWireVersion": 21, "setName": "rs", "hosts": ["b", "p"], "arbiters": ["a"]}`,
	description.ServerRSOther:     `{"ok": 1, "hidden": true, "secondary": true, "maxWireVersion": 21, "setName": "rs", "hosts": ["b", "p"]}`,
	description.ServerRSGhost:     `{"ok": 1, "isreplicaset": true, "maxWireVersion": 21, "hosts": ["x"], "setName": "other"}`,
}

func newServer(
	t testing.TB, kind description.ServerKind, addr address.Address,
) *description.Server {
	t.Helper()
	if kind == description.ServerUnknown {
		return description.Unknown(addr, io.EOF)
	}
	s := hello(t, addr, hellos[kind])
	if s.Kind != kind {
		t.Fatalf("%s is a %v, want %v", hellos[kind], s.Kind, kind)
	}
	return s
}

// TestTransitions has every entry of the specification's TopologyType table: a topology of that
// kind, with a and b in it (and p, its primary), hears from a.
func TestTransitions(t *testing.T) {
	const (
		unknown, sharded = description.KindUnknown, description.KindSharded
		noPrimary        = description.KindReplicaSetNoPrimary
		withPrimary      = description.KindReplicaSetWithPrimary
	)
	tests := []struct {
		from description.Kind
		says description.ServerKind
		to   description.Kind
		then string // the addresses afterwards
	}{
		{unknown, description.ServerUnknown, unknown, "a b"},
		{unknown, description.ServerStandalone, unknown, "b"},
		{unknown, description.ServerMongos, sharded, "a b"},
		{unknown, description.ServerRSPrimary, withPrimary, "a b p"},
		{unknown, description.ServerRSSecondary, noPrimary, "a b new p"},
		{unknown, description.ServerRSArbiter, noPrimary, "a b p"},
		{unknown, description.ServerRSOther, noPrimary, "a b p"},
		{unknown, description.ServerRSGhost, unknown, "a b"},

		{sharded, description.ServerUnknown, sharded, "a b"},
		{sharded, description.ServerStandalone, sharded, "b"},
		{sharded, description.ServerMongos, sharded, "a b"},
		{sharded, description.ServerRSPrimary, sharded, "b"},
		{sharded, description.ServerRSSecondary, sharded, "b"},
		{sharded, description.ServerRSArbiter, sharded, "b"},
		{sharded, description.ServerRSOther, sharded, "b"},
		{sharded, description.ServerRSGhost, sharded, "b"},

		{noPrimary, description.ServerUnknown, noPrimary, "a b"},
		{noPrimary, description.ServerStandalone, noPrimary, "b"},
		{noPrimary, description.ServerMongos, noPrimary, "b"},
		{noPrimary, description.ServerRSPrimary, withPrimary, "a b p"},
		{noPrimary, description.ServerRSSecondary, noPrimary, "a b new p"},
		{noPrimary, description.ServerRSArbiter, noPrimary, "a b p"},
		{noPrimary, description.ServerRSOther, noPrimary, "a b p"},
		{noPrimary, description.ServerRSGhost, noPrimary, "a b"},

		{withPrimary, description.ServerUnknown, withPrimary, "a b p"},
		{withPrimary, description.ServerStandalone, withPrimary, "b p"},
		{withPrimary, description.ServerMongos, withPrimary, "b p"},
		{withPrimary, description.ServerRSPrimary, withPrimary, "a b p"},
		{withPrimary, description.ServerRSSecondary, withPrimary, "a b p"},
		{withPrimary, description.ServerRSArbiter, withPrimary, "a b p"},
		{withPrimary, description.ServerRSOther, withPrimary, "a b p"},
		{withPrimary, description.ServerRSGhost, withPrimary, "a b p"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%v hears from %v", tt.from, tt.says), func(t *testing.T) {
			before := ofKind(t, tt.from)
			servers := slices.Clone(before.Servers)
			after := before.Apply(newServer(t, tt.says, "a:27017"))
			if got := hosts(after); after.Kind != tt.to || got != tt.then {
				t.Errorf("%v with %s, want %v with %s", after.Kind, got, tt.to, tt.then)
			}
			if !slices.Equal(before.Servers, servers) {
				t.Error("Apply changed the topology that it was called on")
			}
		})
	}
}

// TestThePrimaryItself checks what each kind of server does when it comes from the address of the
// primary so far.
func TestThePrimaryItself(t *testing.T) {
	for says, then := range map[description.ServerKind]string{
		description.ServerUnknown: "a b p", description.ServerStandalone: "a b", description.ServerMongos: "a b",
		description.ServerRSSecondary: "a b p", description.ServerRSArbiter: "a b p", description.ServerRSOther: "a b p",
		description.ServerRSGhost: "a b p",
	} {
		t.Run(says.String(), func(t *testing.T) {
			after := ofKind(t, description.KindReplicaSetWithPrimary).
				Apply(newServer(t, says, "p:27017"))
			if got := hosts(after); after.Kind != description.KindReplicaSetNoPrimary ||
				got != then {
				t.Errorf("%v with %s, want ReplicaSetNoPrimary with %s", after.Kind, got, then)
			}
		})
	}
}

// ofKind is a topology of two seeds, a and b, that came to be of that kind.
func ofKind(t *testing.T, kind description.Kind) description.Topology {
	t.Helper()
	topo, err := description.New(description.Settings{
		Seeds: []address.Address{"a:27017", "b:27017"},
	})
	if err != nil {
		t.Fatal(err)
	}
	switch kind {
	case description.KindSharded:
		topo = topo.Apply(newServer(t, description.ServerMongos, "b:27017"))
	case description.KindReplicaSetNoPrimary:
		topo = topo.Apply(hello(t, "b:27017",
			`{"ok": 1, "secondary": true, "maxWireVersion": 21, "setName": "rs", "hosts": ["a", "b"]}`))
	case description.KindReplicaSetWithPrimary:
		topo = topo.Apply(newServer(t, description.ServerRSPrimary, "b:27017"))
		topo = topo.Apply(newServer(t, description.ServerRSPrimary, "p:27017"))
	default: // it is of no kind yet
	}
	if topo.Kind != kind {
		t.Fatalf("the topology is %v, want %v", topo.Kind, kind)
	}
	return topo
}

func hosts(topo description.Topology) string {
	var all []string
	for _, s := range topo.Servers {
		all = append(all, s.Address.Host())
	}
	return strings.Join(all, " ")
}

func broken() error {
	return &mongoerr.NetworkError{Address: "a:27017", Op: "read", Err: io.ErrUnexpectedEOF}
}

func TestSingleWithAnotherSetName(t *testing.T) {
	topo, err := description.New(description.Settings{
		Seeds: []address.Address{"a:27017"}, Direct: true, SetName: "mine",
	})
	if err != nil {
		t.Fatal(err)
	}
	for kind := range hellos {
		after := topo.Apply(newServer(t, kind, "a:27017"))
		s := after.Server("a:27017")
		if after.Kind != description.KindSingle || s.Kind != description.ServerUnknown ||
			!strings.Contains(s.LastError.Error(), `configured is "mine"`) ||
			after.IsUsable("a:27017") {
			t.Errorf("%v: %v", kind, after)
		}
	}
}

// TestSingleKeepsItsServer checks that each check replaces the one server of a direct connection
// and never removes it (SDAM-063).
func TestSingleKeepsItsServer(t *testing.T) {
	topo, err := description.New(description.Settings{
		Seeds: []address.Address{"a:27017"}, Direct: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(s *description.Server) {
		t.Helper()
		if topo = topo.Apply(s); topo.Kind != description.KindSingle || len(topo.Servers) != 1 ||
			topo.Servers[0] != s {
			t.Errorf("after %v: %v", s, topo)
		}
	}
	check(description.Unknown("a:27017", broken()))
	for kind := range hellos {
		check(newServer(t, kind, "a:27017"))
		check(description.Unknown("a:27017", broken()))
	}
}

func TestEqualLooksAtWhatCounts(t *testing.T) {
	base := `{"ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["a", "b"]%s}`
	first := hello(t, "a:27017", fmt.Sprintf(base, ""))
	for _, more := range []string{
		`, "maxWireVersion": 1`, `, "minWireVersion": 1`, `, "me": "x"`, `, "hosts": ["a"]`, `, "passives": ["x"]`, `, "arbiters": ["x"]`,
		`, "tags": {"a": "b"}`, `, "setName": "x"`, `, "setVersion": 1`, `, "electionId": {"$oid": "000000000000000000000001"}`, `, "primary": "x"`,
		`, "logicalSessionTimeoutMinutes": 1`, `, "iscryptd": true`,
		`, "topologyVersion": {"processId": {"$oid": "000000000000000000000001"}, "counter": {"$numberLong": "7"}}`,
	} {
		if s := hello(t, "a:27017", fmt.Sprintf(base, more)); first.Equal(s) || s.Equal(first) ||
			!s.Equal(s) {
			t.Errorf("Equal does not see %s", more)
		}
	}
	same := hello(t, "a:27017",
		`{"ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["B", "A"], "lastWrite": {"lastWriteDate": {"$date": "2026-01-02T03:04:05Z"}}}`)
	same.AverageRTT, same.MinRTT, same.LastUpdateTime = 1, 1, time.Unix(1, 0)
	if !first.Equal(same) {
		t.Error("Equal looks at times, or at the order of hosts")
	}
	unknown := description.Unknown("a:27017", errors.New("x"))
	if !unknown.Equal(description.Unknown("a:27017", errors.New("x"))) ||
		unknown.Equal(description.Unknown("a:27017", io.EOF)) {
		t.Error("Equal does not compare errors by their text")
	}
}

func TestFail(t *testing.T) {
	known := ofKind(t, description.KindReplicaSetWithPrimary)
	command := func(code int32) error { return &mongoerr.CommandError{Code: code} }
	timeout := &mongoerr.NetworkError{Address: "p:27017", Op: "read", Err: timeoutError{}}
	malformed := &mongoerr.NetworkError{
		Address: "p:27017", Op: "read",
		Err: &mongoerr.MalformedReplyError{Field: "ok", Problem: "is missing"},
	}
	type effect = description.Effect
	tests := []struct {
		name        string
		err         error
		generation  uint64 // the pool's is 1
		handshaking bool
		maxWire     int32
		unknown     bool
		want        effect
	}{
		{"network", broken(), 1, false, 21, true, effect{ClearPool: true, CancelCheck: true}},
		{"network, stale", broken(), 0, false, 21, false, effect{}},
		{"network, handshake", broken(), 1, true, 0, true, effect{ClearPool: true, CancelCheck: true}},
		{"malformed reply", malformed, 1, false, 21, false, effect{}},
		{"malformed reply, handshake", malformed, 1, true, 0, true, effect{ClearPool: true, CancelCheck: true}},
		{"timeout", timeout, 1, false, 21, false, effect{}},
		{"timeout, handshake", timeout, 1, true, 0, true, effect{ClearPool: true, CancelCheck: true}},
		{"overload, handshake", &mongoerr.OverloadError{Err: broken()}, 1, true, 0, false, effect{}},
		{"overload by timeout, handshake", &mongoerr.OverloadError{Err: timeout}, 1, true, 0, false, effect{}},
		{"overload by its own word, handshake", overloaded(91), 1, true, 0, false, effect{}},
		{"overload by its own word", overloaded(91), 1, false, 21, true, effect{CheckNow: true, ClearPool: true}},
		{"not primary", command(10107), 1, false, 21, true, effect{CheckNow: true}},
		{"not primary before 4.2", command(10107), 1, false, 7, true, effect{CheckNow: true, ClearPool: true}},
		{"not primary, handshake", command(189), 1, true, 21, true, effect{CheckNow: true, ClearPool: true, CancelCheck: true}},
		{"shutdown", command(91), 1, false, 21, true, effect{CheckNow: true, ClearPool: true}},
		{"shutdown in a write concern error", &mongoerr.WriteConcernError{Code: 91}, 1, false, 21, true, effect{CheckNow: true, ClearPool: true}},
		{"shutdown, stale", command(91), 0, false, 21, false, effect{}},
		{"authentication", command(18), 1, true, 21, true, effect{ClearPool: true, CancelCheck: true}},
		{"duplicate key", command(11000), 1, false, 21, false, effect{}},
		{"HostUnreachable, from a mongos", command(6), 1, false, 21, false, effect{}},
		{"cancelled", &mongoerr.NetworkError{Err: context.Canceled}, 1, false, 21, false, effect{}},
		{"cancelled, handshake", &mongoerr.NetworkError{Err: context.Canceled}, 1, true, 21, false, effect{}},
		{"nothing known of it", errors.New("?"), 1, false, 21, false, effect{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after, got := known.Fail(description.Failure{
				Address: "p:27017", Err: tt.err, Generation: tt.generation, PoolGeneration: 1,
				Handshaking: tt.handshaking, MaxWireVersion: tt.maxWire,
			})
			if s := after.Server("p:27017"); (s.Kind == description.ServerUnknown) != tt.unknown ||
				got != tt.want {
				t.Errorf("Fail: %v, effect %+v; want unknown %v, %+v", s, got, tt.unknown, tt.want)
			}
			if tt.unknown && after.Kind != description.KindReplicaSetNoPrimary {
				t.Errorf("the topology is %v without its primary", after.Kind)
			}
		})
	}
	if after, got := known.Fail(description.Failure{
		Address: "gone:1",
		Err:     broken(),
	}); got != (effect{}) || !after.Equal(known) {
		t.Error("Fail of a server that is not there changed something")
	}
}

// overloaded is a server's refusal that carries the labels itself.
func overloaded(code int32) error {
	return &mongoerr.CommandError{
		Code: code, Labels: []string{mongoerr.LabelSystemOverloaded, mongoerr.LabelRetryable},
	}
}

type timeoutError struct{}

func (timeoutError) Error() string { return "timeout" }
func (timeoutError) Timeout() bool { return true }

func TestChangesAndSideEffects(t *testing.T) {
	before := ofKind(t, description.KindReplicaSetWithPrimary)
	after := before.Apply(hello(t, "a:27017",
		`{"ok": 1, "isWritablePrimary": true, "maxWireVersion": 21, "setName": "rs", "setVersion": 1, "hosts": ["a", "p", "new"]}`))
	var got []string
	for _, c := range description.Changes(before, after) {
		got = append(got,
			fmt.Sprintf("%v → %v, %+v", kindOf(c.Previous), kindOf(c.Current),
				c.SideEffect("a:27017")))
	}
	want := []string{
		"Unknown → RSPrimary, {ClearPool:false CancelCheck:false CheckNow:false}",
		"Unknown → none, {ClearPool:false CancelCheck:false CheckNow:false}",
		"none → Unknown, {ClearPool:false CancelCheck:false CheckNow:false}",
		"RSPrimary → Unknown, {ClearPool:false CancelCheck:false CheckNow:true}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("changes:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"),
			strings.Join(want, "\n\t"))
	}
	if len(description.Changes(after, after)) != 0 {
		t.Error("a topology differs from itself")
	}
}

func kindOf(s *description.Server) string {
	if s == nil {
		return "none"
	}
	return s.Kind.String()
}

func TestSessionTimeoutIsTheLeastOfDataBearingServers(t *testing.T) {
	minutes := func(addr address.Address, role, field string) *description.Server {
		return hello(t, addr,
			`{"ok": 1, "`+role+
				`": true, "maxWireVersion": 21, "setName": "rs", "hosts": ["a", "b"]`+field+`}`)
	}
	topo := ofKind(t, description.KindReplicaSetNoPrimary)
	steps := []struct {
		s    *description.Server
		want *int64
	}{
		{minutes("a:27017", "secondary", `, "logicalSessionTimeoutMinutes": 30`), nil}, // b has none
		{minutes("b:27017", "secondary", `, "logicalSessionTimeoutMinutes": 20`), new(int64(20))},
		{minutes("b:27017", "arbiterOnly", ``), new(int64(30))},
		{minutes("a:27017", "secondary", ``), nil},
		{description.Unknown("a:27017", io.EOF), nil},
	}
	for i, step := range steps {
		topo = topo.Apply(step.s)
		got := topo.LogicalSessionTimeoutMinutes
		if (got == nil) != (step.want == nil) || got != nil && *got != *step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}

func TestRTT(t *testing.T) {
	var r description.RTT
	if r.Average() != 0 || r.Min() != 0 {
		t.Error("times without a sample")
	}
	r = r.Add(10).Add(-1)
	if r.Average() != 10 || r.Min() != 0 {
		t.Errorf("after one sample: average %d, min %d; want 10, 0", r.Average(), r.Min())
	}
	r = r.Add(5)
	if r.Average() != 9 || r.Min() != 5 {
		t.Errorf("after two samples: average %d, min %d; want 9, 5", r.Average(), r.Min())
	}
	for range 10 {
		r = r.Add(20)
	}
	if r.Min() != 20 {
		t.Errorf("min = %d, want the least of the last ten, 20", r.Min())
	}
}

func FuzzNewServer(f *testing.F) {
	for _, json := range hellos {
		f.Add([]byte(doc(f, json)))
	}
	f.Add([]byte(doc(f, `{"ok": 0, "code": 91}`)))
	f.Add([]byte(doc(f,
		`{"ok": 1, "topologyVersion": {"processId": {"$oid": "000000000000000000000001"}, "counter": 1}, "tags": {"a": "b"}}`)))
	f.Fuzz(func(t *testing.T, reply []byte) {
		s := description.NewServer("a:27017", reply, time.Millisecond)
		if (s.Kind == description.ServerUnknown) != (s.LastError != nil) {
			t.Errorf("server %v with error %v", s.Kind, s.LastError)
		}
		topo, err := description.New(description.Settings{
			Seeds: []address.Address{"a:27017"}, SetName: "rs",
		})
		if err != nil {
			t.Fatal(err)
		}
		after := topo.Apply(&s)
		if !slices.IsSortedFunc(after.Servers, func(a, b *description.Server) int {
			return strings.Compare(string(a.Address), string(b.Address))
		}) {
			t.Errorf("servers are not sorted: %v", after)
		}
		_ = after.String()
	})
}
