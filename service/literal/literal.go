// Package literal reads and writes values as plain text, as a cell of a CSV file or a condition in
// a URL has them. A Form says which type a text has, and how it is written. Without one, the text
// itself decides: see Auto. Package literal knows neither CSV nor URLs.
package literal

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Form holds a type and how its values are written. The zero Form is auto().
type Form struct {
	kind *kind
	arg  string
}

// kind describes a type of values.
type kind struct {
	name string
	// args lists what may stand between the parentheses, "" not listed. A layout takes any text
	// that describes a date.
	args   []string
	layout bool
	// add reads a text. It fails with what the text is not.
	add func(b *bson.Builder, key, text string, as how) error
	// write appends a value, and reports whether the value is of this type.
	write func(dst []byte, v bson.Value, arg string) ([]byte, bool)
	// empty says that the empty text is a value.
	empty bool
}

// how says how a text is read: what stands between the parentheses of its form, and what parses
// Extended JSON.
type how struct {
	arg  string
	json extjson.Parser
}

var kinds = [...]kind{
	{name: "auto", add: addAuto, empty: true},
	{name: "string", add: addString, write: writeString, empty: true},
	{name: "int32", add: addInt32, write: writeInt32},
	{name: "int64", add: addInt64, write: writeInt64},
	{name: "double", add: addDouble, write: writeDouble},
	{name: "decimal", add: addDecimal, write: writeDecimal},
	{name: "boolean", add: addBoolean, write: writeBoolean},
	{name: "date", args: []string{"ms", "s"}, layout: true, add: addDate, write: writeDate},
	{name: "objectId", add: addObjectID, write: writeObjectID},
	{name: "uuid", add: addUUID, write: writeUUID},
	{
		name: "binary", args: []string{"base64", "hex"},
		add: addBinary, write: writeBinary, empty: true,
	},
	{name: "json", add: addJSON, write: writeJSON},
}

// Names lists the types, as they are written in front of the parentheses.
func Names() []string {
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = kinds[i].name
	}
	return names
}

// ParseForm reads a type such as "int32()" or "date(2006-01-02)". Case does not matter in its name.
func ParseForm(text string) (Form, error) {
	name, arg, ok := strings.Cut(text, "(")
	if !ok || !strings.HasSuffix(arg, ")") {
		return Form{}, errors.New("a type is written as name()")
	}
	arg = arg[:len(arg)-1]
	i := slices.IndexFunc(kinds[:], func(k kind) bool { return strings.EqualFold(k.name, name) })
	if i < 0 {
		return Form{}, fmt.Errorf("there is no type %s(): the types are %s", clip(name),
			strings.Join(Names(), ", "))
	}
	k := &kinds[i]
	if arg != "" && !slices.Contains(k.args, arg) && (!k.layout || !isLayout(arg)) {
		return Form{}, fmt.Errorf("%s() does not take %s%s", k.name, clip(arg), k.takes())
	}
	return Form{kind: k, arg: arg}, nil
}

// typed matches a name with a type behind it, which "count(*)" and "price (EUR)" do not have.
var typed = regexp.MustCompile(`(?s)^(.*)\.([A-Za-z0-9_]+\([^()]*\))$`)

// CutForm cuts the type off a name that ends with one, such as "age.int32()". Without one, the form
// is auto().
func CutForm(text string) (name string, f Form, err error) {
	m := typed.FindStringSubmatch(text)
	if m == nil {
		return text, Form{}, nil
	}
	f, err = ParseForm(m[2])
	return m[1], f, err
}

// takes lists what may stand between the parentheses.
func (k *kind) takes() string {
	switch {
	case k.layout:
		return ": it takes " + strings.Join(k.args, ", ") +
			" or a layout, such as 2006-01-02 15:04:05"
	case k.args != nil:
		return ": it takes " + strings.Join(k.args, ", ")
	}
	return ""
}

// String returns the form as ParseForm reads it.
func (f Form) String() string {
	if f.kind == nil {
		return kinds[0].name + "()"
	}
	return f.kind.name + "(" + f.arg + ")"
}

// IsAuto reports whether the form leaves the type to the text.
func (f Form) IsAuto() bool { return f.kind == nil || f.kind == &kinds[0] }

// TakesEmpty reports whether the empty text is a value of this form.
func (f Form) TakesEmpty() bool { return f.kind == nil || f.kind.empty }

// Add adds the value of a text to b. If the text is no value of the form, it adds nothing and says
// so. Extended JSON is parsed by json, whose limit and memory hold. A long binary is decoded in its
// memory, too.
func (f Form) Add(b *bson.Builder, key, text string, json extjson.Parser) error {
	if f.kind == nil {
		return addAuto(b, key, text, how{})
	}
	return f.kind.add(b, key, text, how{f.arg, json})
}

// Append appends the text of a value to dst. A form other than auto() takes values of its type only
// and loses nothing of them; it fails with a *TypeError for others. auto() takes any value, and
// writes those that have no plain text as Extended JSON in this mode. What JSON cannot carry, such
// as a string that is not UTF-8, has no text in any form: Append fails with the error of extjson.
func (f Form) Append(dst []byte, v bson.Value, mode extjson.Mode) ([]byte, error) {
	if f.IsAuto() {
		return appendAuto(dst, v, mode)
	}
	out, ok := f.kind.write(dst, v, f.arg)
	if ok {
		return out, nil
	}
	if _, err := extjson.AppendValue(dst, v, mode); err != nil {
		return dst, err
	}
	return dst, &TypeError{v.Type, f}
}

// TypeError reports a value that a form does not take.
type TypeError struct {
	Type bson.Type
	Form Form
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("a value of type %s cannot be written as %s", e.Type, e.Form)
}

// Auto returns the type that auto() gives a text.
func Auto(text string) bson.Type {
	switch {
	case text == "true", text == "false":
		return bson.TypeBool
	case text == "null":
		return bson.TypeNull
	case len(text) == objectIDDigits && isHex(text):
		return bson.TypeObjectID
	}
	whole, ok := isNumber(text)
	if !ok {
		return bson.TypeString
	}
	if !whole {
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return bson.TypeString
		}
		return bson.TypeDouble
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return bson.TypeString
	case int64(int32(n)) != n:
		return bson.TypeInt64
	}
	return bson.TypeInt32
}

// addAuto adds what the text itself says: a number as JSON writes it, true, false, null, an
// ObjectId of 24 hexadecimal digits, and otherwise a string. A number that would lose digits is a
// string.
func addAuto(b *bson.Builder, key, text string, as how) error {
	switch Auto(text) {
	case bson.TypeBool:
		b.Bool(key, text == "true")
	case bson.TypeNull:
		b.Null(key)
	case bson.TypeObjectID:
		return addObjectID(b, key, text, as)
	case bson.TypeInt32:
		return addInt32(b, key, text, as)
	case bson.TypeInt64:
		return addInt64(b, key, text, as)
	case bson.TypeDouble:
		return addDouble(b, key, text, as)
	default:
		b.String(key, text)
	}
	return nil
}

// appendAuto writes a value of any type.
func appendAuto(dst []byte, v bson.Value, mode extjson.Mode) ([]byte, error) {
	if v.IsNull() {
		return append(dst, "null"...), nil
	}
	for i := range kinds {
		if k := &kinds[i]; k.write != nil && k.name != "json" {
			if out, ok := k.write(dst, v, ""); ok {
				return out, nil
			}
		}
	}
	return extjson.AppendValue(dst, v, mode)
}

const objectIDDigits = 24

func isHex(text string) bool {
	return strings.Trim(text, "0123456789abcdefABCDEF") == ""
}

// isNumber reports whether JSON writes a number like this, and whether it is a whole one.
func isNumber(text string) (whole, ok bool) {
	rest := strings.TrimPrefix(text, "-")
	digits := leadingDigits(rest)
	if digits == 0 || digits > 1 && rest[0] == '0' {
		return false, false
	}
	rest, whole = rest[digits:], text != "-0"
	if strings.HasPrefix(rest, ".") {
		digits, whole = leadingDigits(rest[1:]), false
		if digits == 0 {
			return false, false
		}
		rest = rest[1+digits:]
	}
	if rest != "" && rest[0]|0x20 == 'e' {
		rest, whole = rest[1:], false
		if rest != "" && (rest[0] == '+' || rest[0] == '-') {
			rest = rest[1:]
		}
		digits = leadingDigits(rest)
		if digits == 0 {
			return false, false
		}
		rest = rest[digits:]
	}
	return whole, rest == ""
}

func leadingDigits(text string) int {
	for i := range len(text) {
		if text[i]-'0' > 9 {
			return i
		}
	}
	return len(text)
}

// maxClip is how many bytes of a text an error repeats.
const maxClip = 40

func clip(text string) string {
	if len(text) > maxClip {
		text = strings.ToValidUTF8(text[:maxClip], "") + "…"
	}
	return strconv.Quote(text)
}
