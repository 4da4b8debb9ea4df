package shell

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// namespace returns the database and the collection that a word names.
func namespace(word string) (database, collection string, err error) {
	database, collection, ok := strings.Cut(word, ".")
	if !ok || database == "" || collection == "" {
		return "", "", usage("%q is not a namespace, which is DATABASE.COLLECTION", word)
	}
	return database, collection, nil
}

// namespace returns the database and the collection that the first word names. If they are two
// words, it says how to write them.
func (s *session) namespace() (database, collection string, err error) {
	database, collection, err = namespace(s.operand(0))
	next := s.operand(1)
	if err == nil || !isName(s.operand(0)) || !isName(next) {
		return database, collection, err
	}
	return "", "", usage("%v: did you mean %s.%s?", err, s.operand(0), next)
}

// isName reports whether a word looks like the name of a database or a collection, and not like
// JSON or a file.
func isName(word string) bool { return word != "" && !strings.ContainsAny(word, `{[@-"./ `) }

// mostText is how much is read of a file or of standard input that stands for a word.
const mostText = 64 << 20

// word returns the text that a word of JSON stands for: itself, the content of a file for @FILE, or
// standard input for -.
func (s *session) word(word string) ([]byte, error) {
	var from io.Reader
	switch path, isFile := strings.CutPrefix(word, "@"); {
	case word == "-" || path == "-" && isFile:
		from = s.Stdin
	case isFile:
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	default:
		return []byte(word), nil
	}
	text, err := io.ReadAll(io.LimitReader(from, mostText+1))
	if err == nil && len(text) > mostText {
		err = fmt.Errorf("%s is longer than %d MiB", word, mostText>>20)
	}
	return text, err
}

// parser reads JSON, and older forms of two types, too.
var parser = extjson.Parser{Limit: extjson.NoLimit, Legacy: true}

// document returns the document of a word, nil for "". name is how the usage line calls it.
func (s *session) document(name, word string) (*mooringv1.Document, error) {
	if word == "" {
		return nil, nil
	}
	text, err := s.word(word)
	if err != nil {
		return nil, err
	}
	doc, err := parser.Parse(nil, text)
	if err != nil {
		return nil, wrongJSON(name, err)
	}
	return document(doc), nil
}

// documents returns the documents of a JSON array.
func (s *session) documents(name, word string) ([]*mooringv1.Document, error) {
	text, err := s.word(word)
	if err != nil {
		return nil, err
	}
	v, _, err := parser.ParseValue(nil, text)
	if err != nil {
		return nil, wrongJSON(name, err)
	}
	items, ok := v.Array()
	if !ok {
		return nil, usage("%s is not an array: [{…}, …]", name)
	}
	var docs []*mooringv1.Document
	for i, item := range items.All() {
		doc, ok := item.Document()
		if !ok {
			return nil, usage("%s: item %d is not a document", name, i)
		}
		docs = append(docs, document(doc))
	}
	return docs, nil
}

func document(d bson.Raw) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: d}}
}

// wrongJSON describes a text that is not valid Extended JSON.
func wrongJSON(name string, err error) error {
	problem := strings.TrimPrefix(err.Error(), "extended JSON: ")
	return usage("%s is not valid Extended JSON, such as {\"total\": {\"$gt\": 10}}: %s", name,
		problem)
}
