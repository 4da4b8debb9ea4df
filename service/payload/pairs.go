package payload

import (
	"errors"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// IsPairs reports whether the JSON text begins like an array of pairs, not like an object.
func IsPairs(json []byte) bool {
	n := skipSpace(json)
	return n < len(json) && json[n] == '['
}

// maxPairs limits the BSON of an array of pairs, which has the keys of an index or of a sort.
const maxPairs extjson.Limit = 1 << 20

// AppendPairs reads `[["b", 1], ["2", -1]]` at the beginning of json, appends it to dst as the
// document {b: 1, 2: -1}, and returns the number of bytes read. Errors are *extjson.SyntaxError.
func AppendPairs(dst, json []byte) (out []byte, n int, err error) {
	p := pairs{json: json}
	p.doc.Reset(dst)
	if err := p.read(); err != nil {
		return dst, 0, err
	}
	p.doc.Finish()
	if err := p.doc.Err(); err != nil {
		return dst, 0, &extjson.SyntaxError{Problem: err.Error()}
	}
	return p.doc.Bytes(), p.at, nil
}

// pairs holds the state of one AppendPairs.
type pairs struct {
	json  []byte
	at    int
	index int
	size  int // of the elements so far
	doc   bson.Builder
}

func (p *pairs) read() error {
	if !p.take('[') {
		return p.fail("an array of pairs")
	}
	if p.take(']') {
		return nil
	}
	for {
		if err := p.pair(); err != nil {
			return err
		}
		p.index++
		if p.take(']') {
			return nil
		}
		if !p.take(',') {
			return p.fail(`"," or "]"`)
		}
	}
}

func (p *pairs) pair() error {
	if !p.take('[') {
		return p.fail("a pair, [key, value]")
	}
	at := p.at + skipSpace(p.json[p.at:])
	key, err := p.value()
	if err != nil {
		return err
	}
	name, isString := key.Str()
	if !isString {
		p.at = at
		return p.fail("the key, a string")
	}
	if !p.take(',') {
		return p.fail(`","`)
	}
	value, err := p.value()
	if err != nil {
		return err
	}
	if !p.take(']') {
		return p.fail(`"]" after a key and its value`)
	}
	const typeAndZero = 2 // beside the key
	if p.size += typeAndZero + len(name) + len(value.Data); p.size > int(maxPairs) {
		return &extjson.SyntaxError{
			Path: strconv.Itoa(p.index), Offset: at, Problem: "too large as BSON", TooLarge: true,
		}
	}
	p.doc.Value(name, value)
	return nil
}

func (p *pairs) value() (bson.Value, error) {
	p.at += skipSpace(p.json[p.at:])
	v, _, n, err := maxPairs.ParseValuePrefix(nil, p.json[p.at:])
	if err != nil {
		if syntax, ok := errors.AsType[*extjson.SyntaxError](err); ok {
			moved := *syntax
			moved.Path, moved.Offset = join(strconv.Itoa(p.index), syntax.Path), p.at+syntax.Offset
			err = &moved
		}
		return bson.Value{}, err
	}
	p.at += n
	return v, nil
}

// take skips white space, then c if it is next. It reports whether it has skipped c.
func (p *pairs) take(c byte) bool {
	p.at += skipSpace(p.json[p.at:])
	if p.at == len(p.json) || p.json[p.at] != c {
		return false
	}
	p.at++
	return true
}

func (p *pairs) fail(expected string) error {
	path := ""
	if p.index > 0 {
		path = strconv.Itoa(p.index)
	}
	return &extjson.SyntaxError{Path: path, Offset: p.at, Problem: "expected " + expected}
}

func skipSpace(b []byte) int {
	for i, c := range b {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return i
		}
	}
	return len(b)
}
