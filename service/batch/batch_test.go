package batch_test

import (
	"fmt"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
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
				t.Errorf("Size(%d, %d, %d) = %d, want %d", test.target, test.mean, test.before, got,
					test.want)
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
	good := bson.NewBuilder(nil).String("name", "café").Finish()
	bad := bson.NewBuilder(nil).String("name", "caf\xe9!").Finish()
	size := len(good)
	texts := []bson.Raw{good, bad, good, bad, bad}
	for _, test := range []struct {
		name                 string
		docs                 []bson.Raw
		limits               batch.Limits
		wantCount, wantBytes int
	}{
		{"all fit", docs, batch.Limits{Bytes: 35}, 3, 35},
		{"two fit", docs, batch.Limits{Bytes: 34}, 2, 30},
		{"the first is too large", docs, batch.Limits{Bytes: 5}, 1, 10},
		{"none", nil, batch.Limits{Bytes: 5, Text: true}, 0, 0},
		{"by number", docs, batch.Limits{Bytes: 100, Documents: 2}, 2, 30},
		{"text", texts, batch.Limits{Bytes: 100, Text: true}, 1, size},
		{"text by number", texts[:1], batch.Limits{Bytes: 100, Documents: 1, Text: true}, 1, size},
		{"text begins with what is none", texts[1:], batch.Limits{Bytes: 100, Text: true}, 2, 2 * size},
		{"only what is none", texts[1:2], batch.Limits{Bytes: 100, Text: true}, 1, size},
		{"none, twice", texts[3:], batch.Limits{Bytes: 100, Text: true}, 1, size},
		{"as BSON", texts, batch.Limits{Bytes: 200}, 5, 5 * size},
		{"made", texts, batch.Limits{Bytes: 4 * size, Text: true, Texts: made(3)}, 3, 3 * size},
		{"made for no text", texts, batch.Limits{Bytes: 200, Texts: made(3)}, 5, 5 * size},
		{"not made", texts[1:], batch.Limits{Bytes: 200, Text: true, Texts: made(0)}, 2, 2 * size},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, bytes := batch.Cut(test.docs, test.limits)
			if n != test.wantCount || bytes != test.wantBytes {
				t.Errorf("Cut(…, %+v) = %d, %d, want %d, %d",
					test.limits, n, bytes, test.wantCount, test.wantBytes)
			}
		})
	}
}

// made makes the text of so many documents.
type made int

func (m made) Make(docs []bson.Raw, bytes int) int {
	if bytes > 4*len(docs[0]) {
		panic("beyond the limit")
	}
	return int(m)
}

// BenchmarkCut cuts a page of 100 documents of 500 bytes, as BSON and as text, and encodes it as
// JSON for comparison.
func BenchmarkCut(b *testing.B) {
	order := func(id int32) bson.Raw {
		d := bson.NewBuilder(nil).Int32("_id", id).ObjectID("customer", bson.ObjectID{1, 0xa0}).
			String("status", "shipped").DateTime("placed", 1_790_000_000_000).
			Double("total", 149.85).Int64("version", 12).Bool("gift", false).Null("coupon").
			OpenDocument("address").String("name", "Grace Hopper").
			String("street", "1 Harbor Street").
			String("city", "Gdańsk").String("country", "PL").Close().OpenArray("items")
		for range 3 {
			d.OpenDocument("").String("sku", "fender-l").String("name", "Fender, large").
				Int32("quantity", 1).Double("price", 49.95).Close()
		}
		return d.Close().OpenArray("tags").String("", "harbor").String("", "priority").Close().
			Finish()
	}
	docs := make([]bson.Raw, 100)
	for i := range docs {
		docs[i] = order(int32(i))
	}
	for _, text := range []bool{false, true} {
		b.Run(fmt.Sprintf("text=%v", text), func(b *testing.B) {
			for b.Loop() {
				batch.Cut(docs, batch.Limits{Bytes: 1 << 20, Text: text})
			}
			b.ReportMetric(float64(len(docs[0])), "bytes/document")
		})
	}
	b.Run("encode", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf = buf[:0]
			for _, doc := range docs {
				buf, _ = extjson.Append(buf, doc, extjson.RelaxedSafe)
			}
		}
	})
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
	if got := b.Target(); got != 16<<20/(3*32) {
		t.Errorf("with 32 streams: %d, want %d", got, 16<<20/(3*32))
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

// TestStart checks the size of a cursor's first batch.
func TestStart(t *testing.T) {
	for _, c := range []struct {
		target, mean int
		most, want   int32
	}{
		{3 << 20, 0, 101, batch.FirstUnknown},
		{3 << 20, 0, 5, 5},
		{3 << 20, 100, 101, 101},
		{3 << 20, 100_000, 101, 31},
		{3 << 20, 100_000, 10, 10},
		{3 << 20, 16 << 20, 101, 1},
		{3 << 20, 100, 1000, 1000},
	} {
		if got := batch.Start(c.target, c.mean, c.most); got != c.want {
			t.Errorf("Start(%d, %d, %d) = %d, want %d", c.target, c.mean, c.most, got, c.want)
		}
	}
}

// TestLearn checks that larger documents are expected at once, and smaller ones after a while.
func TestLearn(t *testing.T) {
	for _, c := range []struct{ before, mean, want int }{
		{0, 100, 100}, {100, 100_000, 100_000}, {100_000, 20_000, 80_000}, {100, 100, 100},
	} {
		if got := batch.Learn(c.before, c.mean); got != c.want {
			t.Errorf("Learn(%d, %d) = %d, want %d", c.before, c.mean, got, c.want)
		}
	}
}
