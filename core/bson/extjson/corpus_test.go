package extjson_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/internal/spectest"
)

const corpus = "bson-corpus"

type corpusFile struct {
	BSONType     string        `json:"bson_type"`
	Valid        []corpusValid `json:"valid"`
	DecodeErrors []struct {
		Description, BSON string
	} `json:"decodeErrors"`
	ParseErrors []struct {
		Description, String string
	} `json:"parseErrors"`
}

type corpusValid struct {
	Description       string
	CanonicalBSON     string  `json:"canonical_bson"`
	DegenerateBSON    string  `json:"degenerate_bson"`
	ConvertedBSON     string  `json:"converted_bson"`
	CanonicalExtJSON  string  `json:"canonical_extjson"`
	RelaxedExtJSON    *string `json:"relaxed_extjson"`
	DegenerateExtJSON string  `json:"degenerate_extjson"`
	Lossy             bool
}

func readCorpus(t testing.TB) map[string]corpusFile {
	files := map[string]corpusFile{}
	for _, path := range spectest.Files(t, corpus) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var f corpusFile
		if err := json.Unmarshal(text, &f); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		files[path] = f
	}
	return files
}

func TestCorpus(t *testing.T) {
	for path, f := range readCorpus(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			for _, c := range f.Valid {
				spectest.Case(t, corpus, path, "valid: "+c.Description, func(t *testing.T) {
					runValid(t, c)
				})
				if c.ConvertedBSON != "" {
					spectest.Case(t, corpus, path, "converted: "+c.Description, func(t *testing.T) {
						spectest.SkipFailing(t,
							"deprecated types are carried unchanged, not converted", func(
								t testing.TB,
							) {
								if !bytes.Equal(rebuild(unhex(t, c.CanonicalBSON)),
									unhex(t, c.ConvertedBSON)) {
									t.Error("unchanged")
								}
							})
					})
				}
			}
			for _, c := range f.DecodeErrors {
				spectest.Case(t, corpus, path, "decode error: "+c.Description, func(t *testing.T) {
					runDecodeError(t, c.BSON)
				})
			}
			for _, c := range f.ParseErrors {
				spectest.Case(t, corpus, path, "parse error: "+c.Description, func(t *testing.T) {
					runParseError(t, f.BSONType, c.String)
				})
			}
		})
	}
}

func runValid(t *testing.T, c corpusValid) {
	cB := unhex(t, c.CanonicalBSON)
	if err := bson.Raw(cB).Validate(); err != nil {
		t.Fatalf("Validate(cB) = %v", err)
	}
	if got := rebuild(cB); !bytes.Equal(got, cB) {
		t.Errorf("cB rebuilt = %x, want %x", got, cB)
	}
	if got := bson.AppendNormal(nil, cB); !bytes.Equal(got, cB) {
		t.Errorf("AppendNormal(cB) = %x, want %x", got, cB)
	}
	if c.DegenerateBSON != "" {
		dB := unhex(t, c.DegenerateBSON)
		if err := bson.Raw(dB).Validate(); err != nil {
			t.Errorf("Validate(dB) = %v", err)
		}
		if got := bson.AppendNormal(nil, dB); !bytes.Equal(got, cB) {
			t.Errorf("dB → cB = %x, want %x", got, cB)
		}
	}
	sameJSON(t, "cB → cEJ", write(t, cB, extjson.Canonical), c.CanonicalExtJSON)
	texts := []string{c.CanonicalExtJSON}
	if c.DegenerateExtJSON != "" {
		texts = append(texts, c.DegenerateExtJSON)
	}
	for _, text := range texts {
		b := parse(t, text)
		if !c.Lossy && !bytes.Equal(b, cB) {
			t.Errorf("%s → cB = %x, want %x", text, b, cB)
		}
		sameJSON(t, text+" → cEJ", write(t, b, extjson.Canonical), c.CanonicalExtJSON)
	}
	if c.RelaxedExtJSON == nil {
		return
	}
	sameJSON(t, "cB → rEJ", write(t, cB, extjson.Relaxed), *c.RelaxedExtJSON)
	sameJSON(t, "rEJ → rEJ", write(t, parse(t, *c.RelaxedExtJSON), extjson.Relaxed),
		*c.RelaxedExtJSON)
}

func runDecodeError(t *testing.T, text string) {
	b := unhex(t, text)
	if err := bson.Raw(b).Validate(); err == nil {
		t.Errorf("Validate(%s) = nil, want an error", text)
	}
	if out, err := extjson.Append(nil, b, extjson.Canonical); err == nil {
		t.Errorf("Append(%s) = %s, want an error", text, out)
	}
}

func runParseError(t *testing.T, bsonType, text string) {
	if bsonType == "0x13" {
		if d, err := bson.ParseDecimal128(text); err == nil {
			t.Errorf("ParseDecimal128(%q) = %v, want an error", text, d)
		}
		return
	}
	if !json.Valid([]byte(text)) {
		t.Errorf("%s is not even JSON", text)
	}
	if out, err := extjson.Parse(nil, []byte(text)); err == nil {
		t.Errorf("Parse(%s) = %x, want an error", text, out)
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, d bson.Raw, m extjson.Mode) string {
	t.Helper()
	out, err := extjson.Append(nil, d, m)
	if err != nil {
		t.Fatalf("Append(%x) = %v", []byte(d), err)
	}
	return string(out)
}

func parse(t testing.TB, text string) bson.Raw {
	t.Helper()
	out, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatalf("Parse(%s) = %v", text, err)
	}
	return out
}

// sameJSON compares the tokens of two texts: white space and escapes may differ,
// and numbers may be written differently.
func sameJSON(t testing.TB, what, got, want string) {
	t.Helper()
	if tokens(t, got) != tokens(t, want) {
		t.Errorf("%s = %s, want %s", what, got, want)
	}
}

func tokens(t testing.TB, text string) string {
	t.Helper()
	var b strings.Builder
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err == io.EOF {
			return b.String()
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		switch v := token.(type) {
		case json.Number:
			b.WriteString(normalNumber(string(v)))
		case string:
			b.WriteString(strconv.Quote(v))
		case json.Delim:
			b.WriteString(v.String())
		case bool:
			b.WriteString(strconv.FormatBool(v))
		default:
			b.WriteString("null")
		}
		b.WriteByte(' ')
	}
}

// normalNumber keeps integers as they are, and the sign of zero.
func normalNumber(s string) string {
	if !strings.ContainsAny(s, ".eE") {
		return s
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return "float " + strconv.FormatFloat(f, 'e', -1, 64)
}

// rebuild takes every value out by its accessor and puts it in again by the
// Builder's method for its type.
func rebuild(d bson.Raw) bson.Raw {
	b := bson.NewBuilder(nil)
	for key, v := range d.All() {
		rebuildValue(b, key, v)
	}
	return b.Finish()
}

func rebuildValue(b *bson.Builder, key string, v bson.Value) {
	switch v.Type {
	case bson.TypeDouble:
		f, _ := v.Double()
		b.Double(key, f)
	case bson.TypeString:
		s, _ := v.Str()
		b.String(key, s)
	case bson.TypeDocument:
		d, _ := v.Document()
		b.OpenDocument(key)
		for key, v := range d.All() {
			rebuildValue(b, key, v)
		}
		b.Close()
	case bson.TypeArray:
		a, _ := v.Array()
		b.OpenArray(key)
		for _, v := range a.All() {
			rebuildValue(b, "", v)
		}
		b.Close()
	case bson.TypeBinary:
		subtype, data, _ := v.Binary()
		b.Binary(key, subtype, data)
	case bson.TypeUndefined:
		b.Undefined(key)
	case bson.TypeObjectID:
		id, _ := v.ObjectID()
		b.ObjectID(key, id)
	case bson.TypeBool:
		x, _ := v.Bool()
		b.Bool(key, x)
	case bson.TypeDateTime:
		ms, _ := v.DateTime()
		b.DateTime(key, ms)
	case bson.TypeNull:
		b.Null(key)
	case bson.TypeRegex:
		pattern, options, _ := v.Regex()
		b.Regex(key, pattern, options)
	case bson.TypeDBPointer:
		ns, id, _ := v.DBPointer()
		b.DBPointer(key, ns, id)
	case bson.TypeJavaScript:
		s, _ := v.JavaScript()
		b.JavaScript(key, s)
	case bson.TypeSymbol:
		s, _ := v.Symbol()
		b.Symbol(key, s)
	case bson.TypeCodeWithScope:
		code, scope, _ := v.CodeWithScope()
		b.CodeWithScope(key, code, rebuild(scope))
	case bson.TypeInt32:
		n, _ := v.Int32()
		b.Int32(key, n)
	case bson.TypeTimestamp:
		sec, inc, _ := v.Timestamp()
		b.Timestamp(key, sec, inc)
	case bson.TypeInt64:
		n, _ := v.Int64()
		b.Int64(key, n)
	case bson.TypeDecimal128:
		d, _ := v.Decimal128()
		b.Decimal128(key, d)
	case bson.TypeMinKey:
		b.MinKey(key)
	case bson.TypeMaxKey:
		b.MaxKey(key)
	}
}
