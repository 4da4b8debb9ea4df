package coding_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/mooringdb/mooring/service/coding"
)

// TestReader inflates bodies, as they come, of one and of two parts, and such that end early.
func TestReader(t *testing.T) {
	text := strings.Repeat("a line of some text\n", 10_000)
	for _, c := range []coding.Coding{coding.Identity, coding.Gzip, coding.Zstd} {
		body := c.Append(nil, []byte(text))
		for name, from := range map[string]io.Reader{
			"at once": bytes.NewReader(body), "by halves": iotest.HalfReader(bytes.NewReader(body)),
			"with the end": iotest.DataErrReader(bytes.NewReader(body)),
		} {
			got, err := read(c, from)
			if err != nil || got != text {
				t.Errorf("%v %s: %d bytes, %v", c, name, len(got), err)
			}
		}
		got, err := read(c, io.MultiReader(bytes.NewReader(body), bytes.NewReader(body)))
		if err != nil || got != text+text {
			t.Errorf("%v, twice: %d bytes, %v", c, len(got), err)
		}
		broken := io.MultiReader(bytes.NewReader(body[:len(body)/2]),
			iotest.ErrReader(io.ErrNoProgress))
		if _, err := read(c, broken); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("%v, broken: %v", c, err)
		}
		if c == coding.Identity {
			continue
		}
		for name, bad := range map[string][]byte{
			"half": body[:len(body)/2], "one byte": body[:1], "a text": []byte(text),
			"a text behind": append(bytes.Clone(body), "text of more than a header"...),
		} {
			_, err := read(c, bytes.NewReader(bad))
			if !errors.Is(err, coding.ErrMalformed) || errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v, %s: %v", c, name, err)
			}
		}
	}
}

func read(c coding.Coding, from io.Reader) (string, error) {
	r := c.NewReader(from)
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// TestReaderWindow has a body of zstd whose window is larger than what a Reader takes.
func TestReaderWindow(t *testing.T) {
	var body bytes.Buffer
	z, err := zstd.NewWriter(&body, zstd.WithWindowSize(16<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = z.Write(bytes.Repeat([]byte("0123456789abcdef"), 2<<20))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := read(coding.Zstd, &body); !errors.Is(err, coding.ErrTooLarge) {
		t.Errorf("a window of 16 MiB: %v", err)
	}
}
