package coding_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/coding"
)

func TestChoose(t *testing.T) {
	for accept, want := range map[string]coding.Coding{
		"": coding.Identity, "identity": coding.Identity, "br": coding.Identity, "gzip": coding.Gzip, "gzip, deflate, br, zstd": coding.Zstd,
		"zstd;q=0.5, gzip": coding.Gzip, "gzip;q=0": coding.Identity, "gzip; q=0.1": coding.Gzip, "gzip;q=x, zstd": coding.Zstd, "X-GZIP": coding.Gzip,
	} {
		if got := coding.Choose(accept); got != want {
			t.Errorf("Choose(%q) = %v, want %v", accept, got, want)
		}
	}
	if _, ok := coding.Of("br"); ok {
		t.Error("br is a coding")
	}
}

func TestInflate(t *testing.T) {
	whole := []byte(strings.Repeat("mooring ", 100_000))
	for _, c := range []coding.Coding{coding.Identity, coding.Gzip, coding.Zstd} {
		small := c.Append([]byte("x"), whole)[1:]
		if c != coding.Identity && len(small) > len(whole)/10 {
			t.Errorf("%v: %d bytes", c, len(small))
		}
		charged := int64(0)
		charge := func(n int64) error { charged += n; return nil }
		got, err := c.Inflate(small, len(whole), charge)
		if err != nil || !bytes.Equal(got, whole) {
			t.Errorf("%v: %d bytes, %v", c, len(got), err)
		}
		if c != coding.Identity && (charged < int64(len(whole)) || charged > int64(len(whole))+1) {
			t.Errorf("%v: %d bytes are charged for %d", c, charged, len(whole))
		}
		if _, err := c.Inflate(small, len(whole)-1, nil); !errors.Is(err, coding.ErrTooLarge) {
			t.Errorf("%v over the limit: %v", c, err)
		}
		if c == coding.Identity {
			continue
		}
		if _, err := c.Inflate(small[:len(small)-5], len(whole), nil); err == nil || errors.Is(err, coding.ErrTooLarge) {
			t.Errorf("%v cut: %v", c, err)
		}
		if _, err := c.Inflate([]byte("no"), 10, nil); err == nil {
			t.Errorf("%v of other bytes: no error", c)
		}
		full, taken := errors.New("full"), int64(0)
		_, err = c.Inflate(small, len(whole), func(n int64) error {
			if taken += n; taken > 100<<10 {
				return full
			}
			return nil
		})
		if !errors.Is(err, full) {
			t.Errorf("%v without memory: %v", c, err)
		}
		if empty, err := c.Inflate(c.Append(nil, nil), 0, nil); err != nil || len(empty) != 0 {
			t.Errorf("%v of nothing: %q, %v", c, empty, err)
		}
	}
}

func FuzzInflate(f *testing.F) {
	for _, c := range []coding.Coding{coding.Gzip, coding.Zstd} {
		f.Add(uint8(c), c.Append(nil, []byte("text")))
	}
	f.Fuzz(func(t *testing.T, c uint8, data []byte) {
		const limit = 1 << 16
		charged := int64(0)
		out, err := coding.Coding(c%3).Inflate(data, limit, func(n int64) error { charged += n; return nil })
		if err == nil && len(out) > limit || charged > 2*limit+2 {
			t.Errorf("%d bytes, %d charged", len(out), charged)
		}
	})
}
