package paging_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/service/paging"
)

type fixture struct {
	t *testing.T
	s *server
	r *node
}

func newFixture(t *testing.T, change func(*paging.Config)) *fixture {
	t.Helper()
	lent := buffer.Lent()
	t.Cleanup(func() {
		if n := buffer.Lent() - lent; n != 0 {
			t.Errorf("%d buffers are lent after all", n)
		}
	})
	f := &fixture{t: t, s: newServer()}
	f.r = f.start(change)
	return f
}

// start starts a gateway on the fixture's server.
func (f *fixture) start(change func(*paging.Config)) *node {
	f.t.Helper()
	cfg := paging.Config{Keys: ring(f.t, key(f.t, 7)), Deployment: "d", Continue: f.s.resume}
	if change != nil {
		change(&cfg)
	}
	r := &node{Pager: paging.New(cfg)}
	if err := r.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			f.t.Error(err)
		}
	})
	return r
}

func (f *fixture) open(total, batch, size int) paging.Page {
	f.t.Helper()
	page, err := f.tryOpen(total, batch, size)
	if err != nil {
		f.t.Fatal(err)
	}
	return page
}

func (f *fixture) tryOpen(total, batch, size int) (paging.Page, error) {
	return f.r.Open(f.t.Context(), paging.Opening{
		Principal: "anna", Namespace: paging.Namespace{Database: "shop", Collection: "orders"},
		Run: func(context.Context, int32) (paging.Cursor, error) {
			return f.s.find(total, batch, size), nil
		},
	})
}

func (f *fixture) next(token string) (paging.Page, error) {
	return f.r.Next(f.t.Context(), paging.Asking{Principal: "anna", Token: token})
}

func (f *fixture) mustNext(token string) paging.Page {
	f.t.Helper()
	page, err := f.next(token)
	if err != nil {
		f.t.Fatal(err)
	}
	return page
}

func numbers(page paging.Page) string {
	var b strings.Builder
	for _, doc := range page.Documents {
		v, _ := doc.Lookup("i")
		n, _ := v.Int32()
		fmt.Fprintf(&b, "%d ", n)
	}
	return strings.TrimSpace(b.String())
}

func same(a, b paging.Page) bool {
	if a.Token != b.Token || len(a.Documents) != len(b.Documents) {
		return false
	}
	for i := range a.Documents {
		if !bytes.Equal(a.Documents[i], b.Documents[i]) {
			return false
		}
	}
	return true
}

// r1 asks for the next page with a batch size.
func (f *fixture) r1(token string, n int32) paging.Page {
	f.t.Helper()
	page, err := f.r.Next(f.t.Context(),
		paging.Asking{Principal: "anna", Token: token, BatchSize: &n})
	if err != nil {
		f.t.Fatal(err)
	}
	return page
}
