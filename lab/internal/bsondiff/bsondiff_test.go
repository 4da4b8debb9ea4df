package bsondiff_test

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/lab/internal/bsondiff"
)

// rounds is how many documents and texts the tests generate; BSONDIFF_ROUNDS changes it.
func rounds(t *testing.T) uint64 {
	if s := os.Getenv("BSONDIFF_ROUNDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if testing.Short() {
		return 500
	}
	return 2500
}

// Both sides accept the same documents and texts, and make the same of them; but for what is in
// the tables.
func TestGenerated(t *testing.T) {
	p := bsondiff.NewPair()
	met := map[string]int{}
	for seed := range rounds(t) {
		g := bsondiff.NewGenerator(seed)
		for _, doc := range [][]byte{g.Document(), g.Broken()} {
			known, err := p.Document(doc)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, d := range known {
				met[d.Name]++
			}
		}
		for range 4 {
			d, err := p.Text(g.Text())
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if d != nil {
				met[d.Name]++
			}
		}
	}
	for name, n := range met {
		t.Logf("%6d × %s", n, name)
	}
	if len(met) < 15 {
		t.Errorf("%d known differences were met: the generator does not reach what it should",
			len(met))
	}
}

// What generated documents hold is carried; BSON → canonical → BSON is the identity, and both
// sides' texts say the same.
func TestGeneratedAreCarried(t *testing.T) {
	for seed := range rounds(t) {
		d := bsondiff.NewGenerator(seed).Document()
		if c := bsondiff.Uncarried(d); c != 0 {
			t.Fatalf("seed %d has an uncarried %v", seed, c)
		}
		text, err := extjson.Append(nil, d, extjson.Canonical)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := extjson.Parse(nil, text); err != nil || !bytes.Equal(back, d) {
			t.Fatalf("seed %d: %x → %s → %x, %v", seed, []byte(d), text, back, err)
		}
	}
}

// The three classes that Extended JSON cannot carry: a wrapper's look-alike is refused or is
// something else; a NaN and a decimal come back as the same number in the canonical encoding, and
// what is beside them as it was.
func TestUncarried(t *testing.T) {
	for _, class := range bsondiff.Classes {
		t.Run(class.String(), func(t *testing.T) {
			for seed := range rounds(t) / 4 {
				d := bsondiff.NewGenerator(seed).Uncarried(class)
				if bsondiff.Uncarried(d) != class {
					t.Fatalf("seed %d: %x is not of the class", seed, []byte(d))
				}
				if _, err := bsondiff.NewPair().Document(d); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				text, err := extjson.Append(nil, d, extjson.Canonical)
				if err != nil {
					t.Fatal(err)
				}
				back, err := extjson.Parse(nil, text)
				if class == bsondiff.Wrapper {
					if err == nil && bytes.Equal(back, d) {
						t.Fatalf("seed %d: %s carries it", seed, text)
					}
					continue
				}
				if want := canonicalNumbers(t, d); err != nil || !bytes.Equal(back, want) ||
					bytes.Equal(back, d) {
					t.Fatalf("seed %d: %s → %x, %v, want %x", seed, text, back, err, []byte(want))
				}
			}
		})
	}
}

// canonicalNumbers is d with the values that Uncarried has put in it in their canonical encoding.
func canonicalNumbers(t *testing.T, d bson.Raw) bson.Raw {
	t.Helper()
	if _, ok := d.Lookup("nan"); ok {
		return bson.With(d, "nan",
			bson.Value{Type: bson.TypeDouble, Data: []byte{0, 0, 0, 0, 0, 0, 0xF8, 0x7F}})
	}
	v, _ := d.Lookup("decimal")
	dec, _ := v.Decimal128()
	canonical, err := bson.ParseDecimal128(dec.String())
	if err != nil {
		t.Fatal(err)
	}
	return bson.With(d, "decimal", bson.Decimal128Value(canonical))
}

// Every line of the tables is as it says, so a line that is out of date is found.
func TestKnownDifferences(t *testing.T) {
	p := bsondiff.NewPair()
	outcome := func(err error) string {
		if err != nil {
			return "refused"
		}
		return "accepted"
	}
	check := func(d bsondiff.Difference, ours, theirs error) {
		t.Helper()
		if outcome(ours) != d.Ours || outcome(theirs) != d.Theirs {
			t.Errorf("%s: ours: %v, want it %s; theirs: %v, want it %s", d.Name, ours, d.Ours,
				theirs, d.Theirs)
		}
		if d.Rule == "" {
			t.Errorf("%s has no rule", d.Name)
		}
	}
	for _, d := range bsondiff.AcceptingDocuments() {
		doc := []byte(d.Example)
		check(d, p.Ours.Validate(doc), p.Theirs.Validate(doc))
		if known, err := p.Document(doc); err != nil || len(known) != 1 || known[0].Name != d.Name {
			t.Errorf("%s: found as %v, %v", d.Name, known, err)
		}
	}
	for _, d := range bsondiff.AcceptingTexts() {
		_, ours := p.Ours.Read([]byte(d.Example))
		_, theirs := p.Theirs.Read([]byte(d.Example))
		check(d, ours, theirs)
		if known, err := p.Text([]byte(d.Example)); err != nil || known == nil ||
			known.Name != d.Name {
			t.Errorf("%s: found as %v, %v", d.Name, known, err)
		}
	}
	for _, d := range bsondiff.Reading() {
		if known, err := p.Text([]byte(d.Example)); err != nil || known == nil ||
			known.Name != d.Name || d.Rule == "" {
			t.Errorf("%s: found as %v, %v", d.Name, known, err)
		}
	}
	for _, d := range bsondiff.Spelling() {
		ours, err := p.Ours.Write([]byte(d.Example), false)
		if err != nil || string(ours) != d.Ours {
			t.Errorf("%s: ours: %s, %v, want %s", d.Name, ours, err, d.Ours)
		}
		if theirs, err := p.Theirs.Write([]byte(d.Example), false); err != nil ||
			string(theirs) != d.Theirs || d.Rule == "" {
			t.Errorf("%s: theirs: %s, %v, want %s", d.Name, theirs, err, d.Theirs)
		}
	}
	for _, d := range bsondiff.Writing() {
		doc := []byte(d.Example)
		text, err := p.Theirs.Write(doc, true)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := p.Ours.Read(text); err == nil && bytes.Equal(back, doc) {
			t.Errorf("%s: theirs writes %s, which carries it", d.Name, text)
		}
		if text, err = p.Ours.Write(doc, true); err != nil {
			t.Fatal(err)
		}
		if back, err := p.Theirs.Read(text); err != nil || !bytes.Equal(back, doc) {
			t.Errorf("%s: ours writes %s, which theirs reads as %x, %v", d.Name, text, back, err)
		}
		if known, err := p.Document(doc); err != nil || len(known) == 0 ||
			known[0].Name != d.Name || d.Rule == "" {
			t.Errorf("%s: found as %v, %v", d.Name, known, err)
		}
	}
}

// TestDocumented checks that docs/bson.md has every known difference and every class that is not
// carried.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/bson.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range [][]bsondiff.Difference{
		bsondiff.AcceptingDocuments(), bsondiff.AcceptingTexts(), bsondiff.Writing(),
		bsondiff.Spelling(), bsondiff.Reading(),
	} {
		for _, d := range table {
			if !bytes.Contains(text, []byte("| "+d.Name+" |")) {
				t.Errorf("docs/bson.md has no line for %q", d.Name)
			}
		}
	}
	for _, class := range bsondiff.Classes {
		if !bytes.Contains(text, []byte(class.String())) {
			t.Errorf("docs/bson.md does not name %q", class)
		}
	}
}

// The comparison can fail: each of these mistakes is found within a few hundred documents.
func TestMistakesAreFound(t *testing.T) {
	good := bsondiff.Ours()
	replaced := func(old, with string) bsondiff.Codec {
		c := good
		c.Write = func(doc []byte, canonical bool) ([]byte, error) {
			text, err := good.Write(doc, canonical)
			return bytes.ReplaceAll(text, []byte(old), []byte(with)), err
		}
		return c
	}
	lenient := good
	lenient.Read = func(text []byte) ([]byte, error) {
		doc, _, err := extjson.ParsePrefix(nil, text) // whatever follows
		if err == nil && bytes.HasSuffix(text, []byte(",")) {
			return nil, errors.New("a comma at the end")
		}
		return doc, err
	}
	careless := good
	careless.Validate = func(doc []byte) error {
		for it := bson.Raw(doc).Iter(); it.Next(); { // the outermost elements alone
		}
		_, _, err := bson.Read(doc)
		return err
	}
	truncating := good
	truncating.Read = func(text []byte) ([]byte, error) {
		doc, err := good.Read(text)
		if len(doc) > 8 && doc[4] == byte(bson.TypeTimestamp) {
			doc[len(doc)-2] = 0
		}
		return doc, err
	}
	for name, c := range map[string]bsondiff.Codec{
		"negative zero loses its sign": replaced(`"-0.0"`, `"0.0"`),
		"symbols become strings":       replaced(`{"$symbol":`, `{"$code":`),
		"options are not sorted":       replaced(`"options":"imsx"`, `"options":"xsmi"`),
		"dates lose their zeros":       replaced(`.100Z`, `.001Z`),
		"subtypes are decimal":         replaced(`"subType":"80"`, `"subType":"128"`),
		"a backslash is not escaped":   replaced(`\\`, `\`),
		"embedded documents unchecked": careless,
		"a comma at the end":           lenient,
		"timestamps are cut":           truncating,
	} {
		t.Run(name, func(t *testing.T) {
			p := bsondiff.NewPair()
			p.Ours = c
			for seed := range uint64(20000) {
				g := bsondiff.NewGenerator(seed)
				_, err := p.Document(g.Document())
				if err == nil {
					_, err = p.Document(g.Broken())
				}
				if err == nil {
					_, err = p.Text(g.Text())
				}
				if err != nil {
					t.Logf("found with seed %d", seed)
					return
				}
			}
			t.Error("not found")
		})
	}
}

func TestGeneratorIsDeterministic(t *testing.T) {
	a, b := bsondiff.NewGenerator(7), bsondiff.NewGenerator(7)
	for range 100 {
		if !bytes.Equal(a.Document(), b.Document()) || !bytes.Equal(a.Text(), b.Text()) ||
			!bytes.Equal(a.Broken(), b.Broken()) {
			t.Fatal("the same seed gives different documents")
		}
	}
}
