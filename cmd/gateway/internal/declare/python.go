package declare

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/cmd/gateway/internal/schema"
)

// inPython has the types of relaxed Extended JSON, as mooring_client.types names them.
var inPython = []scalar{
	{schema.Int | schema.Long, []string{"int"}},
	{schema.Double, []string{"float"}},
	{schema.Long, []string{"Long"}},
	{schema.Decimal, []string{"Decimal128"}},
	{schema.String, []string{"str"}},
	{schema.Bool, []string{"bool"}},
	{schema.ObjectID, []string{"ObjectId"}},
	{schema.Date, []string{"DateTime"}},
	{schema.Binary, []string{"Binary"}},
	{schema.Timestamp, []string{"Timestamp"}},
	{schema.Regex, []string{"RegularExpression"}},
	{schema.JavaScript | schema.CodeWithScope | schema.Symbol | schema.DBPointer |
		schema.MinKey | schema.MaxKey | schema.Undefined, []string{"Any"}},
	{schema.Null, []string{"None"}},
}

// inPythonBSON has the types of pymongo's package bson.
var inPythonBSON = []scalar{
	{schema.Int | schema.Long, []string{"int"}},
	{schema.Double, []string{"float"}},
	{schema.Decimal, []string{"Decimal128"}},
	{schema.String | schema.Symbol, []string{"str"}},
	{schema.Bool, []string{"bool"}},
	{schema.ObjectID, []string{"ObjectId"}},
	{schema.Date, []string{"datetime"}},
	{schema.Binary, []string{"bytes", "UUID"}},
	{schema.Timestamp, []string{"Timestamp"}},
	{schema.Regex, []string{"Regex"}},
	{schema.JavaScript | schema.CodeWithScope, []string{"Code"}},
	{schema.DBPointer, []string{"DBRef"}},
	{schema.MinKey, []string{"MinKey"}},
	{schema.MaxKey, []string{"MaxKey"}},
	{schema.Undefined, []string{"Any"}},
	{schema.Null, []string{"None"}},
}

// inModules has the modules of names. Those of no other are of mooring_client.types or bson.
var inModules = map[string]string{
	"Any": "typing", "Dict": "typing", "List": "typing", "Literal": "typing",
	"TypedDict": "typing", "Union": "typing", "datetime": "datetime", "UUID": "uuid",
}

var ofPython = []string{"int", "float", "str", "bool", "bytes", "None"}

type pyWriter struct {
	*declarations
	table []scalar
	used  []string
}

// python writes a TypedDict for each document, a document after those in it. It is code for
// Python 3.10, which has no NotRequired: the fields that may be missing are a class of their own.
func python(collections []Collection, o Options) []byte {
	w := pyWriter{table: inPython}
	values := "mooring_client.types"
	if o.BSON {
		w.table, values = inPythonBSON, "bson"
	}
	w.declarations = collect(collections, false, reserved(w.table,
		"Any", "Dict", "List", "Literal", "TypedDict", "Union", "None", "True", "False")...)
	var body text
	slices.Reverse(w.list)
	for _, d := range w.list {
		body.line("\n")
		w.class(&body, d)
	}
	var out text
	for _, line := range o.Head {
		out.line("# %s", line)
	}
	out.line("")
	byModule := map[string][]string{}
	for _, name := range w.used {
		module := inModules[name]
		if module == "" {
			module = values
		}
		byModule[module] = append(byModule[module], name)
	}
	for _, module := range []string{"datetime", "typing", "uuid", values} {
		if names := byModule[module]; len(names) > 0 {
			slices.Sort(names)
			out.line("from %s import %s", module, strings.Join(names, ", "))
		}
	}
	out.Write(body.Bytes())
	return out.Bytes()
}

// class writes a document. An _id may be missing, since an inserted document need not have one.
func (w *pyWriter) class(out *text, d declaration) {
	doc := d.sentences()
	if len(d.t.Fields) == 0 {
		for _, line := range doc {
			out.line("# %s", line)
		}
		out.line("%s = %s", d.name, w.object(d.t))
		return
	}
	w.use("TypedDict")
	var required, optional []schema.Field
	for _, f := range d.t.Fields {
		if f.Optional || f.Name == "_id" {
			optional = append(optional, f)
		} else {
			required = append(required, f)
		}
	}
	switch {
	case len(optional) == 0:
		w.fields(out, d.name, required, "TypedDict", doc)
	case len(required) == 0:
		w.fields(out, d.name, optional, "TypedDict, total=False", doc)
	default:
		base := unique("_"+d.name+"Required", w.taken)
		w.fields(out, base, required, "TypedDict", nil)
		out.line("\n")
		if isWords(optional) {
			w.fields(out, d.name, optional, base+", total=False", doc)
			return
		}
		rest := unique("_"+d.name+"Optional", w.taken)
		w.fields(out, rest, optional, "TypedDict, total=False", nil)
		out.line("\n\nclass %s(%s, %s):", d.name, base, rest)
		if !pyDoc(out, doc) {
			out.line("    pass")
		}
	}
}

// fields writes a class with fields, by a call where a name cannot be an attribute.
func (w *pyWriter) fields(
	out *text, name string, fields []schema.Field, bases string, doc []string,
) {
	if isWords(fields) {
		out.line("class %s(%s):", name, bases)
		if pyDoc(out, doc) && len(fields) > 0 {
			out.line("")
		}
		for _, f := range fields {
			for _, line := range lines(f.Doc) {
				out.line("    # %s", line)
			}
			out.line("    %s: %s", f.Name, w.expression(f.Type))
		}
		return
	}
	for _, line := range doc {
		out.line("# %s", line)
	}
	out.line("%s = TypedDict(\n    %q,\n    {", name, name)
	for _, f := range fields {
		for _, line := range lines(f.Doc) {
			out.line("        # %s", line)
		}
		out.line("        %s: %s,", pyText(f.Name), w.expression(f.Type))
	}
	out.line("    },")
	if strings.Contains(bases, "total=False") {
		out.line("    total=False,")
	}
	out.line(")")
}

// pyDoc writes a docstring, and reports whether there is one.
func pyDoc(out *text, doc []string) bool {
	if len(doc) == 0 {
		return false
	}
	text := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(strings.Join(doc, "\n    "))
	if len(doc) > 1 {
		text += "\n    "
	}
	out.line("    \"\"\"%s\"\"\"", text)
	return true
}

// isWords reports whether all names can be attributes of a class. Python changes those that begin
// with two underscores.
func isWords(fields []schema.Field) bool {
	for _, f := range fields {
		if !isASCIIWord(f.Name) || strings.HasPrefix(f.Name, "__") ||
			slices.Contains(pythonWords, f.Name) {
			return false
		}
	}
	return true
}

// pythonWords are Python's keywords.
var pythonWords = strings.Fields(`False None True and as assert async await break class continue
	def del elif else except finally for from global if import in is lambda nonlocal not or pass
	raise return try while with yield`)

// expression returns a type as Python has it.
func (w *pyWriter) expression(t *schema.Type) string {
	if t.Kinds == schema.Any || t.Kinds == 0 {
		return w.use("Any")
	}
	var parts []string
	rest := *t
	if t.Strings != nil && t.May(schema.String) {
		parts = append(parts, w.literal(t.Strings))
		rest.Kinds &^= schema.String
	}
	if t.May(schema.Object) {
		parts = append(parts, w.object(t))
	}
	if t.May(schema.Array) {
		element := ""
		if t.Elements == nil {
			element = w.use("Any")
		} else {
			element = w.expression(t.Elements)
		}
		parts = append(parts, w.use("List")+"["+element+"]")
	}
	for _, name := range scalars(&rest, w.table) {
		if !slices.Contains(ofPython, name) {
			w.use(name)
		}
		parts = append(parts, name)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return w.use("Union") + "[" + strings.Join(parts, ", ") + "]"
}

func (w *pyWriter) object(t *schema.Type) string {
	switch {
	case len(t.Fields) > 0:
		return w.names[t]
	case t.Values != nil:
		return w.use("Dict") + "[str, " + w.expression(t.Values) + "]"
	}
	return w.use("Dict") + "[str, " + w.use("Any") + "]"
}

func (w *pyWriter) literal(values []string) string {
	quoted := make([]string, len(values))
	for i, s := range values {
		quoted[i] = pyText(s)
	}
	return w.use("Literal") + "[" + strings.Join(quoted, ", ") + "]"
}

// use imports a name, and returns it.
func (w *pyWriter) use(name string) string {
	if !slices.Contains(w.used, name) {
		w.used = append(w.used, name)
	}
	return name
}

// pyText returns a literal. Python reads the escapes that Go writes.
func pyText(s string) string { return strconv.Quote(s) }
