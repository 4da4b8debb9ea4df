package payload_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

var errNone = errors.New("no memory")

// budget counts what is charged, up to a limit.
type budget struct {
	charged, limit int64
	work           int
}

func (b *budget) Do(bytes int) error {
	b.work += bytes
	return nil
}

func (b *budget) Charge(bytes int64) error {
	if b.charged+bytes > b.limit {
		return errNone
	}
	b.charged += bytes
	return nil
}

func (b *budget) Vacate(bytes int64) {}

// TestMaker makes documents of texts that become several times longer, beside small ones. Each is
// what extjson makes of it, and nothing that is made later changes it.
func TestMaker(t *testing.T) {
	texts := []string{
		`{"a": 1}`, `{}`, `{"small": "` + strings.Repeat("x", 300) + `"}`,
		`{"many": [` + strings.Repeat("1,", 1<<20) + `1]}`,
		`{"long": "` + strings.Repeat("x", 2<<20) + `"}`, `{"b": [1, 2]}`,
		`{"many": [` + strings.Repeat("{},", 1<<18) + `1]}`,
	}
	var text []byte
	var want [][]byte
	for range 3 {
		for _, one := range texts {
			doc, err := extjson.Parse(nil, []byte(one))
			if err != nil {
				t.Fatal(err)
			}
			text, want = append(text, one...), append(want, doc)
		}
	}
	b := &budget{limit: 1 << 40}
	m := payload.NewMaker(b, len(text))
	var got [][]byte
	size := 0
	for at := 0; at < len(text); {
		doc, n, err := m.Document(text[at:])
		if err != nil {
			t.Fatal(err)
		}
		at, size, got = at+n, size+len(doc), append(got, doc)
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("document %d has %d bytes, want %d", i, len(got[i]), len(want[i]))
		}
	}
	most := 2 * int64(2*size)
	if least := 2 * int64(size-len(text)-64<<10); b.charged < least || b.charged > most {
		t.Errorf("%d bytes of text and %d of BSON cost %d, want %d to %d", len(text), size,
			b.charged, least, most)
	}
}

// TestMakerTakesLittle checks that a text for whose BSON there is no memory takes no more than
// there is, in one document and in a field of a message.
func TestMakerTakesLittle(t *testing.T) {
	const limit = 4 << 20
	text := `{"a": [` + strings.Repeat("1,", 4<<20) + `1]}`
	for name, read := range map[string]func() error{
		"Document": func() error {
			m := payload.NewMaker(&budget{limit: limit}, 0)
			_, _, err := m.Document([]byte(text))
			return err
		},
		"Value": func() error {
			m := payload.NewMaker(&budget{limit: limit}, 0)
			_, _, err := m.Value([]byte(text))
			return err
		},
		"a document": func() error {
			_, err := payload.Decoder{By: &budget{limit: limit + 2*int64(len(text))}}.Raw("filter",
				&mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}})
			return err
		},
		"a value": func() error {
			_, err := payload.Decoder{By: &budget{limit: limit}}.Value("comment",
				&mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: text}})
			return err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, errNone) ||
			took > 2*uint64(len(text))+2*limit {
			t.Errorf("%s: it took %d bytes, and %v", name, took, err)
		}
	}
}

// TestPairsAreFew checks that an array of pairs cannot become many times longer than its text.
func TestPairsAreFew(t *testing.T) {
	long := `["a", [` + strings.Repeat("1,", 40_000) + `1]]`
	for name, text := range map[string]string{
		"one value":   `[["a", [` + strings.Repeat("1,", 1<<20) + `1]]]`,
		"many values": `[` + strings.Repeat(long+",", 10) + long + `]`,
		"many nulls":  `[` + strings.Repeat(`["",null],`, 1<<20) + `["",null]]`,
	} {
		_, _, err := payload.AppendPairs(nil, []byte(text))
		if syntax, ok := errors.AsType[*extjson.SyntaxError](err); !ok || !syntax.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPairsAreCharged checks that an array of pairs in a field of a message is the call's work, and
// that its BSON is charged as that of the same object.
func TestPairsAreCharged(t *testing.T) {
	ones := "[" + strings.Repeat("1,", 40_000) + "1]"
	var charged, work [2]int64
	for i, text := range []string{`[["a",` + ones + `]]`, `{"a":` + ones + `}`} {
		b := &budget{limit: 1 << 40}
		if _, err := (payload.Decoder{By: b}).Keys("sort", jsonDoc(text)); err != nil {
			t.Fatal(err)
		}
		charged[i], work[i] = b.charged, int64(b.work-len(text))
		b = &budget{limit: 1 << 10}
		_, err := payload.Decoder{By: b}.Keys("sort", jsonDoc(text))
		if !errors.Is(err, errNone) {
			t.Errorf("%.10s: without memory: %v", text, err)
		}
	}
	if work[0] != work[1] || charged[0] < charged[1]/2 || charged[0] > charged[1] {
		t.Errorf("charged %d, and %d of work beside the texts", charged, work)
	}
	small := &budget{}
	_, err := payload.Decoder{By: small}.Keys("sort", jsonDoc(`[["b", 1], ["2", -1]]`))
	if err != nil || small.charged != 0 {
		t.Errorf("a small one: %d are charged, %v", small.charged, err)
	}
}

// TestEscapes checks that texts of escapes, which become half of their length or less, are not
// charged as if they became as long as they are, and that texts of backslashes are read, too.
func TestEscapes(t *testing.T) {
	const n, texts = 1000, 1000
	for _, row := range []struct {
		escape string
		most   int64 // of the length of the text
	}{
		{`\u0001`, 1}, {`\u20ac`, 2}, {`x`, 4}, {`\\u00`, 5},
	} {
		b := &budget{limit: 1 << 40}
		one := `"` + strings.Repeat(row.escape, n) + `",`
		text := `{"a":[` + strings.Repeat(one, texts) + `1]}`
		want, err := extjson.Parse(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := payload.Decoder{By: b}.Raw("", &mooringv1.Document{
			Encoding: &mooringv1.Document_Json{Json: text},
		})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", row.escape, len(got), err, len(want))
		}
		if b.charged < int64(len(want)) || b.charged > row.most*int64(len(text)) {
			t.Errorf("%s: %d bytes are charged for %d of %d", row.escape, b.charged, len(want),
				len(text))
		}
	}
}
