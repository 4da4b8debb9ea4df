package literal_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/literal"
)

var json = extjson.Parser{Limit: bson.MaxDocumentSize}

// canonical returns what a form makes of a text, as canonical Extended JSON.
func canonical(t testing.TB, form, text string) (string, error) {
	t.Helper()
	f, err := literal.ParseForm(form)
	if err != nil {
		t.Fatal(err)
	}
	b := bson.NewBuilder(nil)
	failed := f.Add(b, "v", text, json)
	out, err := extjson.Append(nil, b.Finish(), extjson.Canonical)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(out), `{"v":`), "}"), failed
}

func TestAuto(t *testing.T) {
	for text, want := range map[string]string{
		"1": `{"$numberInt":"1"}`, "-1": `{"$numberInt":"-1"}`, "0": `{"$numberInt":"0"}`,
		"-0": `{"$numberDouble":"-0.0"}`, "1.0": `{"$numberDouble":"1.0"}`,
		"1E5": `{"$numberDouble":"100000.0"}`, "1e-5": `{"$numberDouble":"0.00001"}`,
		"2147483648":          `{"$numberLong":"2147483648"}`,
		"9223372036854775808": `"9223372036854775808"`,
		"01":                  `"01"`, "+1": `"+1"`, ".5": `".5"`, "1.": `"1."`, "1e": `"1e"`,
		"0x1": `"0x1"`,
		"1_0": `"1_0"`, "1e999": `"1e999"`, "NaN": `"NaN"`, "-": `"-"`, "": `""`, " 1": `" 1"`,
		"true": "true", "false": "false", "null": "null", "True": `"True"`, "NULL": `"NULL"`,
		"5f1d7f3e9d3b2a0001234567": `{"$oid":"5f1d7f3e9d3b2a0001234567"}`,
		"5F1D7F3E9D3B2A0001234567": `{"$oid":"5f1d7f3e9d3b2a0001234567"}`,
		"123456789012345678901234": `{"$oid":"123456789012345678901234"}`,
		"5f1d7f3e9d3b2a000123456":  `"5f1d7f3e9d3b2a000123456"`,
		"2026-11-30":               `"2026-11-30"`,
	} {
		if got, err := canonical(t, "auto()", text); err != nil || got != want {
			t.Errorf("%q: %v, got %s, want %s", text, err, got, want)
		}
	}
}

func TestParseForm(t *testing.T) {
	for text, want := range map[string]string{
		"INT32()": "int32()", "objectid()": "objectId()", "date(ms)": "date(ms)",
		"date(2006-01-02)": "date(2006-01-02)", "binary(hex)": "binary(hex)", "auto()": "auto()",
	} {
		if f, err := literal.ParseForm(text); err != nil || f.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, f, err, want)
		}
	}
	for _, text := range []string{
		"", "int32", "int()", "int32(5)", "date(15:04)", "date(", "binary(utf8)", "json(x)", "()",
	} {
		if f, err := literal.ParseForm(text); err == nil {
			t.Errorf("%q is %v", text, f)
		}
	}
	if f := (literal.Form{}); f.String() != "auto()" || !f.IsAuto() || !f.TakesEmpty() {
		t.Errorf("the zero form is %v", f)
	}
}

// FuzzForms has a text that a form takes. What is made of it has a text, which is taken as the
// same.
func FuzzForms(f *testing.F) {
	for i, text := range []string{
		"x", "1", "-9", "1e5", "1.10", "true", "2026-11-30T10:15:00.5+01:00", "[1]", "0aff",
		"5f1d7f3e9d3b2a0001234567", "c8a5c0e0-5b1f-4c2e-9f1e-0123456789ab", "Cv8=",
	} {
		f.Add(i, text)
	}
	forms := append(literal.Names(), "date(ms)", "date(s)", "date(02.01.2006)", "binary(hex)")
	f.Fuzz(func(t *testing.T, i int, text string) {
		name := forms[uint(i)%uint(len(forms))]
		if !strings.Contains(name, "(") {
			name += "()"
		}
		form, err := literal.ParseForm(name)
		if err != nil {
			t.Fatal(err)
		}
		b := bson.NewBuilder(nil)
		if err := form.Add(b, "v", text, json); err != nil {
			return
		}
		v, ok := b.Finish().Lookup("v")
		if !ok || v.Validate() != nil {
			return // a text that is not UTF-8
		}
		out, err := form.Append(nil, v, extjson.Canonical)
		if err != nil {
			t.Fatalf("%s of %q has no text: %v", form, text, err)
		}
		b.Reset(nil)
		if err := form.Add(b, "v", string(out), json); err != nil {
			t.Fatalf("%s of %q is written as %q: %v", form, text, out, err)
		}
		if again, _ := b.Finish().Lookup("v"); !again.Equal(v) {
			t.Errorf("%s of %q is written as %q, which is %v, not %v", form, text, out, again, v)
		}
	})
}

// full is a Memory that has none.
type full struct{}

var errFull = errors.New("there is no memory")

func (full) Grow([]byte, int, int) ([]byte, error) { return nil, errFull }

// TestLongTexts has texts of MiB, for which there is no memory, take little more than themselves.
func TestLongTexts(t *testing.T) {
	const noDate = `…" is not a date such as 2026-11-30 or 2026-11-30T10:15:00Z`
	for _, row := range []struct{ form, text, want string }{
		{"date()", `{"a": [` + strings.Repeat("1,", 2<<20) + "1]}", noDate},
		{"date()", `{"$date": 0` + strings.Repeat(" ", 4<<20) + "}", noDate},
		{"binary()", strings.Repeat("AQID", 1<<20), errFull.Error()},
		{"binary(hex)", strings.Repeat("ab", 2<<20), errFull.Error()},
	} {
		form, err := literal.ParseForm(row.form)
		if err != nil {
			t.Fatal(err)
		}
		by := json
		by.Memory = full{}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = form.Add(bson.NewBuilder(nil), "v", row.text, by)
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		if err == nil || !strings.HasSuffix(err.Error(), row.want) || took > 1<<20 {
			t.Errorf("%s of %.20q: it took %d bytes, and %v", row.form, row.text, took, err)
		}
	}
}
