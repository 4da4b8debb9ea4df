package batch_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/batch"
)

func TestSize(t *testing.T) {
	for _, test := range []struct {
		name         string
		target, mean int
		before, want int32
	}{
		{"nothing seen", 1 << 20, 0, 0, batch.First},
		{"documents of 1 KiB", 1 << 20, 1024, 1024, 1024},
		{"grows by steps", 1 << 20, 100, 0, 4 * batch.First},
		{"shrinks at once", 64 << 10, 1024, 1000, 64},
		{"a document larger than the target", 64 << 10, 16 << 20, 10, 1},
		{"tiny documents", 1 << 20, 5, 90_000, 100_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := batch.Size(test.target, test.mean, test.before); got != test.want {
				t.Errorf("Size(%d, %d, %d) = %d, want %d", test.target, test.mean, test.before, got, test.want)
			}
		})
	}
}

func TestSizer(t *testing.T) {
	var s batch.Sizer
	if n := s.Next(1 << 20); n != batch.First {
		t.Errorf("at first %d", n)
	}
	s.Saw(101, 101*1000)
	if n := s.Next(1 << 20); n != 404 {
		t.Errorf("then %d, want 404", n)
	}
	s.Saw(0, 0)
	s.Saw(404, 404*3000)
	if n := s.Next(1 << 20); n != 524 { // of 2000 bytes
		t.Errorf("then %d, want 524", n)
	}
}

func TestCut(t *testing.T) {
	docs := []bson.Raw{make([]byte, 10), make([]byte, 20), make([]byte, 5)}
	for _, test := range []struct {
		name                 string
		docs                 []bson.Raw
		maxBytes, maxCount   int
		wantCount, wantBytes int
	}{
		{"all fit", docs, 35, 0, 3, 35},
		{"two fit", docs, 34, 0, 2, 30},
		{"the first is too large", docs, 5, 0, 1, 10},
		{"none", nil, 5, 0, 0, 0},
		{"by number", docs, 100, 2, 2, 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, bytes := batch.Cut(test.docs, test.maxBytes, test.maxCount)
			if n != test.wantCount || bytes != test.wantBytes {
				t.Errorf("Cut(…, %d, %d) = %d, %d, want %d, %d", test.maxBytes, test.maxCount, n, bytes, test.wantCount, test.wantBytes)
			}
		})
	}
}

func TestBudget(t *testing.T) {
	b := batch.NewBudget(16 << 20)
	if got := b.Target(); got != batch.MaxTarget {
		t.Errorf("without streams: %d", got)
	}
	var leave []func()
	for range 32 {
		leave = append(leave, b.Join())
	}
	if got := b.Target(); got != 256<<10 {
		t.Errorf("with 32 streams: %d, want %d", got, 256<<10)
	}
	for range 1000 {
		leave = append(leave, b.Join())
	}
	if got := b.Target(); got != batch.MinTarget {
		t.Errorf("with many streams: %d", got)
	}
	for _, f := range leave {
		f()
	}
	if got := b.Target(); got != batch.MaxTarget {
		t.Errorf("after them: %d", got)
	}
}
