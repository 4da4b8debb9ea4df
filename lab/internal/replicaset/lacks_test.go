package replicaset

import (
	"math"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

func decimal() bson.Raw {
	return bson.NewBuilder(nil).
		Value("d", bson.Value{Type: bson.TypeDecimal128, Data: make([]byte, 16)}).Finish()
}

// TestLacks finds what FerretDB v1 does not have, wherever it is in a command.
func TestLacks(t *testing.T) {
	ping := bson.NewBuilder(nil).Int32("ping", 1).Finish()
	for _, c := range []struct {
		name, want string
		body       bson.Raw
		docs       []bson.Raw
	}{
		{"nothing", "", ping, nil},
		{"a sequence of nothing", "", ping, []bson.Raw{ping, ping}},
		{"in the body", "the BSON type Decimal128", decimal(), nil},
		{"deep", "the BSON type Decimal128", bson.NewBuilder(nil).OpenArray("a").Document("", decimal()).Close().Finish(), nil},
		{"in a sequence", "the BSON type Decimal128", ping, []bson.Raw{ping, decimal()}},
		{"NaN", "NaN", bson.NewBuilder(nil).Double("a", math.NaN()).Finish(), nil},
		{"two names", "", bson.NewBuilder(nil).Int32("a", 1).Int32("b", 1).Finish(), nil},
		{
			"one name", "two fields of one name", ping,
			[]bson.Raw{bson.NewBuilder(nil).OpenDocument("f").
				Int32("a", 1).Int32("a", 2).Close().Finish()},
		},
		{"MinKey", "the BSON type MinKey", bson.NewBuilder(nil).MinKey("a").Finish(), nil},
	} {
		cmd := &fakemongo.Command{
			Body: c.body, Sequences: map[string][]bson.Raw{"documents": c.docs},
		}
		if got := lacks(cmd); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAnswer has a command that the backend lacks answered here.
func TestAnswer(t *testing.T) {
	s := &Server{log: newOplog(1)}
	reply := s.answer(&fakemongo.Command{Name: "find", Database: "d", Body: decimal()}, nil).
		Document()
	if n := integer(reply, "code"); n != int64(failure.NotImplemented) ||
		timestampOf(field(reply, "operationTime")) == (timestamp{}) {
		t.Errorf("the reply is %x", reply)
	}
}

// TestOwnDatabase refuses commands on the copies.
func TestOwnDatabase(t *testing.T) {
	s := &Server{log: newOplog(1)}
	body := bson.NewBuilder(nil).String("find", "c1").Finish()
	_, err := s.run(&fakemongo.Command{Name: "find", Database: internalDatabase, Body: body})
	if !failure.Unauthorized.Is(err) {
		t.Errorf("find in %s: %v", internalDatabase, err)
	}
}

// TestTakeBack has the last of several changes fail: those before it are undone.
func TestTakeBack(t *testing.T) {
	b := &scripted{fail: 3}
	s := &Server{backend: b, log: newOplog(1)}
	doc := func(id, n int32) bson.Raw {
		return bson.NewBuilder(nil).Int32("_id", id).Int32("n", n).Finish()
	}
	ns := namespace{"d", "c"}
	err := s.applyAll([]change{
		{ns: ns, after: doc(1, 1)},
		{ns: ns, before: doc(2, 1), after: doc(2, 2)},
		{ns: ns, before: doc(3, 1)},
	})
	want := []string{"insert", "update", "delete", "update", "delete"}
	if err == nil || len(b.names) != len(want) {
		t.Fatalf("the backend got %v, %v, want %v", b.names, err, want)
	}
	for i, name := range want {
		if b.names[i] != name {
			t.Errorf("the backend got %v, want %v", b.names, want)
		}
	}
}

// scripted is a backend that refuses its n-th command.
type scripted struct {
	fail  int
	names []string
}

func (s *scripted) Run(body bson.Raw, _ map[string][]bson.Raw) (bson.Raw, error) {
	s.names = append(s.names, body.FirstKey())
	if len(s.names) == s.fail {
		return failure.Reply(failure.BadValue.Errorf("no"), false), nil
	}
	return okay(nil), nil
}
