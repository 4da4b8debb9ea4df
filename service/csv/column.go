package csv

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mooringdb/mooring/service/literal"
)

// Column describes a column: the path of a field, and the form of its values.
type Column struct {
	// Path has the names of fields, with dots between them.
	Path string
	Form literal.Form
	text string // in the first row; "" is Path
}

// String returns the column as the first row has it.
func (c Column) String() string {
	if c.text == "" {
		return c.Path
	}
	return c.text
}

// ParseColumn reads a name with or without a type, such as "address.city" or "age.int32()".
func ParseColumn(text string) (Column, error) {
	c := Column{text: text}
	var err error
	if c.Path, c.Form, err = literal.CutForm(text); err != nil {
		return c, err
	}
	if _, err := literal.ParseForm(c.Path); err == nil {
		return c, errors.New(quoted(text) + " has a type but no name")
	}
	return c, checkPath(c.Path)
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("the column has no name")
	case len(path) > MaxName:
		return errors.New("the name is longer than " + strconv.Itoa(MaxName) + " bytes")
	case strings.HasPrefix(path, ".") || strings.HasSuffix(path, ".") ||
		strings.Contains(path, ".."):
		return errors.New(quoted(path) + " has an empty name between dots")
	case strings.TrimSpace(path) != path:
		return errors.New(quoted(path) + " begins or ends with a space: remove it")
	case strings.ContainsRune(path, 0):
		return errors.New(quoted(path) + " has a zero byte in it")
	case !utf8.ValidString(path):
		return errors.New(quoted(path) + " is not UTF-8")
	case strings.Count(path, ".") >= maxDepth:
		return errors.New("the name has more than " + strconv.Itoa(maxDepth) +
			" parts")
	}
	return nil
}

// ParseColumns reads columns from the text of a first row. Its errors are *Error.
func ParseColumns(row string) ([]Column, error) {
	s := newScanner(strings.NewReader(row), Options{})
	return s.columns()
}

// columns reads the first row.
func (s *scanner) columns() ([]Column, error) {
	if err := s.scan(MaxHeader); errors.Is(err, io.EOF) {
		return nil, &Error{Line: 1, Column: 1, Problem: "the header row is missing", Fatal: true}
	} else if err != nil {
		return nil, err
	}
	if at := s.notText(); at >= 0 {
		return nil, fatal(s.at(at, notUTF8))
	}
	if s.count > MaxColumns {
		return nil, fatal(s.at(s.cells[MaxColumns].begin, "there are more than "+
			strconv.Itoa(MaxColumns)+" columns"))
	}
	columns, root := make([]Column, len(s.cells)), &node{column: -1}
	for i, cell := range s.cells {
		name, err := s.text(cell)
		if err != nil {
			return nil, err
		}
		c, err := ParseColumn(string(name))
		if err == nil && len(s.cells) == 1 && !cell.quoted {
			err = otherSeparator(c.Path)
		}
		if err == nil {
			err = root.add(strings.Split(c.Path, "."), i)
		}
		if err != nil {
			return nil, fatal(s.at(cell.begin, err.Error()))
		}
		columns[i] = c
	}
	return columns, nil
}

// otherSeparator refuses the name of an only column that looks like several.
func otherSeparator(name string) error {
	for _, separator := range []string{";", "\t", "|"} {
		if strings.Contains(name, separator) {
			return errors.New("the only column is " + quoted(name) + ": does " +
				strconv.Quote(separator) + " separate columns? Put quotes around the name if not")
		}
	}
	return nil
}

func fatal(e *Error) error {
	e.Fatal = true
	return e
}

// node represents a field, and what is named in it.
type node struct {
	name   string
	column int // -1: none
	parent *node
	fields []*node
	byName map[string]*node
	// row is the number of the last row that has a value of the field, or of one in it.
	row uint64
}

// mark says that the field has a value in this row, which is not 0.
func (n *node) mark(row uint64) {
	for ; n != nil && n.row != row; n = n.parent {
		n.row = row
	}
}

// leaves returns the fields of the columns.
func (n *node) leaves(of []*node) []*node {
	if n.column >= 0 {
		of[n.column] = n
	}
	for _, inner := range n.fields {
		inner.leaves(of)
	}
	return of
}

// treeOf returns the fields of columns whose paths were added to a tree before.
func treeOf(columns []Column) (*node, error) {
	root := &node{column: -1}
	for i, c := range columns {
		if err := checkPath(c.Path); err != nil {
			return nil, err
		}
		if err := root.add(strings.Split(c.Path, "."), i); err != nil {
			return nil, err
		}
	}
	return root, nil
}

// add adds a path. A column is not within another one.
func (n *node) add(path []string, column int) error {
	for i, name := range path {
		child := n.byName[name]
		switch {
		case child == nil:
			child = &node{name: name, column: -1, parent: n}
			if n.byName == nil {
				n.byName = map[string]*node{}
			}
			n.byName[name], n.fields = child, append(n.fields, child)
		case i == len(path)-1 && child.column >= 0:
			return errors.New("two columns have the name " + quoted(strings.Join(path, ".")))
		case i == len(path)-1 || child.column >= 0:
			return errors.New(quoted(strings.Join(path, ".")) +
				" contains another column or is part of it")
		}
		n = child
	}
	n.column = column
	return nil
}
