package paging_test

import (
	"bytes"
	"testing"

	"github.com/mooringdb/mooring/service/seal"
)

func key(t testing.TB, b byte) seal.Key {
	t.Helper()
	k, err := seal.NewKey(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ring(t testing.TB, keys ...seal.Key) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
