package wire

import (
	"encoding/binary"

	"github.com/mooringdb/mooring/core/bson"
)

// SecondaryOK is the OP_QUERY flag that lets a secondary answer; hello sets it.
const SecondaryOK int32 = 1 << 2

// The flags of an OP_REPLY that report an error.
const (
	CursorNotFound int32 = 1 << 0
	QueryFailure   int32 = 1 << 1
)

// Query holds an OP_QUERY. Mooring sends it only as a hello to a server that may not know OP_MSG.
type Query struct {
	Flags      int32
	Collection string // "admin.$cmd" for a command
	Skip       int32
	Return     int32
	Query      bson.Raw
	Fields     bson.Raw // nil: absent
}

// Reply holds an OP_REPLY, the answer to an OP_QUERY.
type Reply struct {
	Flags        int32
	CursorID     int64
	StartingFrom int32
	Documents    []bson.Raw
}

func (*Query) opCode() OpCode { return OpQuery }
func (*Reply) opCode() OpCode { return OpReply }

func (m *Query) appendTo(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Flags))
	dst = append(dst, m.Collection...)
	dst = append(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Skip))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Return))
	dst = append(dst, m.Query...)
	return append(dst, m.Fields...)
}

func (m *Reply) appendTo(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Flags))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.CursorID))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.StartingFrom))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.Documents)))
	for _, doc := range m.Documents {
		dst = append(dst, doc...)
	}
	return dst
}

func parseQuery(r *reader) (*Query, error) {
	m := new(Query)
	var err error
	if m.Flags, err = r.int32("flags"); err != nil {
		return nil, err
	}
	if m.Collection, err = r.cstring("collection name"); err != nil {
		return nil, err
	}
	if m.Skip, err = r.int32("numberToSkip"); err != nil {
		return nil, err
	}
	if m.Return, err = r.int32("numberToReturn"); err != nil {
		return nil, err
	}
	if m.Query, err = r.document("query"); err != nil {
		return nil, err
	}
	if r.left() > 0 {
		if m.Fields, err = r.document("returnFieldsSelector"); err != nil {
			return nil, err
		}
	}
	if r.left() > 0 {
		return nil, r.fail("bytes after the query")
	}
	return m, nil
}

func parseReply(r *reader) (*Reply, error) {
	m := new(Reply)
	var err error
	if m.Flags, err = r.int32("flags"); err != nil {
		return nil, err
	}
	if m.CursorID, err = r.int64("cursorID"); err != nil {
		return nil, err
	}
	if m.StartingFrom, err = r.int32("startingFrom"); err != nil {
		return nil, err
	}
	returned, err := r.int32("numberReturned")
	if err != nil {
		return nil, err
	}
	if m.Documents, err = r.documents("reply"); err != nil {
		return nil, err
	}
	if int64(returned) != int64(len(m.Documents)) {
		return nil, &FormatError{HeaderSize + 16, "numberReturned is not the number of documents"}
	}
	return m, nil
}
