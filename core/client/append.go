package client

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
)

// appendTo appends RawData, if the server knows it, and Extra: the end of every command but those
// that a user wrote.
func (o *Common) appendTo(b *bson.Builder, to operation.Target) {
	if to.Hello.MaxWireVersion >= wireVersion82 {
		appendBool(b, "rawData", o.RawData)
	}
	b.AppendElements(o.Extra)
}

// Options that are unset append nothing.

func appendDocument(b *bson.Builder, key string, v bson.Raw) {
	if v != nil {
		b.Document(key, v)
	}
}

func appendArray(b *bson.Builder, key string, v bson.Array) {
	if v != nil {
		b.Array(key, v)
	}
}

func appendValue(b *bson.Builder, key string, v bson.Value) {
	if !v.IsZero() {
		b.Value(key, v)
	}
}

func appendBool(b *bson.Builder, key string, v *bool) {
	if v != nil {
		b.Bool(key, *v)
	}
}

func appendInt64(b *bson.Builder, key string, v *int64) {
	if v != nil {
		b.Int64(key, *v)
	}
}

func appendInt32(b *bson.Builder, key string, v *int32) {
	if v != nil {
		b.Int32(key, *v)
	}
}

func appendDouble(b *bson.Builder, key string, v *float64) {
	if v != nil {
		b.Double(key, *v)
	}
}

// appendString appends a text, unless it is empty.
func appendString(b *bson.Builder, key, v string) {
	if v != "" {
		b.String(key, v)
	}
}

func isTrue(v *bool) bool { return v != nil && *v }
