package coding_test

import (
	"fmt"
	"testing"

	"github.com/mooringdb/mooring/service/coding"
)

// BenchmarkAppend shows what compressing a message of a size costs, and what it saves.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []coding.Coding{coding.Gzip, coding.Zstd} {
		for size := 512; size <= 64<<10; size *= 2 {
			var text []byte
			for i := 0; len(text) < size; i++ {
				text = fmt.Appendf(text,
					`{"_id":{"$oid":"66f1c0%018x"},"name":"Customer %d","city":"%s",`+
						`"balance":%d.%02d,"tags":["a%d","b"],"active":%t},`, i*7919, i*31,
					[]string{"Lisbon", "Oslo", "Quito"}[i%3], i*137, i%100, i%9, i%2 == 0)
			}
			text = text[:size]
			b.Run(fmt.Sprintf("%s/%d", c, size), func(b *testing.B) {
				var out []byte
				for b.Loop() {
					out = c.Append(out[:0], text)
				}
				b.ReportMetric(float64(len(out))/float64(size), "of-its-size")
			})
		}
	}
}
