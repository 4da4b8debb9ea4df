package bsondiff

import (
	"strings"

	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Text returns an Extended JSON text, most often an invalid one.
func (g *Generator) Text() []byte {
	mode := extjson.Canonical
	if g.r.IntN(2) == 0 {
		mode = extjson.Relaxed
	}
	text, err := extjson.Append(nil, g.Document(), mode)
	if err != nil {
		panic("bug: " + err.Error())
	}
	if g.r.IntN(3) == 0 {
		text = []byte(`{"v":` + odd[g.r.IntN(len(odd))] + `}`)
	}
	tokens := split(string(text))
	for range g.r.IntN(3) {
		tokens = g.mutate(tokens)
	}
	return []byte(strings.Join(tokens, ""))
}

// mutate changes one token.
func (g *Generator) mutate(tokens []string) []string {
	if len(tokens) < 2 {
		return tokens
	}
	i, j := g.r.IntN(len(tokens)), g.r.IntN(len(tokens))
	tokens = append([]string(nil), tokens...)
	switch g.r.IntN(8) {
	case 0:
		return append(tokens[:i], tokens[i+1:]...)
	case 1:
		return append(tokens[:i], append([]string{tokens[i]}, tokens[i:]...)...)
	case 2:
		tokens[i], tokens[j] = tokens[j], tokens[i]
	case 3:
		tokens[i] = odd[g.r.IntN(len(odd))]
	case 4:
		tokens[i] = `"` + g.wrapperKey() + `"`
	case 5:
		more := []string{" ", "\t", "\n", "\r", ",", "}", "]", "x", "\x00", "\v"}
		tokens[i] += more[g.r.IntN(len(more))]
	case 6:
		token := []byte(tokens[i])
		const bytes = "\x00\x1f\x7f\x80\xff\"\\{}[],:0 9-+.eEuUxX$"
		token[g.r.IntN(len(token))] = bytes[g.r.IntN(len(bytes))]
		tokens[i] = string(token)
	default:
		tokens[i] = strings.ReplaceAll(tokens[i], "0",
			[]string{"00", "1", "", ".0", "e0", "\\u0030"}[g.r.IntN(6)])
	}
	return tokens
}

// split cuts a text into tokens.
func split(text string) (tokens []string) {
	for start := 0; start < len(text); {
		end := start + 1
		switch {
		case text[start] == '"':
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(text))
		case !strings.ContainsRune("{}[],:", rune(text[start])):
			for end < len(text) && !strings.ContainsRune("{}[],:\"", rune(text[end])) {
				end++
			}
		}
		tokens = append(tokens, text[start:end])
		start = end
	}
	return tokens
}

// odd are values at the border of what is allowed.
var odd = []string{
	`0`, `-0`, `00`, `-1`, `+1`, `1.`, `.1`, `1e5`, `1E+5`, `1e`, `1e400`, `-1e400`, `1e-400`,
	`2147483648`, `9223372036854775807`, `9223372036854775808`,
	`123456789012345678901234567890`, `0x10`, `NaN`, `Infinity`, `true`, `false`, `null`, `nul`,
	`[]`, `{}`, `[1,2,]`, `{"a":1,}`, `[[]]`,
	`""`, `"\u0000"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d"`, `"\uD83D\u0041"`, `"\x41"`,
	`"\u12"`, "\"\t\"", "\"\xff\"", "\"\xed\xa0\x80\"", `"a`, `'a'`,
	`{"$oid":"56e1fc72e0c917e9c4714161"}`, `{"$oid":"56E1FC72E0C917E9C4714161"}`,
	`{"$oid":"56e1fc72e0c917e9c471416"}`, `{"$oid":"56e1fc72e0c917e9c471416g"}`, `{"$oid":1}`,
	`{"$symbol":"s"}`, `{"$symbol":1}`, `{"x":1,"$symbol":"s"}`, `{"$symbol":"s","x":1}`,
	`{"$numberInt":"1"}`, `{"$numberInt":1}`, `{"$numberInt":"+1"}`, `{"$numberInt":"-01"}`,
	`{"$numberInt":"2147483648"}`, `{"$numberInt":"1.0"}`, `{"$numberInt":" 1"}`,
	`{"$numberInt":""}`,
	`{"$numberLong":"1"}`, `{"$numberLong":"-9223372036854775808"}`,
	`{"$numberLong":"9223372036854775808"}`, `{"$numberLong":"1_000"}`, `{"$numberLong":1}`,
	`{"$numberDouble":"1"}`, `{"$numberDouble":"-0.0"}`, `{"$numberDouble":"+1.5"}`,
	`{"$numberDouble":"0x1p4"}`, `{"$numberDouble":"1_0"}`, `{"$numberDouble":"inf"}`,
	`{"$numberDouble":"Infinity"}`, `{"$numberDouble":"-Infinity"}`,
	`{"$numberDouble":"+Infinity"}`, `{"$numberDouble":"NaN"}`, `{"$numberDouble":"nan"}`,
	`{"$numberDouble":"1e999"}`, `{"$numberDouble":".5"}`, `{"$numberDouble":"5."}`,
	`{"$numberDouble":1.5}`,
	`{"$numberDecimal":"1.50"}`, `{"$numberDecimal":"1E6112"}`, `{"$numberDecimal":"1E9999"}`,
	`{"$numberDecimal":"-NaN"}`, `{"$numberDecimal":"inf"}`, `{"$numberDecimal":"1 "}`,
	`{"$numberDecimal":"."}`, `{"$numberDecimal":"12345678901234567890123456789012345"}`,
	`{"$numberDecimal":1}`,
	`{"$binary":{"base64":"AQID","subType":"00"}}`, `{"$binary":{"subType":"2","base64":"AQID"}}`,
	`{"$binary":{"base64":"","subType":"02"}}`, `{"$binary":{"base64":"AQI","subType":"0"}}`,
	`{"$binary":{"base64":"A\nQID","subType":"0"}}`,
	`{"$binary":{"base64":"AQID","subType":"100"}}`,
	`{"$binary":{"base64":"AQID","subType":"080"}}`,
	`{"$binary":{"base64":"AQID","subType":"+1"}}`, `{"$binary":{"base64":"AQID"}}`,
	`{"$binary":"AQID","$type":"80"}`, `{"$binary":"AQID","$type":80}`,
	`{"$binary":{"base64":"AQ==","subType":"fF"}}`, `{"$binary":{"base64":"AR==","subType":"0"}}`,
	`{"$code":"f"}`, `{"$code":"f","$scope":{}}`, `{"$scope":{},"$code":"f"}`,
	`{"$code":"f","$scope":{"x":{"$code":"g","$scope":{}}}}`,
	`{"$code":"f","$scope":{"$oid":"56e1fc72e0c917e9c4714161"}}`, `{"$code":"f","x":1}`,
	`{"$scope":{}}`, `{"$code":1}`, `{"$code":"f","$scope":1}`, `{"$code":"f","$scope":[]}`,
	`{"$code":"f","$scope":{"$gt":1}}`, `{"$code":{}}`, `{"$code":"f","$scope":{},"x":1}`,
	`{"$timestamp":{"t":1,"i":2}}`, `{"$timestamp":{"i":2,"t":1}}`,
	`{"$timestamp":{"t":4294967295,"i":4294967296}}`, `{"$timestamp":{"t":-1,"i":2}}`,
	`{"$timestamp":{"t":1.0,"i":2}}`, `{"$timestamp":{"t":{"$numberInt":"1"},"i":2}}`,
	`{"$timestamp":{"t":{"$numberLong":"1"},"i":2}}`, `{"$timestamp":{"t":-0,"i":2}}`,
	`{"$timestamp":{"t":"1","i":2}}`, `{"$timestamp":{"t":1}}`,
	`{"$timestamp":{"t":1,"i":2,"x":3}}`,
	`{"$regularExpression":{"pattern":"a","options":"xi"}}`,
	`{"$regularExpression":{"options":"","pattern":""}}`,
	`{"$regularExpression":{"pattern":"\u0000","options":""}}`,
	`{"$regularExpression":{"pattern":"","options":"éi"}}`,
	`{"$regularExpression":{"pattern":"","options":1}}`, `{"$regex":"a","$options":"i"}`,
	`{"$regularExpression":{"pattern":{"$symbol":"a"},"options":""}}`, `{"$regularExpression":"a"}`,
	`{"$dbPointer":{"$ref":"a.b","$id":{"$oid":"56e1fc72e0c917e9c4714161"}}}`,
	`{"$dbPointer":{"$id":{"$oid":"56e1fc72e0c917e9c4714161"},"$ref":"a\"b"}}`,
	`{"$dbPointer":{"$ref":"a","$id":"56e1fc72e0c917e9c4714161"}}`, `{"$dbPointer":{"$ref":"a"}}`,
	`{"$ref":"a","$id":1}`, `{"$id":1,"$db":2}`,
	`{"$date":"2012-12-24T12:15:30.501Z"}`, `{"$date":"2012-12-24T12:15:30Z"}`,
	`{"$date":"2012-12-24T12:15:30.5Z"}`, `{"$date":"2012-12-24T12:15:30.501+01:00"}`,
	`{"$date":"2012-12-24T12:15:30.501+0100"}`, `{"$date":"2012-12-24T12:15:30.5019Z"}`,
	`{"$date":"2012-12-24T12:15:30,501Z"}`, `{"$date":"2012-12-24T12:15:60Z"}`,
	`{"$date":"2012-12-24T24:00:00Z"}`, `{"$date":"2012-02-30T00:00:00Z"}`,
	`{"$date":"2012-12-24t12:15:30z"}`, `{"$date":"1960-01-01T00:00:00Z"}`,
	`{"$date":"0000-01-01T00:00:00Z"}`, `{"$date":"2012-12-24"}`,
	`{"$date":"2012-12-24T1:15:30Z"}`, `{"$date":"2012-12-24T12:15:30+25:00"}`,
	`{"$date":"2012-12-24T12:15:30-00:61"}`,
	`{"$date":{"$numberLong":"1"}}`, `{"$date":{"$numberLong":1}}`,
	`{"$date":{"$numberInt":"1"}}`, `{"$date":1}`, `{"$date":1.5}`, `{"$date":null}`,
	`{"$date":{"$numberLong":"1","x":1}}`, `{"$date":{}}`, `{"$date":{"$numberLong":"+1"}}`,
	`{"$minKey":1}`, `{"$maxKey":1}`, `{"$minKey":2}`, `{"$minKey":1.0}`, `{"$minKey":"1"}`,
	`{"$maxKey":{"$numberInt":"1"}}`, `{"$undefined":true}`, `{"$undefined":false}`,
	`{"$undefined":1}`,
	`{"$uuid":"00112233-4455-6677-8899-aabbccddeeff"}`,
	`{"$uuid":"00112233-4455-6677-8899-AABBCCDDEEFF"}`,
	`{"$uuid":"00112233445566778899aabbccddeeff"}`,
	`{"$uuid":"urn:uuid:00112233-4455-6677-8899-aabbccddeeff"}`,
	`{"$uuid":"00112233-4455-6677-8899-aabbccddeefg"}`, `{"$uuid":1}`,
	`{"$uuid":{"base64":"AQID","subType":"00"}}`,
	`{"$uuid":"0011223-34455-6677-8899-aabbccddeeff"}`,
	`{"":1}`, `{"$":1}`, `{"$gt":1}`, `{"a":1,"a":2}`, `{"a\u0000b":1}`, `{"a.b":{"$in":[1]}}`,
	`{"\u0024oid":"56e1fc72e0c917e9c4714161"}`, `{"$type":2}`, `{"$Oid":1}`,
}
