package dataapi

import (
	"errors"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// input holds the fields of a body.
type input struct {
	dataSource, database, collection string

	filter, projection, sort, document, replacement *mooringv1.Document

	update              *mooringv1.Update
	documents, pipeline []*mooringv1.Document
	limit, skip         *int64
	upsert              *bool
}

// fields has what reads each field of a body.
var fields = map[string]func(p *parser, in *input) error{
	"dataSource":  func(p *parser, in *input) error { return p.string(&in.dataSource) },
	"database":    func(p *parser, in *input) error { return p.string(&in.database) },
	"collection":  func(p *parser, in *input) error { return p.string(&in.collection) },
	"filter":      func(p *parser, in *input) error { return p.document(&in.filter) },
	"projection":  func(p *parser, in *input) error { return p.document(&in.projection) },
	"sort":        func(p *parser, in *input) error { return p.document(&in.sort) },
	"document":    func(p *parser, in *input) error { return p.document(&in.document) },
	"replacement": func(p *parser, in *input) error { return p.document(&in.replacement) },
	"documents":   func(p *parser, in *input) error { return p.list(&in.documents) },
	"pipeline":    func(p *parser, in *input) error { return p.list(&in.pipeline) },
	"update":      func(p *parser, in *input) error { return p.update(&in.update) },
	"limit":       func(p *parser, in *input) error { return p.integer(&in.limit) },
	"skip":        func(p *parser, in *input) error { return p.integer(&in.skip) },
	"upsert":      func(p *parser, in *input) error { return p.bool(&in.upsert) },
}

// everywhere lists the fields that each body has.
var everywhere = []string{"dataSource", "database", "collection"}

// Items are charged in steps, as those of REST.
const (
	itemStep = 1000
	itemCost = 512
)

// parser reads one body, in one pass. It converts each document to BSON when it reaches the
// document, and keeps nothing of the text.
type parser struct {
	text   []byte
	at     int
	make   payload.Maker
	items  int
	most   int
	charge func(bytes int64) error
}

// input reads the body of an action. A field that is null is as one that is not there.
func (p *parser) input(do *action) (*input, error) {
	in, seen := &input{}, map[string]bool{}
	if !p.take('{') {
		return nil, p.fail("", "the body is not a JSON object")
	}
	for more := !p.take('}'); more; more = !p.take('}') {
		if len(seen) > 0 && !p.take(',') {
			return nil, p.fail("", `expected "," or "}"`)
		}
		var name string
		if err := p.string(&name); err != nil {
			return nil, err
		}
		read := fields[name]
		switch {
		case read == nil || !do.has(name):
			return nil, invalid(name, "this action does not have this field")
		case seen[name]:
			return nil, p.fail(name, "the field is repeated")
		case !p.take(':'):
			return nil, p.fail(name, `expected ":"`)
		}
		if seen[name] = !p.null(); !seen[name] {
			continue
		}
		if err := read(p, in); err != nil {
			return nil, inField(name, err)
		}
	}
	if p.space(); p.at < len(p.text) {
		return nil, p.fail("", "unexpected text after the body")
	}
	for _, name := range append(everywhere[:len(everywhere):len(everywhere)], do.required...) {
		if !seen[name] {
			return nil, missing(name)
		}
	}
	return in, nil
}

// space skips white space.
func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// take skips white space, then c if it is next. It reports whether it has skipped c.
func (p *parser) take(c byte) bool {
	p.space()
	if p.at == len(p.text) || p.text[p.at] != c {
		return false
	}
	p.at++
	return true
}

// null skips a null, and reports whether it was there.
func (p *parser) null() bool {
	p.space()
	if rest := p.text[p.at:]; len(rest) >= 4 && string(rest[:4]) == "null" {
		p.at += 4
		return true
	}
	return false
}

// value reads any Extended JSON value, which is valid until the next one is read.
func (p *parser) value() (bson.Value, error) {
	p.space()
	v, n, err := p.make.Value(p.text[p.at:])
	if err != nil {
		return v, p.syntax(err)
	}
	p.at += n
	return v, nil
}

func (p *parser) string(into *string) error {
	p.space()
	if p.at == len(p.text) || p.text[p.at] != '"' {
		return p.fail("", "expected a string in double quotes")
	}
	v, err := p.value()
	if err != nil {
		return err
	}
	text, _ := v.Str()
	*into = strings.Clone(text)
	return nil
}

func (p *parser) bool(into **bool) error {
	v, err := p.value()
	if err != nil {
		return err
	}
	b, ok := v.Bool()
	if !ok {
		return p.fail("", "expected true or false")
	}
	*into = &b
	return nil
}

func (p *parser) integer(into **int64) error {
	v, err := p.value()
	if err != nil {
		return err
	}
	n, ok := v.AsInt64()
	if !ok {
		return p.fail("", "expected an integer")
	}
	*into = &n
	return nil
}

func (p *parser) document(into **mooringv1.Document) error {
	p.space()
	if p.at == len(p.text) || p.text[p.at] != '{' {
		return p.fail("", "expected an object")
	}
	raw, n, err := p.make.Document(p.text[p.at:])
	if err != nil {
		return p.syntax(err)
	}
	p.at += n
	*into = payload.NewDocument(raw)
	return nil
}

// list reads an array of documents.
func (p *parser) list(into *[]*mooringv1.Document) error {
	if !p.take('[') {
		return p.fail("", "expected an array of objects")
	}
	for more := !p.take(']'); more; more = !p.take(']') {
		if len(*into) > 0 && !p.take(',') {
			return p.fail("", `expected "," or "]"`)
		}
		if err := p.item(); err != nil {
			return err
		}
		var d *mooringv1.Document
		if err := p.document(&d); err != nil {
			return inField(strconv.Itoa(len(*into)), err)
		}
		*into = append(*into, d)
	}
	return nil
}

// item counts an item of a list.
func (p *parser) item() error {
	if p.items == p.most {
		return &rpcerr.Error{
			Reason:  rpcerr.TooLarge,
			Message: "the request has more than " + strconv.Itoa(p.most) + " items",
		}
	}
	p.items++
	if p.items%itemStep == 0 {
		return p.charge(itemStep * itemCost)
	}
	return nil
}

// update reads operators or a pipeline.
func (p *parser) update(into **mooringv1.Update) error {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == '[' {
		stages := &mooringv1.Pipeline{}
		*into = &mooringv1.Update{Kind: &mooringv1.Update_Pipeline{Pipeline: stages}}
		return p.list(&stages.Stages)
	}
	var operators *mooringv1.Document
	err := p.document(&operators)
	*into = &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: operators}}
	return err
}

func (p *parser) fail(field, message string) error {
	return &rpcerr.Error{
		Reason: rpcerr.MalformedDocument, Field: field, Offset: int64(p.at), Message: message,
	}
}

// syntax returns the error of a value, and other errors as they are. Offsets of err count from
// p.at.
func (p *parser) syntax(err error) error {
	s, ok := errors.AsType[*extjson.SyntaxError](err)
	switch {
	case !ok:
		return err
	case s.TooLarge:
		return &rpcerr.Error{Reason: rpcerr.TooLarge, Field: s.Path, Message: s.Problem}
	}
	return &rpcerr.Error{
		Reason: rpcerr.MalformedDocument, Field: s.Path, Offset: int64(p.at + s.Offset),
		Message: "malformed Extended JSON: " + s.Problem,
	}
}

// inField prefixes the field of an error with name.
func inField(name string, err error) error {
	if e, ok := errors.AsType[*rpcerr.Error](err); ok {
		if e.Field != "" {
			name += "." + e.Field
		}
		e.Field = name
	}
	return err
}
