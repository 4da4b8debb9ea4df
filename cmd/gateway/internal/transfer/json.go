package transfer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// maxText is the length of the longest JSON text of a document.
const maxText = 4 * bson.MaxDocumentSize

// lines reads NDJSON.
type lines struct {
	r    *bufio.Reader
	line int
	last []byte
}

func (l *lines) next() (record, error) {
	for {
		l.last = nil
		text, err := l.read()
		if err != nil && (len(text) == 0 || !errors.Is(err, io.EOF)) {
			return record{}, err
		}
		l.line++
		if l.line == 1 {
			text = bytes.TrimPrefix(text, mark)
		}
		if len(bytes.TrimSpace(text)) > 0 {
			l.last = text
			return parse(text, l.line, 1), nil
		}
	}
}

func (l *lines) text() []byte { return l.last }

// read reads a line.
func (l *lines) read() (text []byte, err error) {
	for {
		part, err := l.r.ReadSlice('\n')
		if len(text)+len(part) > maxText {
			return nil, &Trouble{Line: l.line + 1, Column: 1, Reason: fmt.Sprintf(
				"the line is longer than %d MiB", maxText>>20)}
		}
		text = append(text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

// parse makes the document of a text that begins at a place.
func parse(text []byte, line, column int) record {
	doc, err := parser.Parse(nil, text)
	if err == nil {
		return record{doc: doc, line: line}
	}
	trouble := &Trouble{Line: line, Column: column, Reason: err.Error(), Text: clip(text)}
	if wrong, ok := errors.AsType[*extjson.SyntaxError](err); ok {
		trouble.Reason = wrong.Problem
		if wrong.Path != "" {
			trouble.Reason = wrong.Path + ": " + wrong.Problem
		}
		before := text[:min(max(wrong.Offset, 0), len(text))]
		if i := bytes.LastIndexByte(before, '\n'); i >= 0 {
			trouble.Line += bytes.Count(before, []byte{'\n'})
			trouble.Column, before = 1, before[i+1:]
		}
		trouble.Column += utf8.RuneCount(before)
	}
	return record{line: line, trouble: trouble}
}

// mostReported is how much of a document is in a report of trouble.
const mostReported = 1 << 20

func clip(text []byte) string {
	text = bytes.TrimRight(text, "\r\n")
	return string(text[:min(len(text), mostReported)])
}

// array reads a JSON array of documents.
type array struct {
	r            *bufio.Reader
	line, column int // of the next byte
	begun, ended bool
	items        int
}

func (a *array) next() (record, error) {
	if a.ended {
		return record{}, a.rest()
	}
	c, err := a.peek()
	if err == nil && !a.begun {
		if c != '[' {
			return record{}, a.wrong("expected [")
		}
		a.begun = true
		a.take()
		c, err = a.peek()
	}
	if err == nil && c != ']' && a.items > 0 {
		if c != ',' {
			return record{}, a.wrong("expected , or ]")
		}
		a.take()
		if c, err = a.peek(); err == nil && c == ']' {
			return record{}, a.wrong(noDocument)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return record{}, a.wrong("the array is not closed")
	case err != nil:
		return record{}, err
	case c == ']':
		a.take()
		a.ended = true
		return record{}, a.rest()
	case c != '{':
		return record{}, a.wrong(noDocument)
	}
	a.items++
	line, column := a.line, a.column
	text, err := a.object()
	if err != nil {
		return record{}, err
	}
	return parse(text, line, column), nil
}

const noDocument = "expected a document: {"

func (*array) text() []byte { return nil }

// rest returns io.EOF if nothing follows the array.
func (a *array) rest() error {
	if _, err := a.peek(); err != nil {
		return err
	}
	return a.wrong("unexpected text after the array")
}

// object reads a text up to the } of its first {.
func (a *array) object() (text []byte, err error) {
	line, column := a.line, a.column
	var depth int
	var quoted, escaped bool
	for {
		c, err := a.r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil, &Trouble{Line: line, Column: column, Reason: "the document is not closed"}
		case err != nil:
			return nil, err
		case len(text) == maxText:
			return nil, &Trouble{Line: line, Column: column, Reason: fmt.Sprintf(
				"the document is longer than %d MiB", maxText>>20)}
		}
		a.count(c)
		text = append(text, c)
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return text, nil
			}
		}
	}
}

// peek returns the next byte that is not white space.
func (a *array) peek() (byte, error) {
	for {
		c, err := a.r.ReadByte()
		if err != nil {
			return 0, err
		}
		isMark := a.line == 1 && a.column == 1 && c == mark[0]
		if !isMark && c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, a.r.UnreadByte()
		}
		if isMark {
			_, _ = a.r.Discard(len(mark) - 1) // the next read returns the error
			continue
		}
		a.count(c)
	}
}

// take reads the byte that peek has returned.
func (a *array) take() {
	if c, err := a.r.ReadByte(); err == nil {
		a.count(c)
	}
}

// count moves the place behind a byte.
func (a *array) count(c byte) {
	switch {
	case c == '\n':
		a.line, a.column = a.line+1, 1
	case utf8.RuneStart(c):
		a.column++
	}
}

func (a *array) wrong(reason string) error {
	return &Trouble{Line: a.line, Column: a.column, Reason: reason}
}
