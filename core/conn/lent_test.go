package conn_test

import (
	"bytes"
	"testing"

	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/compress"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/internal/fakemongo"
	fakewire "github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// TestRoundTripLent checks that a reply is read into lent memory if it is neither small nor huge,
// whether it is compressed or not.
func TestRoundTripLent(t *testing.T) {
	before := buffer.Lent()
	for _, by := range []compress.ID{none, compress.Zlib} {
		s := supporting(t, "zlib")
		_, c := dialCompressing(t, conn.Config{Compressors: []string{"zlib"}}, s, always(by))
		for _, test := range []struct {
			size int
			lent bool
		}{{100, buffer.Poisoned}, {16 << 10, true}, {1 << 20, true}, {buffer.Most, false}} {
			want := large(test.size)
			s.Handle("find", fakemongo.Always(fakemongo.Document(want)))
			got, lent, err := c.RoundTripLent(t.Context(), message("find", 0))
			if err != nil || !bytes.Equal(got, want) || (lent != nil) != test.lent {
				t.Fatalf("%v, %d bytes: got %d, lent %t, %v; want lent %t", by, len(want), len(got),
					lent != nil, err, test.lent)
			}
			lent.Release()
			if buffer.Poisoned && test.lent &&
				(got[0] != buffer.Poison || got[len(got)-1] != buffer.Poison) {
				t.Error("what was released can be read")
			}
			own, err := c.RoundTrip(t.Context(), message("find", 0))
			if err != nil || !bytes.Equal(own, want) {
				t.Fatalf("RoundTrip() = %d bytes, %v", len(own), err)
			}
		}
	}
	if n := buffer.Lent() - before; n != 0 {
		t.Errorf("%d are lent after all", n)
	}
}

// TestLentReplyFails checks that memory is taken back once if a reply ends early, is malformed, or
// answers another request.
func TestLentReplyFails(t *testing.T) {
	body := large(1 << 20)
	for name, reply := range map[string]func(id int32) fakemongo.Reply{
		"ends early": func(int32) fakemongo.Reply { return fakemongo.DropInside(body, 1<<19) },
		"no body": func(id int32) fakemongo.Reply {
			h := fakewire.Header{Length: 1 << 20, ID: 1, ResponseTo: id, OpCode: fakewire.OpMsg}
			return fakemongo.Garbage(h.Append(nil, make([]byte, 1<<20-16)...))
		},
		"another's": func(id int32) fakemongo.Reply { return fakemongo.ToAnother(body, id+1) },
	} {
		t.Run(name, func(t *testing.T) {
			before := buffer.Lent()
			s := fakemongo.NewServer(t, fakemongo.Handlers{
				"find": func(c *fakemongo.Command) fakemongo.Reply { return reply(c.RequestID) },
			})
			c := dial(t, s, conn.Config{})
			_, lent, err := c.RoundTripLent(t.Context(), message("find", 0))
			if err == nil || lent != nil || c.Alive() {
				t.Errorf("RoundTripLent() = %v, lent %t, alive %t", err, lent != nil, c.Alive())
			}
			if n := buffer.Lent() - before; n != 0 {
				t.Errorf("%d are lent", n)
			}
		})
	}
}
