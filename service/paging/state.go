package paging

import (
	"encoding/binary"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
)

// AppendState appends a cursor's state in the form in which replicas hand it over.
func AppendState(b []byte, s *cursor.State) []byte {
	b = appendText(b, string(s.Server))
	b = binary.AppendVarint(b, s.ID)
	b = appendText(b, s.Database)
	b = appendText(b, s.Collection)
	b = binary.AppendVarint(b, int64(s.BatchSize))
	b = binary.AppendVarint(b, s.Remaining)
	b = appendOptional(b, s.MaxAwaitTimeMS)
	b = append(b, byte(s.Comment.Type))
	b = appendText(b, string(s.Comment.Data))
	if s.Session != (bson.UUID{}) {
		b = append(b, s.Session[:]...)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendOptional(b []byte, v *int64) []byte {
	if v == nil {
		return append(b, 0)
	}
	return binary.AppendVarint(append(b, 1), *v)
}

// DecodeState reads what AppendState has written. The state keeps no part of b.
func DecodeState(b []byte) (cursor.State, error) {
	r := reader{b: b}
	s := r.state()
	if len(r.b) > 0 {
		s.Session = r.session()
	}
	if r.bad || len(r.b) > 0 {
		return cursor.State{}, errClaim
	}
	return s, nil
}

// reader takes values off the front of b; bad says that there was too little, and stays.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) state() (s cursor.State) {
	s.Server = address.Address(r.text())
	s.ID = r.varint()
	s.Database = r.text()
	s.Collection = r.text()
	s.BatchSize = int32(r.varint())
	s.Remaining = r.varint()
	if r.byte() == 1 {
		v := r.varint()
		s.MaxAwaitTimeMS = &v
	}
	if typ, data := r.byte(), r.text(); typ != 0 {
		s.Comment = bson.Value{Type: bson.Type(typ), Data: []byte(data)}
	}
	return s
}

// session reads an id, which is not zero.
func (r *reader) session() (id bson.UUID) {
	copy(id[:], r.take(len(id)))
	if id == (bson.UUID{}) {
		r.bad = true
	}
	return id
}

func (r *reader) byte() byte {
	if head := r.take(1); head != nil {
		return head[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	return string(r.take(int(n)))
}
