package handle_test

import (
	"reflect"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/handle"
)

// The same keys give the same transport keys, in their order; different ones give others, and none is a key that seals.
func TestTransportKeys(t *testing.T) {
	one, two := key(t, 1), key(t, 2)
	r := ring(t, one, two)
	keys, same := r.TransportKeys(), ring(t, two, one).TransportKeys()
	if len(keys) != 2 || !keys[0].Equal(same[1]) || !keys[1].Equal(same[0]) || keys[0].Equal(keys[1]) {
		t.Errorf("keys %v and %v", keys, same)
	}
	if err := r.Replace(key(t, 3)); err != nil {
		t.Fatal(err)
	}
	if young := r.TransportKeys(); len(young) != 1 || young[0].Equal(keys[0]) {
		t.Errorf("after a rotation: %v", young)
	}
}

// A token of an earlier layout is a token that nobody knows.
func TestEarlierLayout(t *testing.T) {
	f := newFixture(t, nil)
	token := f.open(5, 2, 0).Token
	r := ring(t, key(t, 7))
	plain, err := r.Open("anna", token)
	if err != nil {
		t.Fatal(err)
	}
	plain[0] = 1
	if _, err := f.next(r.Seal("anna", plain)); err == nil || err.Error() != handle.ErrCursorNotFound.Error() {
		t.Errorf("Next = %v", err)
	}
}

// A state is the same at the replica that it goes to.
func TestStateTravels(t *testing.T) {
	ms := int64(500)
	for _, want := range []cursor.State{
		{},
		{
			Server: "db:27017", ID: -5, Database: "shop", Collection: "orders", BatchSize: 7, Remaining: 3, MaxAwaitTimeMS: &ms,
			Comment: bson.StringValue("why"),
		},
	} {
		b := handle.AppendState(nil, &want)
		got, err := handle.DecodeState(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("DecodeState = %+v, %v, want %+v", got, err, want)
		}
		if _, err := handle.DecodeState(append(b, 0)); err == nil {
			t.Error("a byte too many is accepted")
		}
		if _, err := handle.DecodeState(b[:len(b)-1]); err == nil {
			t.Error("a byte too few is accepted")
		}
	}
}
