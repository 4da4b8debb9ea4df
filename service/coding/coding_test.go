package coding_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/klauspost/compress/zstd"

	"github.com/mooringdb/mooring/service/coding"
)

func TestChoose(t *testing.T) {
	for accept, want := range map[string]coding.Coding{
		"": coding.Identity, "identity": coding.Identity, "br": coding.Identity,
		"gzip": coding.Gzip, "gzip, deflate, br, zstd": coding.Zstd,
		"zstd;q=0.5, gzip": coding.Gzip, "gzip;q=0": coding.Identity, "gzip; q=0.1": coding.Gzip,
		"gzip;q=1": coding.Gzip, "gzip;q=x, zstd": coding.Zstd, "X-GZIP": coding.Gzip,
		"br, gzip;q=0.5": coding.Gzip, "identity, gzip;q=0.5": coding.Identity,
		"*": coding.Zstd, "*, zstd;q=0": coding.Gzip,
		"identity;q=0.9, gzip;q=0.5": coding.Identity,
		"identity;q=0.5, gzip;q=0.5": coding.Gzip,
		"gzip;q=2":                   coding.Identity, ",;,q=1": coding.Identity,
		"gzip;q=NaN": coding.Identity, "gzip;q=-1": coding.Identity, "GZIP ; Q = 0.1": coding.Gzip,
		"gzip;level=9": coding.Gzip, "gzip;q": coding.Gzip,
	} {
		if got := coding.Choose([]string{accept}); got != want {
			t.Errorf("Choose(%q) = %v, want %v", accept, got, want)
		}
	}
	if got := coding.Choose([]string{"zstd;q=0.1", "gzip"}); got != coding.Gzip {
		t.Errorf("Choose of two lines = %v", got)
	}
	if _, ok := coding.Of("br"); ok {
		t.Error("br is a coding")
	}
	if c, ok := coding.Of(""); !ok || c != coding.Identity {
		t.Error("no name is not identity")
	}
}

func TestTakes(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "zstd, gzip;q=0.1": true, "zstd": false, "*": true, "*, gzip;q=0": false, "identity": false,
	} {
		if got := coding.Takes([]string{accept}, coding.Gzip); got != want {
			t.Errorf("Takes(%q, Gzip) = %v, want %v", accept, got, want)
		}
	}
}

// TestWriter checks that what is flushed can be read, and that Writers are used again.
func TestWriter(t *testing.T) {
	for _, c := range []coding.Coding{coding.Gzip, coding.Zstd} {
		for range 3 {
			var out bytes.Buffer
			w := c.Writer(&out)
			if _, err := io.WriteString(w, "a part"); err != nil || w.Flush() != nil {
				t.Errorf("%v: %v", c, err)
			}
			if out.Len() == 0 {
				t.Errorf("%v: Flush has written nothing", c)
			}
			if _, err := io.WriteString(w, ", the rest"); err != nil || w.Close() != nil {
				t.Errorf("%v: %v", c, err)
			}
			w.Free()
			got, err := c.Inflate(out.Bytes(), 100, nil)
			if err != nil || string(got) != "a part, the rest" {
				t.Errorf("%v: %q, %v", c, got, err)
			}
		}
	}
}

// TestWritersAreUsedAgain checks that many Writers one after another take less memory if they are
// freed.
func TestWritersAreUsedAgain(t *testing.T) {
	const rounds = 40
	for _, c := range []coding.Coding{coding.Gzip, coding.Zstd} {
		taken := func(free bool) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range rounds {
				w := c.Writer(io.Discard)
				_, _ = io.WriteString(w, "text")
				_ = w.Close()
				if free {
					w.Free()
				}
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		// Under the race detector a pool forgets one in four, at random.
		if all, freed := taken(false), taken(true); freed > all/4*3 {
			t.Errorf("%v: Writers that are freed take %d bytes, others %d", c, freed, all)
		}
	}
}

// TestFreedWriter checks that a Writer cannot be used once another caller may have its memory, and
// that this memory keeps nothing of what it was written to.
func TestFreedWriter(t *testing.T) {
	for _, c := range []coding.Coding{coding.Gzip, coding.Zstd} {
		out := new(bytes.Buffer)
		kept := weak.Make(out)
		w := c.Writer(out)
		_, _ = io.WriteString(w, "text")
		_ = w.Close()
		w.Free()
		runtime.GC() // which leaves what is free
		if kept.Value() != nil {
			t.Errorf("%v: a freed Writer keeps what it has written to", c)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v: a freed Writer can be written to", c)
				}
			}()
			_, _ = io.WriteString(w, "text")
		}()
	}
}

// TestAppendTakesLittle appends data that cannot be compressed.
func TestAppendTakesLittle(t *testing.T) {
	data := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	for _, c := range []coding.Coding{coding.Gzip, coding.Zstd} {
		if n := cap(c.Append(nil, data)); n > len(data)+len(data)/50 {
			t.Errorf("%v: %d bytes for %d", c, n, len(data))
		}
	}
}

func TestInflate(t *testing.T) {
	whole := []byte(strings.Repeat("mooring ", 100_000))
	for _, c := range []coding.Coding{coding.Identity, coding.Gzip, coding.Zstd} {
		small := c.Append([]byte("x"), whole)[1:]
		if c != coding.Identity && len(small) > len(whole)/10 {
			t.Errorf("%v: %d bytes", c, len(small))
		}
		charged := account{limit: math.MaxInt64}
		got, err := c.Inflate(small, len(whole), charged.charge)
		if err != nil || !bytes.Equal(got, whole) {
			t.Errorf("%v: %d bytes, %v", c, len(got), err)
		}
		if c != coding.Identity && charged.held != int64(len(whole))+1 {
			t.Errorf("%v: %d bytes stay charged for %d", c, charged.held, len(whole))
		}
		if _, err := c.Inflate(small, len(whole)-1, nil); !errors.Is(err, coding.ErrTooLarge) {
			t.Errorf("%v over the limit: %v", c, err)
		}
		if c == coding.Identity {
			continue
		}
		_, err = c.Inflate(small[:len(small)-5], len(whole), nil)
		if err == nil || errors.Is(err, coding.ErrTooLarge) {
			t.Errorf("%v cut: %v", c, err)
		}
		if _, err := c.Inflate([]byte("no"), 10, nil); err == nil {
			t.Errorf("%v of other bytes: no error", c)
		}
		charged = account{limit: 512 << 10}
		if _, err := c.Inflate(small, len(whole), charged.charge); !errors.Is(err, errFull) {
			t.Errorf("%v without memory: %v", c, err)
		}
		if charged.held != 0 {
			t.Errorf("%v without memory: %d bytes stay charged", c, charged.held)
		}
		if empty, err := c.Inflate(c.Append(nil, nil), 0, nil); err != nil || len(empty) != 0 {
			t.Errorf("%v of nothing: %q, %v", c, empty, err)
		}
	}
}

// account counts what is charged.
type account struct {
	limit             int64
	held, peak, taken int64
}

var errFull = errors.New("full")

func (a *account) charge(n int64) error {
	if a.held+n > a.limit {
		return errFull
	}
	a.held += n
	a.peak, a.taken = max(a.peak, a.held), a.taken+max(n, 0)
	return nil
}

// frame returns a frame of zstd whose text is ten times x. It announces a window of 1 KiB, times
// two to the power of log.
func frame(log byte) []byte {
	const last, repeated = 1, 1 << 1
	return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, log << 3, last | repeated | 10<<3, 0, 0, 'x'}
}

// single returns such a frame that announces the size of its text, and with that its window.
func single(announced uint32) []byte {
	const fourBytes, singleSegment = 2 << 6, 1 << 5
	f := frame(0)
	head := append(f[:4:4], fourBytes|singleSegment)
	return append(binary.LittleEndian.AppendUint32(head, announced), f[6:]...)
}

// TestWindow checks that the window which a few bytes announce is charged before it is taken, and
// that it is released.
func TestWindow(t *testing.T) {
	const mega, text, more = 1 << 20, "xxxxxxxxxx", 1 << 10
	skipped := []byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 'x'}
	for name, c := range map[string]struct {
		data []byte
		peak int64 // at least
		want string
		err  error
	}{
		"1 KiB":             {frame(0), 1 << 10, text, nil},
		"128 KiB":           {frame(7), 128 << 10, text, nil},
		"8 MiB":             {frame(13), 8 * mega, text, nil},
		"16 MiB":            {frame(14), 0, "", coding.ErrTooLarge},
		"a second frame":    {append(frame(0), frame(13)...), 8 * mega, text + text, nil},
		"two small frames":  {append(frame(1), frame(0)...), 1 << 10, text + text, nil},
		"a skipped frame":   {append(skipped, frame(13)...), 8 * mega, text, nil},
		"a size of 4 MiB":   {single(4 * mega), 4 * mega, "", zstd.ErrFrameSizeMismatch},
		"a size of 100 MiB": {single(100 * mega), 0, "", coding.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			a := account{limit: math.MaxInt64}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := coding.Zstd.Inflate(c.data, 64*mega, a.charge)
			runtime.ReadMemStats(&after)
			switch {
			case string(got) != c.want:
				t.Errorf("Inflate = %q, %v; want %q", got, err, c.want)
			case !errors.Is(err, c.err):
				t.Errorf("Inflate fails with %v; want %v", err, c.err)
			case a.peak < c.peak || a.peak > c.peak+mega || a.held != int64(cap(got)):
				t.Errorf("%d bytes were charged, %d are left; want %d", a.peak, a.held, c.peak)
			}
			if taken := int64(after.TotalAlloc - before.TotalAlloc); taken > a.taken+more {
				t.Errorf("%d bytes were taken, and %d charged", taken, a.taken)
			}
			if c.peak < mega {
				return
			}
			a = account{limit: mega}
			runtime.ReadMemStats(&before)
			_, err = coding.Zstd.Inflate(c.data, 64*mega, a.charge)
			runtime.ReadMemStats(&after)
			if taken := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, errFull) ||
				taken > mega {
				t.Errorf("without memory: %v, %d bytes were taken", err, taken)
			}
		})
	}
}

func FuzzInflate(f *testing.F) {
	for _, c := range []coding.Coding{coding.Gzip, coding.Zstd} {
		f.Add(uint8(c), c.Append(nil, []byte("text")))
	}
	f.Add(uint8(coding.Zstd), frame(13))
	f.Add(uint8(coding.Zstd), single(1000))
	f.Fuzz(func(t *testing.T, c uint8, data []byte) {
		const limit, most = 1 << 16, 9 << 20
		a := account{limit: math.MaxInt64}
		out, err := coding.Coding(c%3).Inflate(data, limit, a.charge)
		if err == nil && len(out) > limit || a.peak > most || a.held < 0 || a.held > limit+1 {
			t.Errorf("%d bytes, %+v are charged", len(out), a)
		}
	})
}
