package paging_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/seal"
)

// largest is a cursor with the longest of everything that a token has.
func largest(s *server, database, collection string) *fakeCursor {
	return &fakeCursor{s: s, pinned: true, first: &cursor.Batch{Documents: []bson.Raw{bson.NewBuilder(nil).Finish()}}, state: cursor.State{
		Server: address.Address(strings.Repeat("h", 253) + ":27017"), ID: math.MinInt64, Database: database, Collection: collection,
		BatchSize: math.MaxInt32, Remaining: math.MaxInt64, MaxAwaitTimeMS: new(int64(math.MaxInt64)),
		Comment: bson.Value{Type: bson.TypeString, Data: make([]byte, 100)}, Session: bson.UUID{1},
	}}
}

// TestEveryNamespaceFits seals tokens for the longest namespaces that MongoDB allows, with the
// longest of everything else in a token. docs/api.md promises tokens of 1 KiB.
func TestEveryNamespaceFits(t *testing.T) {
	long := paging.Namespace{Database: strings.Repeat("d", 63), Collection: strings.Repeat("c", 255-63-1)}
	short := paging.Namespace{Database: "d", Collection: strings.Repeat("c", 255-1-1)}
	var hosts []string
	for range 50 {
		hosts = append(hosts, strings.Repeat("h", 60))
	}
	f := newFixture(t, func(c *paging.Config) {
		c.Deployment, c.Replica = strings.Join(hosts, ","), strings.Repeat("r", paging.MaxReplicaBytes)
	})
	for name, row := range map[string]struct {
		opened paging.Namespace
		state  paging.Namespace
	}{
		"of a find":                    {long, long},
		"with a short database":        {short, short},
		"of a command":                 {paging.Namespace{Database: long.Database}, long},
		"of a command, short database": {paging.Namespace{Database: "d"}, short},
		"of an aggregation of the database": {
			paging.Namespace{Database: long.Database}, paging.Namespace{Database: long.Database, Collection: "$cmd.aggregate"},
		},
	} {
		for _, seq := range []uint64{1, math.MaxUint64} {
			token, err := f.r.TokenOf(largest(f.s, row.state.Database, row.state.Collection), row.opened, math.MaxInt32, seq)
			if err != nil || len(token) > seal.MaxTokenBytes {
				t.Errorf("%s, page %d: a token of %d bytes, %v; want one of at most %d", name, seq, len(token), err, seal.MaxTokenBytes)
			}
		}
	}
	// One more in the replica's address would be a way to break it: the bound is not far from what
	// there is.
	if _, err := f.start(func(c *paging.Config) { c.Replica = strings.Repeat("r", paging.MaxReplicaBytes+16) }).
		TokenOf(largest(f.s, "d", short.Collection), paging.Namespace{Database: "d"}, math.MaxInt32, math.MaxUint64); !errors.Is(err, paging.ErrTokenTooLong) {
		t.Errorf("with a replica's address that is too long: %v, want ErrTokenTooLong", err)
	}
}

// TestTokenKeepsTheState checks that a token keeps what a getMore needs, whether the server's
// namespace equals the request's or not.
func TestTokenKeepsTheState(t *testing.T) {
	for _, ns := range []paging.Namespace{{Database: "d", Collection: "c"}, {Database: "d"}, {Database: "x", Collection: "c"}, {}} {
		f := newFixture(t, nil)
		opened := largest(f.s, "d", "c")
		opened.pinned = false
		want := opened.state
		want.BatchSize = 0 // the client has chosen none
		page, err := f.r.Open(t.Context(), paging.Opening{Principal: "anna", Namespace: ns, Run: func(context.Context) (paging.Cursor, error) { return opened, nil }})
		if err != nil {
			t.Fatal(err)
		}
		var got cursor.State
		other := f.start(func(c *paging.Config) {
			c.Continue = func(s cursor.State) paging.Cursor {
				got = s
				return f.s.resume(s)
			}
		})
		_, _ = other.Next(t.Context(), paging.Asking{Principal: "anna", Token: page.Token, AllowGap: true}) // the server knows no such cursor
		if !reflect.DeepEqual(got, want) {
			t.Errorf("opened on %v: the state is %+v, want %+v", ns, got, want)
		}
	}
}

// TestOtherDeployment checks that a token is valid only for the deployment that it was made for.
func TestOtherDeployment(t *testing.T) {
	f := newFixture(t, nil)
	page := f.open(10, 2, 1)
	other := f.start(func(c *paging.Config) { c.Deployment = "another" })
	if _, err := other.Next(t.Context(), paging.Asking{Principal: "anna", Token: page.Token, AllowGap: true}); !errors.Is(err, paging.ErrCursorNotFound) {
		t.Errorf("Next = %v, want ErrCursorNotFound", err)
	}
	if paging.NewDeploymentID("a") == paging.NewDeploymentID("b") {
		t.Error("two deployments have the same id")
	}
}
