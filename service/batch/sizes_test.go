package batch_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/batch"
)

// TestSizes checks that what is learned belongs to a source, and that a batch without documents
// teaches nothing.
func TestSizes(t *testing.T) {
	s := batch.NewSizes()
	orders := batch.Source{Database: "shop", Collection: "orders"}
	for _, seen := range []struct {
		of               batch.Source
		documents, bytes int
	}{
		{orders, 4, 400},
		{batch.Source{Database: "shop", Collection: "orders", Pipeline: true}, 1, 7},
		{orders, 0, 0},
		{batch.Source{}, 1, 1000},
	} {
		s.Saw(seen.of, seen.documents, seen.bytes)
	}
	for _, want := range []struct {
		of   batch.Source
		mean int
	}{
		{orders, 100},
		{batch.Source{Database: "shop", Collection: "orders", Pipeline: true}, 7},
		{batch.Source{Database: "shop"}, 0},
		{batch.Source{}, 0},
	} {
		if got := s.Mean(want.of); got != want.mean {
			t.Errorf("Mean(%+v) = %d, want %d", want.of, got, want.mean)
		}
	}
	s.Saw(orders, 1, 60) // smaller ones count slowly
	if got := s.Mean(orders); got != 90 {
		t.Errorf("Mean = %d after smaller documents, want 90", got)
	}
}

// TestSourcesAreBounded checks that sources are forgotten when there are too many, and that nothing
// is kept of one with a long name, which a client may choose.
func TestSourcesAreBounded(t *testing.T) {
	s := batch.NewSizes()
	for i := range 30_000 {
		s.Saw(batch.Source{Database: "d", Collection: strconv.Itoa(i)}, 1, 100)
	}
	known := 0
	for i := range 30_000 {
		if s.Mean(batch.Source{Database: "d", Collection: strconv.Itoa(i)}) > 0 {
			known++
		}
	}
	if known != 10_000 {
		t.Errorf("%d sources are known, want 10,000", known)
	}
	long := batch.Source{Database: "d", Collection: strings.Repeat("x", 1000)}
	if s.Saw(long, 1, 100); s.Mean(long) != 0 {
		t.Error("a source with a long name is known")
	}
}
