package declare

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/cmd/gateway/internal/schema"
)

// inTypeScript has the types of relaxed Extended JSON. Those that are not types of the language are
// exported by mooring-client.
var inTypeScript = []scalar{
	{schema.Double | schema.Int | schema.Long, []string{"number"}},
	{schema.Long, []string{"Long"}},
	{schema.Decimal, []string{"Decimal128"}},
	{schema.String, []string{"string"}},
	{schema.Bool, []string{"boolean"}},
	{schema.ObjectID, []string{"ObjectId"}},
	{schema.Date, []string{"DateTime"}},
	{schema.Binary, []string{"Binary"}},
	{schema.Timestamp, []string{"Timestamp"}},
	{schema.Regex, []string{"RegularExpression"}},
	{schema.JavaScript | schema.CodeWithScope, []string{"Code"}},
	{schema.Symbol, []string{"BSONSymbol"}},
	{schema.DBPointer, []string{"DBPointer"}},
	{schema.MinKey, []string{"MinKey"}},
	{schema.MaxKey, []string{"MaxKey"}},
	{schema.Undefined, []string{"undefined"}},
	{schema.Null, []string{"null"}},
}

// inTypeScriptBSON has the types of the package bson, as the README's codec reads them.
var inTypeScriptBSON = []scalar{
	{schema.Double | schema.Int, []string{"number"}},
	{schema.Long, []string{"bigint"}},
	{schema.Decimal, []string{"Decimal128"}},
	{schema.String, []string{"string"}},
	{schema.Bool, []string{"boolean"}},
	{schema.ObjectID, []string{"ObjectId"}},
	{schema.Date, []string{"Date"}},
	{schema.Binary, []string{"Binary"}},
	{schema.Timestamp, []string{"Timestamp"}},
	{schema.Regex, []string{"BSONRegExp"}},
	{schema.JavaScript | schema.CodeWithScope, []string{"Code"}},
	{schema.Symbol, []string{"BSONSymbol"}},
	{schema.DBPointer, []string{"DBRef"}},
	{schema.MinKey, []string{"MinKey"}},
	{schema.MaxKey, []string{"MaxKey"}},
	{schema.Undefined, []string{"undefined"}},
	{schema.Null, []string{"null"}},
}

// ofTypeScript are the types that need no import.
var ofTypeScript = []string{"number", "bigint", "string", "boolean", "Date", "undefined", "null"}

type tsWriter struct {
	*declarations
	table   []scalar
	imports []string
}

func typeScript(collections []Collection, o Options) []byte {
	w := tsWriter{table: inTypeScript}
	from := "mooring-client"
	if o.BSON {
		w.table, from = inTypeScriptBSON, "bson"
	}
	w.declarations = collect(collections, false, reserved(w.table, "Document")...)
	var body text
	for _, d := range w.list {
		body.line("")
		comment(&body, "", d.sentences())
		if len(d.t.Fields) == 0 {
			body.line("export type %s = %s;", d.name, w.object(d.t))
			continue
		}
		body.line("export interface %s {", d.name)
		for _, f := range d.t.Fields {
			comment(&body, "  ", lines(f.Doc))
			optional := ""
			if f.Optional {
				optional = "?"
			}
			body.line("  %s%s: %s;", tsName(f.Name), optional, w.expression(f.Type))
		}
		body.line("}")
	}
	var out text
	for _, line := range o.Head {
		out.line("// %s", line)
	}
	if len(w.imports) > 0 {
		slices.Sort(w.imports)
		out.line("\nimport type { %s } from '%s';", strings.Join(w.imports, ", "), from)
	}
	out.Write(body.Bytes())
	return out.Bytes()
}

// reserved returns the names of a table, and others.
func reserved(table []scalar, more ...string) []string {
	for _, row := range table {
		more = append(more, row.names...)
	}
	return more
}

func comment(out *text, indent string, doc []string) {
	switch len(doc) {
	case 0:
	case 1:
		out.line("%s/** %s */", indent, doc[0])
	default:
		out.line("%s/**", indent)
		for _, line := range doc {
			out.line("%s * %s", indent, line)
		}
		out.line("%s */", indent)
	}
}

// expression returns a type as TypeScript has it.
func (w *tsWriter) expression(t *schema.Type) string {
	if t.Kinds == schema.Any {
		return "unknown"
	}
	var parts []string
	rest := *t
	if t.Strings != nil && t.May(schema.String) {
		for _, s := range t.Strings {
			parts = append(parts, tsText(s))
		}
		rest.Kinds &^= schema.String
	}
	if t.Numbers != nil && t.May(schema.Number) && w.isPlain(t) {
		for _, n := range t.Numbers {
			parts = append(parts, strconv.FormatFloat(n, 'g', -1, 64))
		}
		rest.Kinds &^= schema.Number
	}
	if t.May(schema.Object) {
		parts = append(parts, w.object(t))
	}
	if t.May(schema.Array) {
		parts = append(parts, w.array(t))
	}
	for _, name := range scalars(&rest, w.table) {
		if !slices.Contains(ofTypeScript, name) {
			w.use(name)
		}
		parts = append(parts, name)
	}
	if len(parts) == 0 {
		return "never"
	}
	return strings.Join(parts, " | ")
}

// isPlain reports whether the numbers of a type are always numbers of the language.
func (w *tsWriter) isPlain(t *schema.Type) bool {
	return !t.May(schema.Decimal|schema.Long) || t.Kinds&schema.Number == schema.Number
}

func (w *tsWriter) use(name string) {
	if !slices.Contains(w.imports, name) {
		w.imports = append(w.imports, name)
	}
}

func (w *tsWriter) object(t *schema.Type) string {
	switch {
	case len(t.Fields) > 0:
		return w.names[t]
	case t.Values != nil:
		return fmt.Sprintf("{ [key: string]: %s }", w.expression(t.Values))
	}
	return "{ [key: string]: unknown }"
}

func (w *tsWriter) array(t *schema.Type) string {
	if t.Elements == nil {
		return "unknown[]"
	}
	element := w.expression(t.Elements)
	if strings.Contains(element, " | ") {
		element = "(" + element + ")"
	}
	return element + "[]"
}

func tsName(name string) string {
	if isASCIIWord(name) {
		return name
	}
	return tsText(name)
}

// tsText returns a literal, in single quotes where nothing has to be escaped.
func tsText(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		return strconv.QuoteToASCII(s)
	}
	if inner := string(quoted[1 : len(quoted)-1]); !strings.ContainsAny(inner, `'\`) {
		return "'" + inner + "'"
	}
	return string(quoted)
}
