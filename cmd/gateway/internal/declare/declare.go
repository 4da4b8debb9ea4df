// Package declare writes types of documents as declarations in TypeScript, Go and Python. It does
// no I/O: package schema knows the types.
package declare

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/mooringdb/mooring/cmd/gateway/internal/schema"
)

// Collection represents a collection whose documents get a type.
type Collection struct {
	Name string
	As   string // the name of the type; empty: that of the collection, in the singular
	Type *schema.Type
	Doc  string // what is said of the type
}

// Options says what to write.
type Options struct {
	Language string   // "ts", "go" or "python"
	Head     []string // the comment at the top, a line each
	// BSON has documents of the types of the package bson, in TypeScript and Python. Otherwise they
	// are relaxed Extended JSON. In Go they are always those of the official driver.
	BSON    bool
	Package string // of Go
}

// Languages are the values of Options.Language.
var Languages = []string{"ts", "go", "python"}

// Write returns the declarations of collections.
func Write(collections []Collection, o Options) ([]byte, error) {
	o.Head = lines(strings.Join(o.Head, "\n"))
	switch o.Language {
	case "ts":
		return typeScript(collections, o), nil
	case "go":
		return golang(collections, o)
	case "python":
		return python(collections, o), nil
	}
	return nil, fmt.Errorf("%q is not one of the languages %s", o.Language,
		strings.Join(Languages, ", "))
}

// IsTypeName reports whether a word can be the name of a type in all languages.
func IsTypeName(word string) bool {
	return isASCIIWord(word) && 'A' <= word[0] && word[0] <= 'Z'
}

// declaration represents a type that gets a name.
type declaration struct {
	name string
	doc  []string // of a collection's type: the first line is a noun
	t    *schema.Type
}

// declarations names types. An embedded document has the name of its document and of its field.
type declarations struct {
	list   []declaration // a document before those in it
	names  map[*schema.Type]string
	taken  map[string]bool // those of declarations, and what the language itself uses
	values bool            // lists of strings get a name, too
}

// collect names the documents of collections, and what is in them.
func collect(collections []Collection, values bool, reserved ...string) *declarations {
	d := &declarations{
		names: map[*schema.Type]string{}, taken: map[string]bool{}, values: values,
	}
	for _, name := range reserved {
		d.taken[name] = true
	}
	for _, c := range collections {
		doc := lines("a document of the collection " + c.Name + ".\n" + c.Doc)
		d.add(cmp.Or(c.As, pascal(singular(c.Name))), doc, c.Type)
	}
	return d
}

func (d *declarations) add(name string, doc []string, t *schema.Type) {
	name = unique(name, d.taken)
	d.list = append(d.list, declaration{name, doc, t})
	d.names[t] = name
	for _, f := range t.Fields {
		d.within(name+pascal(f.Name), f.Type)
	}
}

// within names what is in a value that is called name.
func (d *declarations) within(name string, t *schema.Type) {
	switch {
	case t.May(schema.Object) && len(t.Fields) > 0:
		d.add(name, nil, t)
	case d.values && t.Strings != nil && t.Is(schema.String|schema.Null):
		name = unique(name, d.taken)
		d.list = append(d.list, declaration{name, nil, t})
		d.names[t] = name
	}
	if t.Values != nil && len(t.Fields) == 0 {
		d.within(singular(name), t.Values)
	}
	if t.Elements != nil {
		d.within(singular(name), t.Elements)
	}
}

// unique returns a name that is not taken, which it then is.
func unique(name string, taken map[string]bool) string {
	free := name
	for n := 2; taken[free]; n++ {
		free = fmt.Sprint(name, n)
	}
	taken[free] = true
	return free
}

// pascal returns a name as an exported identifier: order-items is OrderItems. What cannot be in
// one is left out.
func pascal(name string) string {
	var b strings.Builder
	upper := true
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			upper = true
			continue
		case upper:
			r = unicode.ToUpper(r)
		}
		upper = false
		b.WriteRune(r)
	}
	if s := b.String(); s != "" && unicode.IsUpper([]rune(s)[0]) {
		return s
	}
	return "X" + b.String()
}

// singular returns the name of one of many, where that is plain: orders, but not status.
func singular(name string) string {
	lower := strings.ToLower(name)
	for _, row := range []struct{ end, one string }{
		{"movies", "movie"},
		{"series", "series"},
		{"ies", "y"},
		{"sses", "ss"},
		{"xes", "x"},
		{"ches", "ch"},
		{"shes", "sh"},
		{"ss", "ss"},
		{"us", "us"},
		{"is", "is"},
		{"s", ""},
	} {
		if strings.HasSuffix(lower, row.end) && (len(lower) > len(row.end)+1 || len(row.end) > 4) {
			return name[:len(name)-len(row.end)] + row.one
		}
	}
	return name
}

// sentences returns what is said of a type, for languages that do not begin with its name.
func (d *declaration) sentences() []string {
	doc := slices.Clone(d.doc)
	if len(doc) > 0 {
		doc[0] = strings.ToUpper(doc[0][:1]) + doc[0][1:]
	}
	return doc
}

// text grows by lines.
type text struct{ bytes.Buffer }

func (t *text) line(format string, args ...any) {
	fmt.Fprintf(t, format, args...)
	t.WriteByte('\n')
}

// lines returns a description as lines of a comment, none of which can end it. Characters that
// sources may not have become spaces.
func lines(doc string) []string {
	doc = strings.ReplaceAll(strings.ToValidUTF8(doc, " "), "*/", "* /")
	all := strings.FieldsFunc(doc, func(r rune) bool {
		return r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029'
	})
	for i, line := range all {
		all[i] = strings.TrimRight(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) || r == '\ufeff' {
				return ' '
			}
			return r
		}, line), " ")
	}
	return slices.DeleteFunc(all, func(line string) bool { return line == "" })
}

// isASCIIWord reports whether a name is an identifier everywhere, but for reserved words.
func isASCIIWord(name string) bool {
	for i, r := range name {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// scalar holds the names that a language has for the values of some kinds.
type scalar struct {
	kinds schema.Kinds
	names []string
}

// scalars returns the names that a table has for the kinds of a type.
func scalars(t *schema.Type, table []scalar) []string {
	var names []string
	for _, row := range table {
		if !t.May(row.kinds) {
			continue
		}
		for _, name := range row.names {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
