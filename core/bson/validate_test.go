package bson_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mooringdb/mooring/core/bson"
)

func TestValidateProblems(t *testing.T) {
	for _, c := range []struct{ name, hex, path, problem string }{
		{"too short", "00", "", "shorter than 5"},
		{"length below 5", "0400000000", "", "below 5"},
		{"bytes after", "050000000000", "", "bytes after"},
		{"early end", "0700000000" + "00" + "00", "", "ends before its length"},
		{"unknown type", "08000000" + "14" + "6100" + "00", "a", "unknown type"},
		{"key without end", "08000000" + "10" + "6162" + "00", "ab", "not terminated"},
		{"value without end", "09000000" + "10" + "6100" + "00" + "00", "a", "does not fit"},
		{"key of bad UTF-8", "08000000" + "0A" + "FF00" + "00", "\uFFFD", "UTF-8"},
		{"bool of 2", "09000000" + "08" + "6200" + "02" + "00", "b", "boolean"},
		{"regex without end", "0A000000" + "0B" + "6100" + "6162" + "00", "a", "regular expression"},
		{"string in a document", "18000000" + "03" + "6400" + "10000000" + "02" + "7300" + "0300000061FF00" + "0000" + "00", "d.s", "UTF-8"},
		{"string in an array", "18000000" + "04" + "6400" + "10000000" + "02" + "3000" + "0000000061FF00" + "0000" + "00", "d.0", "below 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := unhex(t, c.hex).Validate()
			invalid, ok := errors.AsType[*bson.ValidationError](err)
			if !ok {
				t.Fatalf("Validate() = %v, want a ValidationError", err)
			}
			if invalid.Path != c.path || !strings.Contains(invalid.Problem, c.problem) {
				t.Errorf("Validate() = %+v, want %q at %q", invalid, c.problem, c.path)
			}
			if !strings.HasPrefix(err.Error(), "bson: ") ||
				!strings.Contains(err.Error(), "offset") {
				t.Errorf("Error() = %s", err)
			}
		})
	}
}

// nest is a document in depth documents.
func nest(depth int) bson.Raw {
	const overhead = 8 // length, type, "a", terminator
	n := 5 + overhead*(depth-1)
	d := make(bson.Raw, 0, n)
	for left := n; left > 5; left -= overhead {
		d = binary.LittleEndian.AppendUint32(d, uint32(left))
		d = append(d, 3, 'a', 0)
	}
	d = append(d, 5, 0, 0, 0, 0)
	return append(d, make([]byte, depth-1)...)
}

func TestValidateDepth(t *testing.T) {
	if err := nest(bson.MaxDepth).Validate(); err != nil {
		t.Errorf("depth %d: %v", bson.MaxDepth, err)
	}
	err := nest(bson.MaxDepth + 1).Validate()
	if invalid, ok := errors.AsType[*bson.ValidationError](err); !ok ||
		!strings.Contains(invalid.Problem, "deep") {
		t.Errorf("depth %d: %v", bson.MaxDepth+1, err)
	}
	if err := nest(300).ValidateDepth(300); err != nil {
		t.Errorf("depth 300 of 300: %v", err)
	}
	if nest(2).ValidateDepth(1) == nil || nest(1).ValidateDepth(0) == nil ||
		nest(1).ValidateDepth(1) != nil {
		t.Error("small limits")
	}
	var before, after runtime.MemStats
	deep := nest(1_000_000)
	runtime.ReadMemStats(&before)
	if err := deep.Validate(); err == nil || len(err.Error()) > 1000 {
		t.Errorf("1,000,000 levels: %v", err)
	}
	for range deep.All() {
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("1,000,000 levels: %d bytes allocated", used)
	}
}

// Every document of the sample cut at every byte is refused, with its outer
// length as it was and corrected.
func TestTruncation(t *testing.T) {
	d := sample()
	for n := range d {
		if d[:n].Validate() == nil {
			t.Fatalf("%d of %d bytes are valid", n, len(d))
		}
		if n < 5 {
			continue
		}
		cut := d[:n].Clone()
		binary.LittleEndian.PutUint32(cut, uint32(n))
		cut[n-1] = 0
		elements := 0
		for range cut.All() {
			elements++
		}
		if err := cut.Validate(); err == nil && elements != cut.Len() {
			t.Fatalf("%d bytes are valid but have %d elements", n, elements)
		}
	}
}

// TestLengths writes lengths that do not fit at every offset of a document. Where the four bytes
// are the length of a document, a string, a binary or a code with scope, Validate refuses it;
// elsewhere it may accept the document. Reading never passes the end, whatever Validate says.
func TestLengths(t *testing.T) {
	d := sample()
	lengths := lengthOffsets(t, d)
	if len(lengths) < 10 {
		t.Fatalf("the sample has %d lengths", len(lengths))
	}
	for _, n := range []uint32{0, 1, 3, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFB} {
		for at := 0; at+4 <= len(d); at++ {
			bad := d.Clone()
			binary.LittleEndian.PutUint32(bad[at:], n)
			walk(bad)
			if kind := lengths[at]; kind != "" && !bytes.Equal(bad, d) && bad.Validate() == nil {
				t.Errorf("a %s with length %#x at offset %d is valid", kind, n, at)
			}
		}
	}
}

// lengthOffsets returns the offsets of the lengths in a valid document, with what each one
// measures.
func lengthOffsets(t *testing.T, d bson.Raw) map[int]string {
	t.Helper()
	found := map[int]string{}
	var visit func(d bson.Raw, base int)
	visit = func(d bson.Raw, base int) {
		found[base] = "document"
		at := base + 4
		for key, v := range d.All() {
			at += 1 + len(key) + 1
			switch v.Type {
			case bson.TypeDocument, bson.TypeArray:
				visit(bson.Raw(v.Data), at)
			case bson.TypeString, bson.TypeSymbol, bson.TypeJavaScript, bson.TypeDBPointer:
				found[at] = "string"
			case bson.TypeCodeWithScope:
				found[at], found[at+4] = "code with scope", "string"
			}
			at += len(v.Data)
		}
	}
	visit(d, 0)
	return found
}

// TestValidateUTF8 puts a character of several bytes, and then the same without its last byte, at
// every offset of strings of all lengths up to 40.
func TestValidateUTF8(t *testing.T) {
	for n := range 40 {
		plain := strings.Repeat("x", n)
		if err := bson.NewBuilder(nil).String("s", plain).Finish().Validate(); err != nil {
			t.Errorf("%d letters: %v", n, err)
		}
		for at := range n + 1 {
			for _, char := range []string{"é", "€", "😀"} {
				text := plain[:at] + char + plain[at:]
				if err := bson.NewBuilder(nil).String("s", text).Finish().Validate(); err != nil {
					t.Errorf("%q: %v", text, err)
				}
				text = plain[:at] + char[:len(char)-1] + plain[at:]
				if err := bson.NewBuilder(nil).String("s", text).Finish().Validate(); err == nil {
					t.Errorf("%q is valid", text)
				}
			}
		}
	}
}

// walk uses everything of a document that reading offers: nothing may panic.
func walk(d bson.Raw) {
	err := d.Validate()
	for key, v := range d.All() {
		_ = len(key)
		v.Str()
		v.Binary()
		v.Regex()
		v.DBPointer()
		_, _ = v.Vector()
		if _, scope, ok := v.CodeWithScope(); ok {
			walk(scope)
		}
		if doc, ok := v.Document(); ok && err == nil {
			walk(doc)
		}
		if a, ok := v.Array(); ok {
			for range a.All() {
			}
		}
	}
	if err == nil {
		_ = bson.AppendNormal(nil, d)
	}
	_, _ = d.DBRef()
}

func TestGarbage(t *testing.T) {
	garbage := bytes.Repeat([]byte{0xEE, 0x12, 0x03, 0x00, 0x41, 0x07}, 100<<20/6)
	binary.LittleEndian.PutUint32(garbage, uint32(len(garbage)))
	garbage[len(garbage)-1] = 0
	d := bson.Raw(garbage)
	if n := testing.AllocsPerRun(1, func() { _ = d.Validate() }); d.Validate() == nil || n > 20 {
		t.Errorf("100 MB of garbage: %v with %v allocations", d.Validate(), n)
	}
}

func TestLongKeysInErrors(t *testing.T) {
	d := bson.NewBuilder(nil).OpenDocument(strings.Repeat("é", 1<<20)).Bool("b", true).Close().
		Finish()
	d[len(d)-3] = 7
	err := d.Validate()
	if err == nil || len(err.Error()) > 400 || !strings.Contains(err.Error(), "…") {
		t.Errorf("error has %d bytes", len(err.Error()))
	}
}

func TestReader(t *testing.T) {
	want := []bson.Raw{
		sample(), {5, 0, 0, 0, 0}, bson.NewBuilder(nil).String("s", strings.Repeat("x", 300_000)).Finish(),
	}
	stream := bytes.Join([][]byte{want[0], want[1], want[2]}, nil)
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(stream), "byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
	} {
		i := 0
		for d, err := range bson.NewReader(r, 0).All() {
			if err != nil || !bytes.Equal(d, want[i]) {
				t.Fatalf("%s: document %d: %d bytes, %v", name, i, len(d), err)
			}
			i++
		}
		if i != len(want) {
			t.Errorf("%s: %d documents", name, i)
		}
	}
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"ends in a length":     {stream[:len(want[0])+2], io.ErrUnexpectedEOF},
		"ends in a document":   {stream[:len(want[0])-2], io.ErrUnexpectedEOF},
		"too large":            {[]byte{0, 0, 0, 2, 0}, bson.ErrTooLarge},
		"a length and no more": {[]byte{0, 0, 0, 1}, io.ErrUnexpectedEOF},
		"two bytes":            {[]byte{5, 0}, io.ErrUnexpectedEOF},
	} {
		r := bson.NewReader(bytes.NewReader(c.in), 0)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error = %v, want %v", name, err, c.want)
		}
		if _, again := r.Next(); again != err { //nolint:errorlint // the same error, not one like it
			t.Errorf("%s: then %v", name, again)
		}
	}
	for _, in := range [][]byte{{4, 0, 0, 0, 0}, {5, 0, 0, 0, 1}} {
		_, err := bson.NewReader(bytes.NewReader(in), 0).Next()
		if _, ok := errors.AsType[*bson.ValidationError](err); !ok {
			t.Errorf("Next of %x: %v", in, err)
		}
	}
	if _, err := bson.NewReader(bytes.NewReader(want[0]), 10).
		Next(); !errors.Is(err, bson.ErrTooLarge) {
		t.Errorf("Next with a limit of 10: %v", err)
	}
}

func FuzzValidate(f *testing.F) {
	f.Add([]byte(sample()))
	f.Add([]byte(nest(3)))
	f.Add([]byte{5, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := bson.Raw(b)
		walk(d)
		err := d.Validate()
		if invalid, ok := errors.AsType[*bson.ValidationError](err); err != nil &&
			(!ok || invalid.Offset > len(b)) {
			t.Errorf("Validate() = %v", err)
		}
		if err != nil {
			return
		}
		it := d.Iter()
		for it.Next() {
		}
		if it.Err() != nil {
			t.Errorf("a valid document: Iter().Err() = %v", it.Err())
		}
		normal := bson.Raw(bson.AppendNormal(nil, d))
		if normal.Validate() != nil || !bytes.Equal(bson.AppendNormal(nil, normal), normal) {
			t.Errorf("the normal form %x is not normal", []byte(normal))
		}
	})
}

func FuzzParseDecimal128(f *testing.F) {
	for _, s := range []string{
		"1.0E+3", "-Infinity", "0.0000001", "10E-6177", "9999999999999999999999999999999999E6111",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := bson.ParseDecimal128(s)
		if err != nil {
			return
		}
		if again, err := bson.ParseDecimal128(d.String()); err != nil || again != d {
			t.Errorf("%q is %v, which is %v, %v", s, d, again, err)
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	d := sample()
	b.SetBytes(int64(len(d)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Validate(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	d := sample()
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := d.Lookup("int64"); !ok {
			b.Fatal("not found")
		}
	}
}

func BenchmarkBuilder(b *testing.B) {
	var w bson.Builder
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		w.Reset(buf)
		w.String("find", "orders").OpenDocument("filter").Int32("a", 1).Close().Int32("limit", 5).
			Finish()
	}
}
