package mongoerr

import "strings"

// withheld stands for the message of a server.
const withheld = "error"

// Outline returns the text of an error without the messages of servers, for what leaves the
// process as a trace or a log: messages may have values of documents and filters, such as that of a
// duplicate key. Addresses, codes and their names stay, and so does what other errors say that wrap
// the server's. It returns "" for nil.
func Outline(err error) string {
	if err == nil {
		return ""
	}
	//nolint:errorlint // each error of the chain has its turn
	if o, ok := err.(interface{ Outline() string }); ok {
		return o.Outline()
	}
	text := err.Error()
	for _, inner := range wrapped(err) {
		whole, safe := inner.Error(), Outline(inner)
		if safe == whole {
			continue
		}
		if !strings.Contains(text, whole) { // the text may have a part of it
			return safe
		}
		text = strings.Replace(text, whole, safe, 1)
	}
	return text
}

// wrapped returns the errors that an error wraps itself.
func wrapped(err error) []error {
	switch e := err.(type) { //nolint:errorlint // it asks for the methods of this error
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return []error{inner}
		}
	}
	return nil
}

// Outline returns the text without the server's message.
func (e *CommandError) Outline() string {
	c := *e
	c.Message = withheld
	return c.Error()
}

// Outline returns the text without the server's message.
func (e WriteError) Outline() string {
	e.Message = withheld
	return e.Error()
}

// Outline returns the text without the server's message.
func (e *WriteConcernError) Outline() string {
	c := *e
	c.Message = withheld
	return c.Error()
}

// Outline returns the text without the server's messages.
func (e *WriteException) Outline() string {
	c := *e
	c.WriteErrors = make([]WriteError, len(e.WriteErrors))
	for i, w := range e.WriteErrors {
		c.WriteErrors[i] = w
		c.WriteErrors[i].Message = withheld
	}
	if e.WriteConcernError != nil {
		concern := *e.WriteConcernError
		concern.Message = withheld
		c.WriteConcernError = &concern
	}
	return c.Error()
}
