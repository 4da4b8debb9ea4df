package fakemongo_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// TestPrepared has a command answered by bytes, with a large text in the middle of them.
func TestPrepared(t *testing.T) {
	large := bson.NewBuilder(nil).String("pad", string(make([]byte, 1<<20))).Finish()
	whole := bson.NewBuilder(nil).Document("d", large).Int32("ok", 1).Finish()
	at := bytes.Index(whole, large)
	s, err := fakemongo.ListenPrepared(filepath.Join(t.TempDir(), "s.sock"),
		func(dst []byte, m wire.Message, in *fakemongo.Inserted) ([]byte, error) {
			if _, body, err := m.Query(); err == nil && body.Has("refused") {
				return nil, errors.New("refused")
			}
			dst = append(dst, whole[:at]...)
			in.Insert(len(dst), large)
			if in.Size() != len(large) {
				t.Errorf("Size() = %d, want %d", in.Size(), len(large))
			}
			return append(dst, whole[at+len(large):]...), nil
		})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nc, err := net.Dial("unix", string(s.Address()))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	named := func(name string) bson.Raw { return bson.NewBuilder(nil).Int32(name, 1).Finish() }
	quiet := wire.Msg(wire.Header{ID: 1}, wire.MoreToCome, named("quiet"), nil)
	if _, err := nc.Write(quiet); err != nil {
		t.Fatal(err)
	}
	for _, request := range []wire.Message{
		wire.Msg(wire.Header{ID: 8}, 0, named("ping"), nil), wire.Query(8, named("hello")),
	} {
		reply, err := wire.RoundTrip(nc, request)
		if err != nil || reply.Header().ResponseTo != 8 {
			t.Fatalf("RoundTrip() = %d bytes, %v", len(reply), err)
		}
		if doc, err := reply.Document(); err != nil || !bytes.Equal(doc, whole) {
			t.Errorf("the reply has %d bytes, want %d (%v)", len(doc), len(whole), err)
		}
	}
	if n := s.AcceptedConnections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	if _, err := wire.RoundTrip(nc, wire.Query(9, named("refused"))); !errors.Is(err, io.EOF) {
		t.Errorf("behind an error: %v, want the end of the connection", err)
	}
}
