package compress_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/compress"
	"github.com/mooringdb/mooring/internal/spectest"
)

var all = []compress.ID{compress.Noop, compress.Snappy, compress.Zlib, compress.Zstd}

func samples() map[string][]byte {
	random := make([]byte, 100_000)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(random)
	return map[string][]byte{
		"nothing": {}, "one byte": {7}, "text": []byte(strings.Repeat("all work and no play ", 500)),
		"random": random, "zeros": make([]byte, 1<<20), "more than a block": bytes.Repeat(random[:70_000], 3),
	}
}

func TestRoundTrip(t *testing.T) {
	for name, src := range samples() {
		for _, id := range all {
			for level := -1; level <= 9; level++ {
				if id != compress.Zlib && level != compress.DefaultLevel {
					continue
				}
				packed := compress.Compress([]byte("before"), id, level, src)
				if !bytes.HasPrefix(packed, []byte("before")) {
					t.Fatalf("%v of %s: the beginning is gone", id, name)
				}
				got, err := compress.Decompress([]byte("kept"), id, len(src), len(src), packed[6:])
				if err != nil || !bytes.Equal(got, append([]byte("kept"), src...)) {
					t.Errorf("%v of %s at level %d: %d bytes, %v", id, name, level, len(got), err)
				}
			}
		}
	}
}

// The standard library reads what is written here, and the other way round.
func TestZlibIsZlib(t *testing.T) {
	src := samples()["text"]
	r, err := zlib.NewReader(bytes.NewReader(compress.Compress(nil, compress.Zlib, -1, src)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, src) {
		t.Errorf("compress/zlib reads %d bytes, %v", len(got), err)
	}
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	_, _ = w.Write(src)
	_ = w.Close()
	if got, err := compress.Decompress(nil, compress.Zlib, len(src), len(src),
		packed.Bytes()); err != nil || !bytes.Equal(got, src) {
		t.Errorf("Decompress of what compress/zlib wrote: %d bytes, %v", len(got), err)
	}
}

func TestLevelsOfZlib(t *testing.T) {
	src := samples()["text"]
	size := map[int]int{}
	for level := -1; level <= 9; level++ {
		size[level] = len(compress.Compress(nil, compress.Zlib, level, src))
	}
	if size[0] <= len(src) || size[1] >= len(src)/10 || size[9] > size[1] || size[-1] > size[1] {
		t.Errorf("sizes by level %v, want 0 to store and 9 to be the smallest", size)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]compress.ID{
		"snappy": compress.Snappy, "zlib": compress.Zlib, "zstd": compress.Zstd,
	} {
		if id, ok := compress.ByName(name); !ok || id != want || id.String() != name {
			t.Errorf("ByName(%q) = %v, %v", name, id, ok)
		}
	}
	for _, name := range []string{"noop", "snoopy", "Snappy", ""} {
		if id, ok := compress.ByName(name); ok {
			t.Errorf("ByName(%q) = %v", name, id)
		}
	}
	if compress.Snappy != 1 || compress.Zlib != 2 || compress.Zstd != 3 ||
		compress.ID(9).String() != "compressor 9" {
		t.Error("the numbers are not those of the specification")
	}
}

func TestIsAllowed(t *testing.T) {
	for _, name := range []string{
		"hello", "isMaster", "ismaster", "saslStart", "saslContinue", "getnonce", "authenticate", "createUser", "updateUser",
		"copydbSaslStart", "copydbgetnonce", "copydb",
	} {
		if compress.IsAllowed(name) {
			t.Errorf("IsAllowed(%q)", name)
		}
	}
	for _, name := range []string{
		"find", "insert", "ping", "usersInfo", "dropUser", "serverStatus", "",
	} {
		if !compress.IsAllowed(name) {
			t.Errorf("not IsAllowed(%q)", name)
		}
	}
}

func TestBugsPanic(t *testing.T) {
	for _, f := range []func(){
		func() { compress.Compress(nil, 4, -1, nil) },
		func() { compress.Compress(nil, compress.Zlib, 10, nil) },
		func() { compress.Compress(nil, compress.Zlib, -2, nil) },
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, "bug: ") {
					t.Errorf("recover() = %q, want a bug", s)
				}
			}()
			f()
		}()
	}
}

func TestRefusesLies(t *testing.T) {
	src := samples()["text"]
	for _, id := range all {
		packed := compress.Compress(nil, id, -1, src)
		tests := []struct {
			name  string
			size  int
			limit int
			data  []byte
		}{
			{"smaller than it is", len(src) - 1, len(src), packed},
			{"larger than it is", len(src) + 1, 2 * len(src), packed},
			{"nothing", 0, len(src), packed},
			{"above the limit", len(src), len(src) - 1, packed},
			{"negative", -1, len(src), packed},
			{"no data", len(src), len(src), nil},
			{"cut", len(src), len(src), packed[:len(packed)-1]},
			{"cut in half", len(src), len(src), packed[:len(packed)/2]},
			{"garbage after it", len(src), len(src), append(bytes.Clone(packed), 1, 2, 3)},
			{"garbage", len(src), len(src), []byte(strings.Repeat("garbage", 100))},
		}
		for _, tt := range tests {
			t.Run(id.String()+"/"+tt.name, func(t *testing.T) {
				got, err := compress.Decompress(nil, id, tt.size, tt.limit, tt.data)
				if e, ok := errors.AsType[*compress.Error](err); !ok || e.ID != id ||
					errors.Is(err, io.EOF) {
					t.Errorf("Decompress = %d bytes, %v, want an *Error without io.EOF", len(got),
						err)
				} else if !strings.HasPrefix(err.Error(), "decompress "+id.String()+": ") {
					t.Errorf("error text %q", err)
				}
			})
		}
	}
	if _, err := compress.Decompress(nil, 4, 1, 1, []byte{1}); err == nil {
		t.Error("compressor 4: no error")
	}
}

// One flipped bit is an error or other bytes of the same number, never a panic. zlib finds every
// one by its checksum.
func TestCorruption(t *testing.T) {
	src := samples()["text"][:2000]
	for _, id := range all[1:] {
		packed := compress.Compress(nil, id, -1, src)
		for i := range packed {
			for bit := range 8 {
				bad := bytes.Clone(packed)
				bad[i] ^= 1 << bit
				got, err := compress.Decompress(nil, id, len(src), len(src), bad)
				if err == nil &&
					(len(got) != len(src) || id == compress.Zlib && !bytes.Equal(got, src)) {
					t.Errorf("%v with byte %d bit %d flipped: %d bytes and no error", id, i, bit,
						len(got))
				}
			}
		}
	}
}

// A claim that cannot be true, whatever it says, must not cost memory.
func TestLiesCostNothing(t *testing.T) {
	const claim = 48_000_000
	snappyClaim := binary.AppendUvarint(nil, claim)
	tests := []struct {
		name string
		id   compress.ID
		data []byte
	}{
		{"snappy", compress.Snappy, append(snappyClaim, make([]byte, 100)...)},
		{"snappy of another size", compress.Snappy, append([]byte{10}, make([]byte, 1<<20)...)},
		{"zlib", compress.Zlib, compress.Compress(nil, compress.Zlib, -1, make([]byte, 1000))},
		{"zstd", compress.Zstd, compress.Compress(nil, compress.Zstd, -1, make([]byte, 1000))},
		{"zstd of another size", compress.Zstd, compress.Compress(nil, compress.Zstd, -1, samples()["random"][:2000])},
		{"zstd without a size and with a window of 1 GiB", compress.Zstd, append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xa0}, make([]byte, 100)...)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			size := claim
			if strings.Contains(tt.name, "window") {
				size = 1000
			}
			// fills the pools
			_, _ = compress.Decompress(nil, tt.id, 1, 1,
				compress.Compress(nil, tt.id, -1, []byte{1}))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := compress.Decompress(nil, tt.id, size, claim, tt.data)
			runtime.ReadMemStats(&after)
			if cost := after.TotalAlloc - before.TotalAlloc; err == nil || cost > 1<<18 {
				t.Errorf("Decompress = %v, %d bytes allocated", err, cost)
			}
		})
	}
}

func TestConcurrently(t *testing.T) {
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			src := bytes.Repeat([]byte{byte(i), 1, 2}, 1000+i)
			for n := range 100 {
				id := all[n%len(all)]
				got, err := compress.Decompress(nil, id, len(src), len(src),
					compress.Compress(nil, id, n%11-1, src))
				if err != nil || !bytes.Equal(got, src) {
					t.Errorf("%v: %v", id, err)
				}
			}
		})
	}
	running.Wait()
}

func FuzzDecompress(f *testing.F) {
	for _, id := range all {
		src := []byte(strings.Repeat("all work ", 20))
		f.Add(uint8(id), len(src), compress.Compress(nil, id, -1, src))
	}
	f.Add(uint8(4), 1, []byte{1})
	f.Fuzz(func(t *testing.T, id uint8, size int, data []byte) {
		const limit = 1 << 20
		got, err := compress.Decompress(nil, compress.ID(id), size, limit, data)
		if err == nil && (len(got) != size || size > limit) {
			t.Errorf("Decompress = %d bytes, but uncompressedSize is %d", len(got), size)
		}
		if _, ok := errors.AsType[*compress.Error](err); err != nil && !ok {
			t.Errorf("Decompress = %v, not an *Error", err)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("all work and no play"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, id := range all {
			got, err := compress.Decompress(nil, id, len(src), len(src),
				compress.Compress(nil, id, -1, src))
			if err != nil || !bytes.Equal(got, src) {
				t.Errorf("%v: %x, %v", id, got, err)
			}
		}
	})
}

// TestMost checks that what is compressed stays in a buffer with the room that Most asks for,
// however badly it compresses.
func TestMost(t *testing.T) {
	noise := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for _, id := range all {
		for _, n := range []int{0, 1, 1000, 64 << 10, 1 << 20, len(noise)} {
			for _, src := range [][]byte{noise[:n], make([]byte, n)} {
				dst := make([]byte, 0, compress.Most(id, n))
				out := compress.Compress(dst, id, compress.DefaultLevel, src)
				if cap(out) != cap(dst) || compress.Cost(id, n) < cap(dst) {
					t.Errorf("%v: %d bytes become %d, with room for %d", id, n, len(out), cap(dst))
				}
			}
		}
	}
}

// benchmarkDocuments are those of the benchmarking specification, as BSON, by file name.
func benchmarkDocuments(b *testing.B) map[string][]byte {
	b.Helper()
	dir := spectest.Dir(b, "benchmarking")
	docs := map[string][]byte{}
	for _, archive := range []string{"single_and_multi_document.tgz", "extended_bson.tgz"} {
		file, err := os.Open(filepath.Join(dir, archive))
		if err != nil {
			b.Skip(err)
		}
		defer func() { _ = file.Close() }()
		unzipped, err := gzip.NewReader(file)
		if err != nil {
			b.Fatal(err)
		}
		files := tar.NewReader(unzipped)
		for {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			if !strings.HasSuffix(h.Name, ".json") {
				continue
			}
			text, err := io.ReadAll(files)
			if err != nil {
				b.Fatal(err)
			}
			doc, err := extjson.Parse(nil, text)
			if err != nil {
				b.Fatalf("%s: %v", h.Name, err)
			}
			docs[strings.TrimSuffix(filepath.Base(h.Name), ".json")] = doc
		}
	}
	docs["tweet x100"] = bytes.Repeat(docs["tweet"], 100)
	return docs
}

func BenchmarkCompress(b *testing.B) {
	for name, doc := range benchmarkDocuments(b) {
		for _, id := range all {
			b.Run(name+"/"+id.String(), func(b *testing.B) {
				var buf []byte
				b.ReportAllocs()
				b.SetBytes(int64(len(doc)))
				for b.Loop() {
					buf = compress.Compress(buf[:0], id, compress.DefaultLevel, doc)
				}
				b.ReportMetric(float64(len(doc))/float64(len(buf)), "ratio")
			})
		}
	}
}

func BenchmarkDecompress(b *testing.B) {
	for name, doc := range benchmarkDocuments(b) {
		for _, id := range all {
			b.Run(name+"/"+id.String(), func(b *testing.B) {
				packed := compress.Compress(nil, id, compress.DefaultLevel, doc)
				b.ReportAllocs()
				b.SetBytes(int64(len(doc)))
				for b.Loop() {
					if _, err := compress.Decompress(nil, id, len(doc), len(doc),
						packed); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
