package bson_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/spectest"
)

type vectorFile struct {
	TestKey string `json:"test_key"`
	Tests   []struct {
		Description   string
		Valid         bool
		Vector        *[]any
		DType         string `json:"dtype_hex"`
		Padding       int
		CanonicalBSON string `json:"canonical_bson"`
	}
}

func TestVectorSpecification(t *testing.T) {
	const suite = "bson-binary-vector"
	for _, path := range spectest.Files(t, suite) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var f vectorFile
		if err := json.Unmarshal(text, &f); err != nil {
			t.Fatal(err)
		}
		for _, c := range f.Tests {
			spectest.Case(t, suite, path, c.Description, func(t *testing.T) {
				dtype, err := strconv.ParseUint(strings.TrimPrefix(c.DType, "0x"), 16, 8)
				if err != nil {
					t.Fatal(err)
				}
				if c.Vector != nil {
					v, err := bson.NewVector(bson.VectorType(dtype), numbers(t, *c.Vector),
						c.Padding)
					if (err == nil) != c.Valid {
						t.Errorf("NewVector(%v) error = %v, want valid = %v", *c.Vector, err,
							c.Valid)
					}
					if c.Valid {
						encodeVector(t, f.TestKey, v, c.CanonicalBSON)
					}
				}
				if c.CanonicalBSON == "" {
					return
				}
				doc := unhex(t, c.CanonicalBSON)
				value, ok := doc.Lookup(f.TestKey)
				if !ok {
					t.Fatalf("no %s in %x", f.TestKey, []byte(doc))
				}
				v, err := value.Vector()
				if (err == nil) != c.Valid {
					t.Errorf("Vector() error = %v, want valid = %v", err, c.Valid)
				}
				if c.Valid {
					encodeVector(t, f.TestKey, v, c.CanonicalBSON)
				}
			})
		}
	}
}

func encodeVector(t *testing.T, key string, v bson.Vector, want string) {
	t.Helper()
	value, err := v.Value()
	if err != nil {
		t.Fatal(err)
	}
	if got := bson.NewBuilder(nil).Value(key, value).Finish(); !bytes.Equal(got, unhex(t, want)) {
		t.Errorf("encoded vector = %x, want %s", []byte(got), want)
	}
}

func numbers(t *testing.T, values []any) []float64 {
	var out []float64
	for _, v := range values {
		switch v := v.(type) {
		case float64:
			out = append(out, v)
		case string: // before the revision of 2026
			out = append(out, number(t, v))
		case map[string]any:
			text, _ := v["$numberDouble"].(string)
			out = append(out, number(t, text))
		default:
			t.Fatalf("vector element %v of type %T", v, v)
		}
	}
	return out
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func unhex(t testing.TB, s string) bson.Raw {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestVectorIgnoredBits runs the prose tests on bits that the padding excludes: if one is set, the
// vector is refused in both directions, and the document with it stays readable.
func TestVectorIgnoredBits(t *testing.T) {
	if _, err := bson.NewVector(bson.VectorPackedBit, []float64{255}, 7); !errors.Is(err,
		bson.ErrVectorBits) {
		t.Errorf("NewVector(0xFF, padding 7) error = %v, want ErrVectorBits", err)
	}
	v := bson.Vector{Type: bson.VectorPackedBit, Padding: 7, Data: []byte{0xFF}}
	if _, err := v.Value(); !errors.Is(err, bson.ErrVectorBits) {
		t.Errorf("Value() error = %v, want ErrVectorBits", err)
	}
	value := bson.BinaryValue(bson.SubtypeVector, []byte{0x10, 7, 0xFF})
	if _, err := value.Vector(); !errors.Is(err, bson.ErrVectorBits) {
		t.Errorf("Vector() error = %v, want ErrVectorBits", err)
	}
	if err := value.Validate(); err != nil {
		t.Errorf("Validate() of the binary = %v", err)
	}
	clean := bson.Vector{Type: bson.VectorPackedBit, Padding: 7, Data: []byte{0x80}}
	if err := clean.Validate(); err != nil || clean.Len() != 1 || clean.At(0) != 1 {
		t.Errorf("%v has length %d and is %v", clean, clean.Len(), err)
	}
	if !clean.Equal(clean) ||
		clean.Equal(bson.Vector{Type: bson.VectorPackedBit, Padding: 6, Data: []byte{0x80}}) ||
		clean.Equal(bson.Vector{Type: bson.VectorPackedBit, Padding: 7, Data: []byte{0}}) {
		t.Error("Equal does not compare padding and elements")
	}
}

func TestVectorElements(t *testing.T) {
	v := bson.NewFloat32Vector([]float32{1.5, -2, float32(math.Inf(1))})
	if v.Len() != 3 || v.At(0) != 1.5 || v.At(1) != -2 || !math.IsInf(v.At(2), 1) {
		t.Errorf("elements of %v", v)
	}
	bits := bson.Vector{Type: bson.VectorPackedBit, Padding: 4, Data: []byte{238, 224}}
	text := ""
	for i := range bits.Len() {
		text += strconv.Itoa(int(bits.At(i)))
	}
	if text != "111011101110" {
		t.Errorf("bits = %s, want 111011101110", text)
	}
	ints := bson.Vector{Type: bson.VectorInt8, Data: []byte{0x80, 0x7F}}
	if ints.At(0) != -128 || ints.At(1) != 127 || !ints.Equal(ints) || ints.Equal(bits) {
		t.Errorf("elements of %v", ints)
	}
	for name, v := range map[string]bson.Value{
		"unknown type":  bson.BinaryValue(bson.SubtypeVector, []byte{0x11, 0}),
		"no header":     bson.BinaryValue(bson.SubtypeVector, []byte{0x03}),
		"other subtype": bson.BinaryValue(0, []byte{0x03, 0}),
		"other value":   bson.NullValue(),
	} {
		if _, err := v.Vector(); !errors.Is(err, bson.ErrVectorType) {
			t.Errorf("%s: error = %v, want ErrVectorType", name, err)
		}
	}
	if _, err := bson.NewVector(bson.VectorFloat32, []float64{1e300}, 0); !errors.Is(err,
		bson.ErrVectorElement) {
		t.Errorf("NewVector(1e300) error = %v", err)
	}
	if _, err := (bson.Vector{Type: bson.VectorInt8, Padding: 1}).
		Value(); !errors.Is(err, bson.ErrVectorPadding) {
		t.Errorf("Value of a padded INT8 vector: error = %v", err)
	}
}

func TestVectorTypeString(t *testing.T) {
	for v, want := range map[bson.VectorType]string{
		bson.VectorInt8: "INT8", bson.VectorFloat32: "FLOAT32", bson.VectorPackedBit: "PACKED_BIT", 1: "vector type 0x01",
	} {
		if got := v.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}
