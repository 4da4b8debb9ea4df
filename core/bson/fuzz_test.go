package bson_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
)

// FuzzReader checks that a Reader returns the documents of the stream one by one.
func FuzzReader(f *testing.F) {
	f.Add([]byte(sample()), 0)
	f.Add(append([]byte{5, 0, 0, 0, 0}, sample()...), 5)
	f.Add([]byte{0xFF, 0xFF, 0xFF, 0x7F, 0}, 0)
	f.Fuzz(func(t *testing.T, stream []byte, limit int) {
		limit %= 1 << 20
		r := bson.NewReader(bytes.NewReader(stream), limit)
		rest := stream
		for {
			got, err := r.Next()
			if err == nil {
				if limit > 0 && len(got) > limit || !bytes.HasPrefix(rest, got) {
					t.Fatalf("Next() = %x, want what %x begins with", []byte(got), rest)
				}
				rest = rest[len(got):]
				continue
			}
			want, _, wantErr := bson.Read(rest)
			switch {
			case errors.Is(err, io.EOF) && len(rest) > 0:
				t.Fatalf("the end before %x", rest)
			case wantErr == nil &&
				!(errors.Is(err, bson.ErrTooLarge) && limit > 0 && len(want) > limit):
				t.Fatalf("Next() = %v before %x", err, []byte(want))
			}
			return
		}
	})
}

// The texts of identifiers are read back as they were.
func FuzzIdentifiers(f *testing.F) {
	for _, s := range []string{
		"56e1fc72e0c917e9c4714161", "00112233-4455-6677-8899-AABBccddeeff", "urn:uuid:00112233445566778899aabbccddeeff",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := bson.ParseObjectID(s); err == nil {
			if again, err := bson.ParseObjectID(id.Hex()); err != nil || again != id {
				t.Errorf("%q is %v, which is %v, %v", s, id, again, err)
			}
		}
		u, err := bson.ParseUUID(s)
		if err != nil {
			return
		}
		if again, err := bson.ParseUUID(u.String()); err != nil || again != u {
			t.Errorf("%q is %v, which is %v, %v", s, u, again, err)
		}
		for _, r := range []bson.UUIDRepresentation{
			bson.UUIDStandard, bson.UUIDCSharpLegacy, bson.UUIDJavaLegacy, bson.UUIDPythonLegacy,
		} {
			v, err := u.Value(r)
			if err != nil {
				t.Fatalf("Value(%v) = %v", r, err)
			}
			if again, err := v.UUID(r); err != nil || again != u {
				t.Errorf("%v as %v is %v, %v", u, r, again, err)
			}
		}
	})
}

// Any payload of subtype 9 is a vector that encodes to itself, or an error.
func FuzzVector(f *testing.F) {
	f.Add([]byte{0x03, 0, 1, 0xFF})
	f.Add([]byte{0x27, 0, 0, 0, 0xC0, 0x7F})
	f.Add([]byte{0x10, 4, 0xEE, 0xE0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		v, err := bson.BinaryValue(bson.SubtypeVector, payload).Vector()
		if err != nil {
			return
		}
		for i := range v.Len() {
			v.At(i)
		}
		again, err := v.Value()
		if err != nil || !again.Equal(bson.BinaryValue(bson.SubtypeVector, payload)) {
			t.Errorf("%x is %v, which is %x, %v", payload, v, again.Data, err)
		}
	})
}
