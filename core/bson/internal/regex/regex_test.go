package regex_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/bson/internal/regex"
)

func TestSortOptions(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "x": "x", "ix": "ix", "xmi": "imx", "ii": "ii", "éi": "ié", "ßéi": "ißé", "é\u0080": "\u0080é", "x\xFFi": "x\xFFi",
	} {
		b := []byte(in)
		if got := string(regex.Sorted(b)); got != want || string(b) != in {
			t.Errorf("Sorted(%q) = %q of %q, want %q", in, got, b, want)
		}
		if regex.SortOptions(b); string(b) != want {
			t.Errorf("SortOptions(%q) = %q, want %q", in, b, want)
		}
	}
}
