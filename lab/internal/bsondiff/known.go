package bsondiff

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Difference describes a known difference.
type Difference struct {
	Name    string
	Example string // a text; of documents, the bytes
	Ours    string // what ours does with the example: "refused", or what comes of it
	Theirs  string // what the official driver's does
	Rule    string // the line that decides
	applies func(input []byte, ours, theirs error) bool
}

func find(table []Difference, input []byte, ours, theirs error) *Difference {
	for i := range table {
		if d := &table[i]; d.applies(input, ours, theirs) {
			return d
		}
	}
	return nil
}

const (
	accepted = "accepted"
	refused  = "refused"
)

// Where the rules stand.
const (
	bsonGrammar = "BSON 1.1, Non-terminals: "
	bsonNotes   = "BSON 1.1, Notes: "
	table       = "Extended JSON, Conversion table: "
	parsers     = "Extended JSON, Parsers: "
	grammar     = "Extended JSON, Notes on grammar: "
	json8259    = "RFC 8259 (Extended JSON extends its grammar), "
	limit       = "Extended JSON, Parsers: \"A parser SHOULD support at least 200 levels of " +
		"nesting … but MAY set other limits\""
)

// acceptingDocuments are the documents that one side accepts.
var acceptingDocuments = []Difference{
	{
		Name: "invalid UTF-8", Example: "\x0E\x00\x00\x00\x02a\x00\x02\x00\x00\x00\xFF\x00\x00",
		Ours: refused, Theirs: accepted,
		Rule:    bsonGrammar + `"The (byte*) is zero or more UTF-8 encoded characters."`,
		applies: invalidDocument("invalid UTF-8"),
	},
	{
		Name:    "inner length of binary subtype 2",
		Example: "\x0F\x00\x00\x00\x05a\x00\x02\x00\x00\x00\x02\xDA\x8A\x00", Ours: refused,
		Theirs: accepted,
		Rule: bsonNotes +
			`Binary (Old): "The structure of the binary data … must be an int32 followed by a ` +
			`(byte*)", the int32 being the number of bytes in it`,
		applies: invalidDocument("inner length of binary subtype 2"),
	},
	{
		Name: "length of binary subtype 2",
		Example: "\x23\x00\x00\x00\x0Fa\x00\x1B\x00\x00\x00\x01\x00\x00\x00\x00" +
			"\x12\x00\x00\x00\x05b\x00\x20\x00\x00\x00\x02\x01\x00\x00\x00x\x00\x00",
		Ours: refused, Theirs: accepted,
		Rule: bsonGrammar +
			`"binary ::= int32 subtype (byte*): The int32 is the number of bytes in the ` +
			`(byte*)"; the official driver looks at the inner length alone`,
		applies: oldBinaryLength,
	},
	{
		Name: "code of a code with scope without terminator",
		Example: "\x17\x00\x00\x00\x0Fa\x00\x0F\x00\x00\x00\x02\x00\x00\x00f!" +
			"\x05\x00\x00\x00\x00\x00",
		Ours: refused, Theirs: accepted,
		Rule:    bsonGrammar + `"string ::= int32 (byte*) unsigned_byte(0)"`,
		applies: invalidDocument("string does not end with a zero byte"),
	},
	{
		Name: "documents that nest too deeply", Example: deepDocument(bson.MaxDepth + 1),
		Ours: refused, Theirs: accepted,
		Rule: "none: BSON sets no limit. Ours is twice the server's 100 levels, so that " +
			"what is validated is bounded",
		applies: invalidDocument("documents nest too deeply"),
	},
}

// acceptingTexts are the texts that one side accepts.
var acceptingTexts = []Difference{
	{
		Name: "bytes after the object", Example: `{} x`, Ours: refused, Theirs: accepted,
		Rule:    json8259 + `2: "JSON-text = ws value ws"`,
		applies: invalidText("bytes after the value"),
	},
	{
		Name: "null for a document", Example: `null`, Ours: refused, Theirs: accepted,
		Rule:    table + `"Document: object"`,
		applies: both(invalidText("expected an object"), begins("null")),
	},
	{
		Name: "wrapper key after other keys", Example: `{"a":{"x":1,"$numberInt":"1"}}`,
		Ours: refused, Theirs: accepted,
		Rule: parsers +
			`"If the parsed object contains any of the special keys for a type in the Conversion ` +
			`table … then it must contain exactly the keys of the type wrapper", and key order ` +
			`has no significance`,
		applies: invalidText("beside other keys"),
	},
	{
		Name: "$scope before $code", Example: `{"a":{"$scope":{},"$code":"f"}}`, Ours: accepted,
		Theirs: refused,
		Rule: parsers +
			`"the document {"$code": …, "$scope": {}} must be considered identical to ` +
			`{"$scope": {}, "$code": …}"`,
		applies: theyRefuse("must contain $code before $scope"),
	},
	{
		Name:    "wrapper for a $scope",
		Example: `{"a":{"$code":"f","$scope":{"$oid":"56e1fc72e0c917e9c4714161"}}}`,
		Ours:    refused, Theirs: accepted,
		Rule:    table + `"$scope": Document; what stands there is an ObjectId`,
		applies: invalidText("$scope must be a document"),
	},
	{
		Name: "legacy $binary", Example: `{"a":{"$binary":"AQID","$type":"80"}}`, Ours: refused,
		Theirs: accepted,
		Rule: parsers +
			`"A parser MAY also accept … Legacy Extended JSON formats …, but only if explicitly ` +
			`configured to do so."`,
		applies: invalidText("$binary must be an object"),
	},
	{
		Name: "legacy $date", Example: `{"a":{"$date":1356351330501}}`, Ours: refused,
		Theirs: accepted,
		Rule: parsers +
			`legacy formats "only if explicitly configured"; the table has a string or ` +
			`{"$numberLong": …}`,
		applies: invalidText("$date must be a string or"),
	},
	{
		Name:    "legacy $id of $dbPointer",
		Example: `{"a":{"$dbPointer":{"$ref":"b","$id":"56e1fc72e0c917e9c4714161"}}}`,
		Ours:    refused, Theirs: accepted,
		Rule:    table + `DBPointer's "$id": ObjectId, which is {"$oid": …}`,
		applies: invalidText("$id of $dbPointer must be"),
	},
	{
		Name:    "$date in another format",
		Example: `{"a":{"$date":"2012-12-24T12:15:30.501+0100"}}`, Ours: refused, Theirs: accepted,
		Rule: table + `"ISO-8601 Internet Date/Time Format as described in RFC-3339"`,
		applies: both(invalidText("$date must be as in RFC 3339"), argument(func(s string) bool {
			return !rfc3339.MatchString(s)
		})),
	},
	{
		Name:    "$date with a zone of 24 hours, or more than 59 minutes",
		Example: `{"a":{"$date":"2012-12-24T12:15:30+24:00"}}`, Ours: refused, Theirs: accepted,
		Rule: `RFC 3339, 5.6: "time-numoffset = ("+" / "-") time-hour ":" time-minute", which ` +
			`are 00 to 23 and 00 to 59`,
		applies: both(invalidText("$date must be as in RFC 3339"),
			argument(rfc3339Zone.MatchString)),
	},
	{
		Name: "$date with small letters", Example: `{"a":{"$date":"2012-12-24t12:15:30z"}}`,
		Ours: accepted, Theirs: refused,
		Rule: `RFC 3339, 5.6: ""T" and "Z" characters in this syntax may alternatively be ` +
			`lower case"`,
		applies: both(theyRefuse("invalid $date value string"), contains(smallLetters)),
	},
	{
		Name:    "wrapper for a string in a wrapper",
		Example: `{"a":{"$regularExpression":{"pattern":{"$symbol":"a"},"options":""}}}`,
		Ours:    refused, Theirs: accepted,
		Rule: parsers +
			`"If the keys … exactly match the keys of a type wrapper …, but any of the values ` +
			`are of an incorrect type, then the parser MUST report an error."`,
		applies: either(invalidText("must be strings"), invalidText("must be a string")),
	},
	{
		Name: "integer with a plus sign", Example: `{"a":{"$numberInt":"+1"}}`, Ours: refused,
		Theirs: accepted,
		Rule:   grammar + `"integer … is expressed in the JSON spec grammar as [minus] int"`,
		applies: both(invalidText("must be an integer of its size"),
			argument(func(s string) bool { return strings.HasPrefix(s, "+") })),
	},
	{
		Name:    "hexadecimal doubles, underscores, other words",
		Example: `{"a":{"$numberDouble":"0x1p4"}}`, Ours: refused, Theirs: accepted,
		Rule: table +
			`"64-bit signed floating point as a decimal string", or "Infinity", "-Infinity", "NaN"`,
		applies: both(invalidText("$numberDouble must be a double"),
			argument(func(s string) bool { return strings.ContainsAny(s, "xX_iInN") })),
	},
	{
		Name:    "line ends in base64",
		Example: `{"a":{"$binary":{"base64":"AQ\nID","subType":"00"}}}`, Ours: refused,
		Theirs: accepted,
		Rule: table +
			`"base64-encoded (with padding as =) payload"; RFC 4648, 3.3: "Implementations MUST ` +
			`reject the encoded data if it contains characters outside the base alphabet"`,
		applies: both(invalidText("$binary must have valid base64"), contains(lineEnd)),
	},
	{
		Name:    "subType of more than two digits",
		Example: `{"a":{"$binary":{"base64":"","subType":"080"}}}`, Ours: refused,
		Theirs:  accepted,
		Rule:    table + `"BSON binary type as a one- or two-character hex string"`,
		applies: invalidText("subType must have one or two"),
	},
	{
		Name: "$timestamp of other integers", Example: `{"a":{"$timestamp":{"t":-0,"i":2}}}`,
		Ours: refused, Theirs: accepted,
		Rule:    table + `"t": pos-integer, which is a "non-negative JSON number" and has no sign`,
		applies: invalidText("t and i of $timestamp must be integers"),
	},
	{
		Name:    "$uuid without hyphens, or with its URN",
		Example: `{"a":{"$uuid":"00112233445566778899aabbccddeeff"}}`, Ours: accepted,
		Theirs: refused,
		Rule: `Extended JSON, Special rules for parsing $uuid fields: "Parsers MAY also accept ` +
			`textual representations of UUIDs that omit the hyphens", and MUST accept those ` +
			`without the URN prefix`,
		applies: theyRefuse("$uuid value does not follow RFC 4122 format"),
	},
	{
		Name: "control characters in strings", Example: "{\"a\":\"\t\"}", Ours: refused,
		Theirs: accepted,
		Rule: json8259 +
			`7: "characters that MUST be escaped: … the control characters (U+0000 through ` +
			`U+001F)"`,
		applies: invalidText("control character in a string"),
	},
	{
		Name: "unknown escapes", Example: `{"a":"\u00zz"}`, Ours: refused, Theirs: accepted,
		Rule: json8259 + `7: "%x75 4HEXDIG"`, applies: func(text []byte, ours, theirs error) bool {
			return ours != nil && theirs == nil && badEscape.Match(text)
		},
	},
	{
		Name: "lone surrogates", Example: `{"a":"\ud83d"}`, Ours: refused, Theirs: accepted,
		Rule: bsonGrammar +
			`"UTF-8 encoded characters", which surrogates are not; the official driver stores ` +
			`U+FFFD in their place`,
		applies: invalidText("lone surrogate"),
	},
	{
		Name: "invalid UTF-8 in texts", Example: "{\"a\":\"\xFF\"}", Ours: refused,
		Theirs:  accepted,
		Rule:    json8259 + `8.1: "MUST be encoded using UTF-8"`,
		applies: invalidText("invalid UTF-8"),
	},
	{
		Name: "arrays that nest too deeply", Example: `{"a":` +
			strings.Repeat("[", extjson.MaxDepth) + strings.Repeat("]", extjson.MaxDepth) +
			`}`, Ours: refused, Theirs: accepted,
		Rule:    limit + "; the official driver does not count arrays",
		applies: invalidText("documents nest too deeply"),
	},
	{
		Name: "wrappers at the limit of nesting",
		Example: strings.Repeat(`{"a":`, extjson.MaxDepth) + `{"$numberInt":"1"}` +
			strings.Repeat("}", extjson.MaxDepth), Ours: accepted, Theirs: refused,
		Rule: limit +
			"; ours does not count wrappers, so that any document within the limit can be " +
			"written and read back",
		applies: theyRefuse("nesting too deep"),
	},
	{
		Name: "very long numbers", Example: `{"a":0.` + strings.Repeat("0", 2000) + `}`,
		Ours: refused, Theirs: accepted,
		Rule: json8259 +
			`9: "An implementation may set limits on the range and precision of numbers."`,
		applies: invalidText("number is too long"),
	},
}

// writing are the documents that the official driver writes as something else, or not as JSON.
var writing = []Difference{
	{
		Name:    "$ref of a DBPointer is not escaped",
		Example: string(bson.NewBuilder(nil).DBPointer("a", "\"", bson.ObjectID{}).Finish()),
		Ours:    "carried", Theirs: "broken",
		Rule:    table + `"$ref": < namespace as a string >, and strings are JSON's`,
		applies: func(doc []byte, _, _ error) bool { return hasSpecialPointer(doc) },
	},
	{
		Name: "empty binary of subtype 2", Example: string(bson.NewBuilder(nil).Binary("a",
			bson.SubtypeBinaryOld, nil).Finish()), Ours: "carried", Theirs: "broken",
		Rule: bsonNotes +
			`Binary (Old): the payload is what follows the inner length, here nothing`,
		applies: func(doc []byte, _, _ error) bool { return hasEmptyOldBinary(doc) },
	},
}

// spelling are the documents that the sides write differently, though both texts are read as the
// same.
var spelling = []Difference{
	{
		Name:    "fractions of relaxed dates",
		Example: string(bson.NewBuilder(nil).DateTime("a", 100).Finish()),
		Ours:    `{"a":{"$date":"1970-01-01T00:00:00.100Z"}}`,
		Theirs:  `{"a":{"$date":"1970-01-01T00:00:00.1Z"}}`,
		Rule: `Extended JSON, note 5: "Fractional seconds SHOULD have exactly 3 decimal places ` +
			`if the fractional part is non-zero."`,
	},
}

// reading are the texts that the sides read as different documents.
var reading = []Difference{
	{
		Name: "the bits of NaN", Example: `{"a":{"$numberDouble":"NaN"}}`,
		Ours: "0x7FF8000000000000", Theirs: "0x7FF8000000000001",
		Rule: `BSON corpus, double.json, "NaN": canonical_bson has 000000000000F87F`,
		applies: func(text []byte, ours, theirs error) bool {
			return ours == nil && theirs == nil && nan.Match(text)
		},
	},
}

var (
	rfc3339 = regexp.MustCompile(
		`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)
	rfc3339Zone  = regexp.MustCompile(`([+-](2[4-9]|[3-9]\d):\d\d|[+-]\d\d:[6-9]\d)$`)
	smallLetters = regexp.MustCompile(`\d-\d\d(t\d\d:\d\d:|T\d\d:\d\d:\d\d(\.\d+)?z)|\dz"`)
	lineEnd      = regexp.MustCompile(`\\[nr]|\\u000[aAdD]`)
	badEscape    = regexp.MustCompile(`\\u(.{0,3}$|.{0,3}[^0-9a-fA-F])`)
	nan          = regexp.MustCompile(`:\s*"(N|\\u004[eE])(a|\\u0061)(N|\\u004[eE])"`)
)

type condition = func(input []byte, ours, theirs error) bool

func both(a, b condition) condition {
	return func(input []byte, ours, theirs error) bool {
		return a(input, ours, theirs) && b(input, ours, theirs)
	}
}

func either(a, b condition) condition {
	return func(input []byte, ours, theirs error) bool {
		return a(input, ours, theirs) || b(input, ours, theirs)
	}
}

// invalidDocument matches if ours alone refuses a document for a problem.
func invalidDocument(problem string) condition {
	return func(_ []byte, ours, theirs error) bool {
		invalid, ok := errors.AsType[*bson.ValidationError](ours)
		return theirs == nil && ok &&
			strings.Contains(invalid.Problem, problem)
	}
}

// oldBinaryLength matches if ours alone refuses a document because of the length of a binary of
// subtype 2.
func oldBinaryLength(doc []byte, ours, theirs error) bool {
	invalid, ok := errors.AsType[*bson.ValidationError](ours)
	return theirs == nil && ok &&
		strings.Contains(invalid.Problem, "does not fit") &&
		invalid.Offset+4 < len(doc) && doc[invalid.Offset+4] == bson.SubtypeBinaryOld
}

// invalidText matches if ours alone refuses a text for a problem.
func invalidText(problem string) condition {
	return func(_ []byte, ours, theirs error) bool {
		invalid, ok := errors.AsType[*extjson.SyntaxError](ours)
		return theirs == nil && ok &&
			strings.Contains(invalid.Problem, problem)
	}
}

// theyRefuse matches if the official driver alone refuses a text.
func theyRefuse(problem string) condition {
	return func(_ []byte, ours, theirs error) bool {
		return ours == nil && theirs != nil && strings.Contains(theirs.Error(), problem)
	}
}

func contains(pattern *regexp.Regexp) condition {
	return func(input []byte, _, _ error) bool { return pattern.Match(input) }
}

func begins(s string) condition {
	return func(input []byte, _, _ error) bool {
		return bytes.HasPrefix(bytes.TrimSpace(input), []byte(s))
	}
}

// argument looks at the string that our error points at.
func argument(f func(s string) bool) condition {
	return func(input []byte, ours, _ error) bool {
		invalid, ok := errors.AsType[*extjson.SyntaxError](ours)
		if !ok || invalid.Offset >= len(input) {
			return false
		}
		tokens := split(string(input[invalid.Offset:]))
		v, _, err := extjson.ParseValue(nil, []byte(tokens[0]))
		s, ok := v.Str()
		return err == nil && ok && f(s)
	}
}

// anyValue reports whether f is true for a value anywhere in a valid document.
func anyValue(doc []byte, f func(v bson.Value) bool) bool {
	for _, v := range bson.Raw(doc).All() {
		inner := v.Data
		if _, scope, ok := v.CodeWithScope(); ok {
			inner = scope
		} else if v.Type != bson.TypeDocument && v.Type != bson.TypeArray {
			inner = nil
		}
		if f(v) || anyValue(inner, f) {
			return true
		}
	}
	return false
}

func hasSpecialPointer(doc []byte) bool {
	return anyValue(doc, func(v bson.Value) bool {
		ref, _, ok := v.DBPointer()
		return ok && strings.ContainsFunc(ref, func(r rune) bool {
			return r < ' ' || r == '"' || r == '\\'
		})
	})
}

func hasEmptyOldBinary(doc []byte) bool {
	return anyValue(doc, func(v bson.Value) bool {
		subtype, data, ok := v.Binary()
		return ok && subtype == bson.SubtypeBinaryOld && len(data) == 0
	})
}

func deepDocument(levels int) string {
	b := bson.NewBuilder(nil)
	for range levels - 1 {
		b.OpenDocument("a")
	}
	for range levels - 1 {
		b.Close()
	}
	return string(b.Finish())
}

// AcceptingDocuments returns the differences about documents that one side accepts.
func AcceptingDocuments() []Difference { return slices.Clone(acceptingDocuments) }

// AcceptingTexts returns the differences about texts that one side accepts.
func AcceptingTexts() []Difference { return slices.Clone(acceptingTexts) }

// Writing returns the differences about documents that the official driver writes as something
// else, or not as JSON.
func Writing() []Difference { return slices.Clone(writing) }

// Spelling returns the differences about documents that the sides write differently, though both
// texts are read as the same.
func Spelling() []Difference { return slices.Clone(spelling) }

// Reading returns the differences about texts that the sides read as different documents.
func Reading() []Difference { return slices.Clone(reading) }
