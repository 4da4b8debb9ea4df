package csv

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/bson"
)

// scanner cuts a file into rows, and rows into cells.
type scanner struct {
	in     *bufio.Reader
	comma  byte
	memory bson.Memory
	begun  bool

	line  int    // where the row begins, from 1
	lines int    // that have ended
	row   []byte // as it is in the file
	// cells has the first of the row's cells, at most most of them. The row has count cells.
	cells       []cell
	most, count int
	blank       bool   // no cell so far has a value
	plain       []byte // a cell without the quotes that are doubled

	state state
	open  int // where the cell begins
	quote int // where its quote is
	twice bool
}

// cell locates a part of a row, without the quotes around it.
type cell struct {
	begin, end int
	quoted     bool
	twice      bool // it has quotes in it, which are doubled
}

type state uint8

const (
	atStart  state = iota // of a cell
	inPlain               // in a cell without quotes
	inQuotes              // in a cell with quotes
	atQuote               // after a quote in one: at the end, or before its double
	atReturn              // after a \r, which ends the row with the \n that must follow
)

// readBuffer is how much of a file is read at once.
const readBuffer = 64 << 10

const byteOrderMark = "\ufeff"

func newScanner(r io.Reader, o Options) *scanner {
	return &scanner{
		in: bufio.NewReaderSize(r, readBuffer), comma: o.comma(), memory: o.Memory,
		most: MaxColumns + 1,
	}
}

// scan reads the next row of at most so many bytes. It returns io.EOF after the last one, an *Error
// that is fatal, or the error of the reader.
func (s *scanner) scan(most int) error {
	if err := s.begin(); err != nil {
		return err
	}
	for {
		part, err := s.in.ReadSlice('\n')
		at := len(s.row)
		fits := part[:min(len(part), most-at)]
		if err := s.keep(fits); err != nil {
			return err
		}
		ended, wrong := s.cut(at)
		switch {
		case wrong != nil:
			return fatal(wrong)
		case len(fits) < len(part):
			return s.tooLong(most)
		case ended:
			return nil
		case errors.Is(err, io.EOF):
			return s.end()
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// begin makes ready for a row. Before the first one, it skips a mark of the byte order.
func (s *scanner) begin() error {
	s.row, s.cells, s.count, s.blank = s.row[:0], s.cells[:0], 0, true
	s.state, s.open, s.line = atStart, 0, s.lines+1
	if cap(s.plain) > readBuffer {
		s.plain = nil // only the row's buffer is kept
	}
	if s.begun {
		return nil
	}
	s.begun = true
	head, _ := s.in.Peek(len(byteOrderMark)) // what follows says why there is less
	switch {
	case string(head) == byteOrderMark:
		_, _ = s.in.Discard(len(byteOrderMark)) // never fails: it is there
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return fatal(s.at(0, "the text is UTF-16: save it as UTF-8"))
	}
	return nil
}

// keep appends a part of the row.
func (s *scanner) keep(part []byte) error {
	err := s.grow(&s.row, len(part))
	if err == nil {
		s.row = append(s.row, part...)
	}
	return err
}

// grow makes room for n bytes in a buffer, in the Memory if the buffer becomes large.
func (s *scanner) grow(buf *[]byte, n int) error {
	if s.memory == nil || len(*buf)+n <= max(cap(*buf), readBuffer) {
		*buf = slices.Grow(*buf, n)
		return nil
	}
	larger, err := s.memory.Grow(*buf, n)
	if err == nil {
		*buf = larger
	}
	return err
}

// cut goes on in the row at a byte, and reports whether the row ends.
func (s *scanner) cut(at int) (ended bool, wrong *Error) {
	for i := at; i < len(s.row); i++ {
		c := s.row[i]
		if c == '\n' {
			s.lines++
		}
		switch s.state {
		case inQuotes:
			if c == '"' {
				s.state = atQuote
			}
			continue
		case atQuote:
			if c == '"' {
				s.state, s.twice = inQuotes, true
				continue
			}
		case atReturn:
			if c != '\n' {
				return false, s.at(i-1, `a \r outside quotes must be followed by \n`)
			}
		case atStart:
			if c == '"' {
				s.state, s.quote, s.twice, s.open = inQuotes, i, false, i+1
				continue
			}
		case inPlain:
		}
		switch {
		case c == s.comma:
			s.close(i)
			s.state, s.open = atStart, i+1
		case c == '\n':
			s.close(i)
			return true, nil
		case c == '\r':
			s.close(i)
			s.state = atReturn
		case s.state == atQuote:
			return false, s.at(i, "text after the quote that ends a cell: write a quote in a "+
				`cell as ""`)
		case c == '"':
			return false, s.at(i, "a quote in a cell that is not quoted: put quotes around "+
				`the cell, and write each quote in it as ""`)
		default:
			s.state = inPlain
		}
	}
	return false, nil
}

// close ends the cell before a byte.
func (s *scanner) close(end int) {
	c := cell{begin: s.open, end: end}
	switch s.state {
	case atReturn:
		return // closed before
	case atQuote:
		c = cell{begin: s.open, end: end - 1, quoted: true, twice: s.twice}
	case atStart, inPlain, inQuotes:
	}
	s.count++
	s.blank = s.blank && c.begin == c.end && !c.quoted
	if len(s.cells) < s.most {
		s.cells = append(s.cells, c)
	}
}

// end ends the last row, if no \n does.
func (s *scanner) end() error {
	switch {
	case len(s.row) == 0:
		return io.EOF
	case s.state == inQuotes:
		return fatal(s.at(s.quote, "this quote is not closed"))
	}
	s.close(len(s.row))
	s.lines++
	return nil
}

func (s *scanner) tooLong(most int) error {
	at, problem := 0, "the row is longer than "+strconv.Itoa(most)+" bytes"
	if s.state == inQuotes {
		at, problem = s.quote, problem+", and this quote is not closed in them"
	}
	e := s.at(at, problem)
	e.TooLarge = true
	return fatal(e)
}

// at returns an error of the byte at this place of the row.
func (s *scanner) at(offset int, problem string) *Error {
	before := s.row[:min(offset, len(s.row))]
	lines := bytes.Count(before, []byte{'\n'})
	begin := bytes.LastIndexByte(before, '\n') + 1
	return &Error{
		Line: s.line + lines, Column: utf8.RuneCount(before[begin:]) + 1, Problem: problem,
	}
}

// notText returns where the row is not UTF-8; -1 if it is.
func (s *scanner) notText() int {
	if utf8.Valid(s.row) {
		return -1
	}
	at := 0
	for at < len(s.row) {
		r, n := utf8.DecodeRune(s.row[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

// notUTF8 is the problem at that place.
const notUTF8 = "the text is not UTF-8"

// text returns the text of a cell, a view on the row or, until the next call, on another buffer.
func (s *scanner) text(c cell) ([]byte, error) {
	raw := s.row[c.begin:c.end]
	if !c.twice {
		return raw, nil
	}
	s.plain = s.plain[:0]
	if err := s.grow(&s.plain, len(raw)); err != nil {
		return nil, err
	}
	for {
		i := bytes.IndexByte(raw, '"')
		if i < 0 {
			break
		}
		s.plain, raw = append(s.plain, raw[:i+1]...), raw[i+2:]
	}
	s.plain = append(s.plain, raw...)
	return s.plain, nil
}
