package unified

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/unified/match"
)

// expectedError checks an operation's error against expectError. result is what it brought
// nevertheless.
func (r *run) expectedError(expected bson.Raw, err error, result bson.Value) error {
	if err == nil {
		return fmt.Errorf("succeeded with %s, want the error %s", match.Text(result),
			match.Text(bson.DocumentValue(expected)))
	}
	for key, want := range expected.All() {
		check, ok := errorChecks[key]
		if !ok {
			return fmt.Errorf("expectError has an unknown field %q", key)
		}
		if problem := check(r, want, err, result); problem != nil {
			return fmt.Errorf("error %q (%T): %s: %w", err.Error(), err, key, problem)
		}
	}
	return nil
}

var errorChecks = map[string]func(r *run, want bson.Value, err error, result bson.Value) error{
	"isError":            func(*run, bson.Value, error, bson.Value) error { return nil },
	"isClientError":      sameBool(func(err error) bool { return replyOf(err) == nil }),
	"isTimeoutError":     sameBool(mongoerr.IsTimeout),
	"errorContains":      errorContains,
	"errorCode":          errorCode,
	"errorCodeName":      errorCodeName,
	"errorLabelsContain": labels(true),
	"errorLabelsOmit":    labels(false),
	"expectResult": func(r *run, want bson.Value, _ error,
		got bson.Value,
	) error {
		return r.matcher.Root(want, got)
	},
	"errorResponse":      errorResponse,
	"writeErrors":        writeErrors,
	"writeConcernErrors": writeConcernErrors,
}

func sameBool(is func(error) bool) func(*run, bson.Value, error, bson.Value) error {
	return func(_ *run, want bson.Value, err error, _ bson.Value) error {
		if wanted, _ := want.Bool(); is(err) != wanted {
			return fmt.Errorf("is %v", is(err))
		}
		return nil
	}
}

// replyOf returns the server's reply that an error is about. It returns nil for errors of the
// client's side, network errors included.
func replyOf(err error) bson.Raw {
	if e, ok := errors.AsType[*mongoerr.CommandError](err); ok {
		return e.Reply
	}
	if e, ok := errors.AsType[*mongoerr.WriteException](err); ok {
		return e.Reply
	}
	if e, ok := errors.AsType[*mongoerr.WriteConcernError](err); ok {
		return e.Raw
	}
	for _, e := range writeErrorsOf(err) {
		return e.Raw
	}
	return nil
}

// writeErrorsOf returns the write errors that an error reports.
func writeErrorsOf(err error) []mongoerr.WriteError {
	if e, ok := errors.AsType[*mongoerr.WriteException](err); ok {
		return e.WriteErrors
	}
	if e, ok := errors.AsType[*client.NamespacedBulkWriteError](err); ok {
		return e.WriteErrors
	}
	return nil
}

func errorContains(_ *run, want bson.Value, err error, _ bson.Value) error {
	part, _ := want.Str()
	if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(part)) {
		return fmt.Errorf("does not contain %q", part)
	}
	return nil
}

func errorCode(_ *run, want bson.Value, err error, _ bson.Value) error {
	wanted, _ := want.AsInt64()
	code := int64(mongoerr.Code(err))
	if all := writeErrorsOf(err); len(all) > 0 {
		code = int64(all[0].Code)
	}
	if code != wanted {
		return fmt.Errorf("is %d, want %d", code, wanted)
	}
	return nil
}

func errorCodeName(_ *run, want bson.Value, err error, _ bson.Value) error {
	wanted, _ := want.Str()
	name := ""
	if e, ok := errors.AsType[*mongoerr.CommandError](err); ok {
		name = e.Name
	} else if e, ok := errors.AsType[*mongoerr.WriteConcernError](err); ok {
		name = e.Name
	}
	if name != wanted {
		return fmt.Errorf("is %q, want %q", name, wanted)
	}
	return nil
}

// labels checks that an error has all of them, or none.
func labels(has bool) func(*run, bson.Value, error, bson.Value) error {
	return func(_ *run, want bson.Value, err error, _ bson.Value) error {
		array, _ := want.Array()
		for _, v := range array.All() {
			label, _ := v.Str()
			if slices.Contains(mongoerr.Labels(err), label) != has {
				return fmt.Errorf("the labels are %v", mongoerr.Labels(err))
			}
		}
		return nil
	}
}

func errorResponse(r *run, want bson.Value, err error, _ bson.Value) error {
	reply := replyOf(err)
	if reply == nil {
		return errors.New("no server has answered")
	}
	return r.matcher.Root(want, bson.DocumentValue(reply))
}

// writeErrors compares those of the indexes that the document's keys are.
func writeErrors(r *run, want bson.Value, err error, _ bson.Value) error {
	all := writeErrorsOf(err)
	wanted, _ := want.Document()
	if len(all) == 0 || len(all) != wanted.Len() {
		return errors.New("the number of write errors differs")
	}
	for _, one := range all {
		expected := lookup(wanted, strconv.Itoa(one.Index))
		if err := r.matcher.Root(expected, bson.DocumentValue(one.Raw)); err != nil {
			return fmt.Errorf("write %d: %w", one.Index, err)
		}
	}
	return nil
}

// writeConcernError returns the error as files describe it: the server's, with errmsg as message.
func writeConcernError(e *mongoerr.WriteConcernError) bson.Raw {
	return bson.NewBuilder(nil).AppendElements(e.Raw).String("message", e.Message).Finish()
}

func writeConcernErrors(r *run, want bson.Value, err error, _ bson.Value) error {
	var all []bson.Raw
	if bulk, ok := errors.AsType[*client.NamespacedBulkWriteError](err); ok {
		for _, e := range bulk.WriteConcernErrors {
			all = append(all, writeConcernError(e))
		}
	} else if e, ok := errors.AsType[*mongoerr.WriteConcernError](err); ok {
		all = append(all, writeConcernError(e))
	}
	array, _ := want.Array()
	if array.Len() != len(all) {
		return fmt.Errorf("there are %d write concern errors, want %d", len(all), array.Len())
	}
	for i, expected := range array.All() {
		if err := r.matcher.Root(expected, bson.DocumentValue(all[i])); err != nil {
			return err
		}
	}
	return nil
}
