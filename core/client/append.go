package client

import "github.com/mooringdb/mooring/core/bson"

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

func isTrue(v *bool) bool { return v != nil && *v }
