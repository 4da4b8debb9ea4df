package replica_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	"github.com/mooringdb/mooring/service/replica"
)

// messages are examples of what a replica reads: empty messages, and seeds.
var messages = []func() proto.Message{
	func() proto.Message { return &replicav1.Record{} },
	func() proto.Message { return &replicav1.ListRequest{} },
	func() proto.Message { return &replicav1.Info{} },
}

// FuzzConvert: a message of another replica is refused, or it is the same when it is sent again.
func FuzzConvert(f *testing.F) {
	for kind, seed := range []protoadapt.MessageV2{
		&replicav1.Record{
			Id: make([]byte, 16), Ledger: &replicav1.Ledger{Next: 1, Phase: 1},
			Holding: &replicav1.Holding{State: state(), Leftover: []byte{5, 0, 0, 0, 0}},
			Asked:   true, Client: []byte{192, 0, 2, 1},
			Undelivered: &replicav1.Page{Documents: []byte{5, 0, 0, 0, 0}, Token: "t"},
		},
		&replicav1.ListRequest{Limit: 5}, &replicav1.Info{Id: "x", Pages: 3},
	} {
		b, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(kind), b)
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		m := messages[int(kind)%len(messages)]()
		if proto.Unmarshal(b, m) != nil {
			return
		}
		once, err := replica.Convert(m)
		if err != nil {
			return
		}
		twice, err := replica.Convert(once)
		if err != nil || !proto.Equal(once, twice) {
			t.Fatalf("%v is read as %v, and that as %v, %v", m, once, twice, err)
		}
	})
}

// Messages of a newer release have fields that this release does not know, which are ignored, and
// values that it refuses.
func TestMessagesOfANewerRelease(t *testing.T) {
	known := &replicav1.Record{Id: make([]byte, 16), Ledger: &replicav1.Ledger{Next: 1, Phase: 1}}
	known.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 7}) // field 1023, a number
	if got, err := replica.Convert(known); err != nil ||
		got.(*replicav1.Record).GetLedger().GetNext() != 1 {
		t.Errorf("a record with an unknown field: %v, %v", got, err)
	}
	last := &replicav1.Record{Ledger: &replicav1.Ledger{Phase: 255}}
	if got, err := replica.Convert(last); err != nil || !proto.Equal(got, last) {
		t.Errorf("the last phase that a record can have: %v, %v", got, err)
	}
	for name, m := range map[string]proto.Message{
		"a short id":           &replicav1.Record{Ledger: &replicav1.Ledger{}, Id: make([]byte, 15)},
		"a long id":            &replicav1.Record{Ledger: &replicav1.Ledger{}, Id: make([]byte, 17)},
		"a record, no ledger":  &replicav1.Record{Id: make([]byte, 16)},
		"a phase out of range": &replicav1.Record{Ledger: &replicav1.Ledger{Phase: 256}},
		"an address of 5 bytes": &replicav1.Record{
			Ledger: &replicav1.Ledger{}, Client: make([]byte, 5),
		},
	} {
		if got, err := replica.Convert(m); err == nil {
			t.Errorf("%s is read as %v", name, got)
		}
	}
}
