package extjson_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// TestLongTextGrowsOnce checks that a long string takes about its own length of memory, and not
// that of each buffer on the way.
func TestLongTextGrowsOnce(t *testing.T) {
	const length = 4 << 20
	v := bson.StringValue(strings.Repeat("x", length))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := extjson.AppendValue(nil, v, extjson.Relaxed); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > length*3/2 {
		t.Errorf("a text of %d bytes took %d", length, took)
	}
}

// TestJustEnoughRoom checks that a buffer that is as long as the text does not grow, whatever comes
// last.
func TestJustEnoughRoom(t *testing.T) {
	for _, v := range []bson.Value{
		bson.StringValue("x"), bson.StringValue("a text"), bson.StringValue("\n"),
		bson.BoolValue(true), bson.Int32Value(7), bson.Int64Value(1<<53 - 1), bson.NullValue(),
		bson.DoubleValue(1.5), bson.DoubleValue(1), bson.DateTimeValue(0), bson.DateTimeValue(1),
		bson.RegexValue("a", "i"),
	} {
		doc := bson.NewBuilder(nil).Value("k", v).Finish()
		for _, mode := range []extjson.Mode{extjson.Relaxed, extjson.Canonical, extjson.Plain} {
			text := write(t, doc, mode)
			out, err := extjson.Append(make([]byte, 0, len(text)), doc, mode)
			if err != nil || cap(out) != len(text) {
				t.Errorf("%s: its %d bytes have a buffer of %d, %v", text, len(text), cap(out), err)
			}
		}
	}
}
