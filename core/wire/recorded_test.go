package wire_test

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/recorded"
)

// TestRecorded reads what went to real servers and came from them: each message is read whole,
// parsed, and the same bytes again when it is appended; the document of a reply is valid and is
// the Extended JSON that the official driver wrote.
func TestRecorded(t *testing.T) {
	for _, e := range recorded.Exchanges(t) {
		t.Run(e.Server+"/"+e.Name, func(t *testing.T) {
			for _, message := range [][]byte{e.Request, e.Reply} {
				read, err := wire.ReadFrom(bufio.NewReader(bytes.NewReader(message)), 0)
				if err != nil {
					t.Fatalf("ReadFrom = %v", err)
				}
				h, m, err := wire.Parse(read)
				if err != nil {
					t.Fatalf("Parse = %v", err)
				}
				if again := wire.Append(nil, h, m); !bytes.Equal(again, message) {
					t.Errorf("Append of what was parsed = %x, want %x", again, message)
				}
			}
			_, m, _ := wire.Parse(e.Reply)
			var doc bson.Raw
			switch m := m.(type) {
			case *wire.Msg:
				doc = m.Body
			case *wire.Reply:
				doc = m.Documents[0]
			default:
				t.Fatalf("the reply is a %T", m)
			}
			if err := doc.Validate(); err != nil {
				t.Errorf("Validate = %v", err)
			}
			if text, err := extjson.Append(nil, doc, extjson.Canonical); err != nil ||
				string(text) != e.JSON {
				t.Errorf("Extended JSON = %s, %v; want %s", text, err, e.JSON)
			}
		})
	}
}
