package paging_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/paging"
)

// A token of a layout that this version does not know says so; it is never misread.
func TestUnknownLayout(t *testing.T) {
	f := newFixture(t, nil)
	token := f.open(5, 2, 0).Token
	r := ring(t, key(t, 7))
	plain, err := r.Open("anna", token)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []byte{0, 1, 2, 6, 255} {
		plain[0] = version
		if _, err := f.next(r.Seal("anna", plain)); !errors.Is(err, paging.ErrTokenVersion) {
			t.Errorf("version %d: %v, want %v", version, err, paging.ErrTokenVersion)
		}
	}
}

// While replicas are upgraded one after the other, some write tokens of the earlier version and
// some of the newer one. All read both, so no cursor is lost, whichever replica is asked and
// drains.
func TestMixedVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		n.node("a").Write(3)
		n.node("b").Write(3)
		var pages []paging.Page
		for range 3 {
			for _, at := range []string{"a", "b", "c"} {
				pages = append(pages, n.open(at, 40, 2, 0))
			}
		}
		want := 2
		turn := func() {
			t.Helper()
			for i := range pages {
				for _, at := range []string{"a", "b", "c"} {
					if n.node(at) == nil {
						continue
					}
					page := n.mustNext(at, pages[i].Token)
					if again := n.mustNext("c", pages[i].Token); !same(again, page) {
						t.Errorf("again at c: %s", numbers(again))
					}
					if i == 0 && numbers(page) != fmt.Sprintf("%d %d", want, want+1) {
						t.Errorf("page %s, want %d", numbers(page), want)
					}
					if i == 0 {
						want += 2
					}
					pages[i] = page
				}
			}
		}
		turn()
		n.stop("a") // and comes back with the next release
		turn()
		n.start("a", nil)
		turn()
		n.stop("b")
		turn()
		if open, _, _ := n.s.count(); open != len(pages) {
			t.Errorf("%d of %d cursors are open", open, len(pages))
		}
	})
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
