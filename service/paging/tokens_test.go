package paging_test

import (
	"encoding/base64"
	"errors"
	"reflect"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/paging"
)

// A token of a layout that this version does not know says so; it is never misread.
func TestUnknownLayout(t *testing.T) {
	f := newFixture(t, nil)
	token := f.open(5, 2, 0).Token
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []byte{0, 1, b[0] + 1, 255} {
		b[0] = version
		if _, err := f.next(base64.RawURLEncoding.EncodeToString(b)); !errors.Is(err,
			paging.ErrTokenVersion) {
			t.Errorf("version %d: %v, want %v", version, err, paging.ErrTokenVersion)
		}
	}
}

// A state is the same at the replica that it goes to.
func TestStateTravels(t *testing.T) {
	ms := int64(500)
	for _, want := range []cursor.State{
		{},
		{
			Server: "db:27017", ID: -5, Database: "shop", Collection: "orders", BatchSize: 7, Remaining: 3, MaxAwaitTimeMS: &ms,
			Comment: bson.StringValue("why"),
		},
		{Server: "db:27017", ID: 5, Database: "shop", Collection: "orders", Session: bson.UUID{1, 2}},
	} {
		b := paging.AppendState(nil, &want)
		got, err := paging.DecodeState(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("DecodeState = %+v, %v, want %+v", got, err, want)
		}
		if _, err := paging.DecodeState(append(b, 0)); err == nil {
			t.Error("a byte too many is accepted")
		}
		if _, err := paging.DecodeState(b[:len(b)-1]); err == nil {
			t.Error("a byte too few is accepted")
		}
	}
}
