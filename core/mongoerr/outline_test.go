package mongoerr_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/mooringdb/mooring/core/mongoerr"
)

// cutShort wraps an error of whose text it shows a part.
type cutShort struct{ err error }

func (e cutShort) Error() string { return "cut: " + e.err.Error()[:20] }
func (e cutShort) Unwrap() error { return e.err }

func TestOutline(t *testing.T) {
	const secret = "E11000 dup key: {name: \"hunter2\"}"
	command := &mongoerr.CommandError{
		Code: 11000, Name: "DuplicateKey", Message: secret, Address: "h:1",
	}
	write := mongoerr.WriteError{Index: 3, Code: 11000, Message: secret}
	concern := &mongoerr.WriteConcernError{
		Code: 64, Name: "WriteConcernTimeout", Message: secret, Address: "h:1",
	}
	const commandText = "command failed on h:1: error (DuplicateKey, code 11000)"
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{io.EOF, "EOF"},
		{command, commandText},
		{&mongoerr.CommandError{Message: secret, Address: "h:1"}, "command failed on h:1: error"},
		{write, "write 3: error (DuplicateKey, code 11000)"},
		{concern, "write concern not satisfied on h:1: error (WriteConcernTimeout, code 64)"},
		{
			&mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{write, write}, WriteConcernError: concern, Address: "h:1"},
			"write failed on h:1: write 3: error (DuplicateKey, code 11000) (and 1 more); " +
				"write concern not satisfied on h:1: error (WriteConcernTimeout, code 64)",
		},
		{&mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{write}, Address: "h:1"}, "write failed on h:1: write 3: error (DuplicateKey, code 11000)"},
		{fmt.Errorf("insert: %w", command), "insert: " + commandText},
		{fmt.Errorf("insert: %w", mongoerr.WithLabel(command, "L")), "insert: " + commandText},
		{errors.Join(io.EOF, command, concern), "EOF\n" + commandText + "\nwrite concern not satisfied on h:1: error (WriteConcernTimeout, code 64)"},
		{fmt.Errorf("twice: %w, %w", command, command), "twice: " + commandText + ", " + commandText},
		{cutShort{command}, commandText},
		{fmt.Errorf("outside: %w", cutShort{command}), "outside: " + commandText},
		{cutShort{errors.New("a text of twenty bytes")}, "cut: a text of twenty byt"},
		{&mongoerr.NetworkError{Address: "h:1", Op: "read", Err: io.EOF}, (&mongoerr.NetworkError{Address: "h:1", Op: "read", Err: io.EOF}).Error()},
	} {
		whole := fmt.Sprint(tt.err)
		if got := mongoerr.Outline(tt.err); got != tt.want {
			t.Errorf("Outline(%v) = %q, want %q", tt.err, got, tt.want)
		}
		if fmt.Sprint(tt.err) != whole {
			t.Errorf("Outline has changed %q to %q", whole, tt.err)
		}
	}
}
