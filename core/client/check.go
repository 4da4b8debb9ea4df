package client

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/selection"
)

// check collects the first objection to the arguments of a request to a client.
type check struct {
	client *Client
	err    error
}

func (c *check) refuse(argument, format string, args ...any) {
	if c.err == nil {
		c.err = &ArgumentError{Argument: argument, Problem: fmt.Sprintf(format, args...)}
	}
}

// database objects to names that the command could not carry. Whether a name is allowed is up to
// the server.
func (c *check) database(name string) {
	switch {
	case name == "":
		c.refuse("database", "is empty")
	case strings.IndexByte(name, 0) >= 0:
		c.refuse("database", "has a zero byte in it")
	}
}

func (c *check) namespace(ns Namespace) {
	c.database(ns.Database)
	switch {
	case ns.Collection == "":
		c.refuse("collection", "is empty")
	case strings.IndexByte(ns.Collection, 0) >= 0:
		c.refuse("collection", "has a zero byte in it")
	}
}

func (c *check) hint(v bson.Value) {
	if !v.IsZero() && v.Type != bson.TypeString && v.Type != bson.TypeDocument {
		c.refuse("hint", "must be an index name or a document of keys, not %s", v.Type)
	}
}

// takes holds the set of the fields of Common that an operation takes, without Session, Timeout,
// RunOn and Caller, which all take.
type takes uint8

const (
	takesComment takes = 1 << iota
	takesReadConcern
	takesWriteConcern
	takesReadPreference
	takesRawData
	takesExtra
)

const (
	readOptions = takesComment | takesReadConcern | takesReadPreference | takesRawData |
		takesExtra
	writeOptions   = takesComment | takesWriteConcern | takesRawData | takesExtra
	commandOptions = takesReadPreference
)

// common objects to what an operation does not take of Common, and to what is wrong in the rest.
// known are the names that may not be in Extra.
func (c *check) common(o *Common, t takes, known []string) {
	for _, field := range []struct {
		name string
		bit  takes
		set  bool
	}{
		{"comment", takesComment, !o.Comment.IsZero()},
		{"readConcern", takesReadConcern, o.ReadConcern != nil},
		{"writeConcern", takesWriteConcern, o.WriteConcern != nil},
		{"readPreference", takesReadPreference, o.ReadPreference != nil},
		{"rawData", takesRawData, o.RawData != nil},
		{"options", takesExtra, o.Extra != nil},
	} {
		if field.set && t&field.bit == 0 {
			c.refuse(field.name, "is not an option of this operation")
		}
	}
	if o.Timeout != nil && *o.Timeout < 0 {
		c.refuse("timeoutMS", "is negative")
	}
	c.session(o)
	c.readPreference(o.ReadPreference)
	c.extra(o.Extra, known)
}

// await objects to a wait for documents that timeoutMS does not leave time for (Client Side
// Operations Timeout, "Tailable awaitData Cursors").
func (c *check) await(option string, ms *int64, timeout *time.Duration) {
	if ms == nil || timeout == nil || *timeout <= 0 {
		return
	}
	if *ms >= timeout.Milliseconds() {
		c.refuse(option, "is not less than timeoutMS, %d", timeout.Milliseconds())
	}
}

// unused objects to an option that is set and has no use here.
func (c *check) unused(option string, set bool, purpose string) {
	if set {
		c.refuse(option, "is only for %s", purpose)
	}
}

func (c *check) readPreference(rp *selection.ReadPreference) {
	if err := rp.Validate(); err != nil {
		c.refuse("readPreference", "%v", err)
	}
}

// update objects to what is neither a document of operators nor a pipeline. As the specification
// says, it looks at the first key only, and not into a pipeline ("Update vs. Replace Validation").
func (c *check) update(v bson.Value) {
	if v.Type == bson.TypeArray {
		return
	}
	d, ok := v.Document()
	switch {
	case v.IsZero():
		c.refuse("update", "is missing")
	case !ok:
		c.refuse("update", "must be a document or a pipeline, not %s", v.Type)
	case d.IsEmpty():
		c.refuse("update", "is empty")
	case !strings.HasPrefix(d.FirstKey(), "$"):
		c.refuse("update", "must begin with an update operator, not with %q", d.FirstKey())
	}
}

func (c *check) replacement(d bson.Raw) {
	switch {
	case d == nil:
		c.refuse("replacement", "is missing")
	case strings.HasPrefix(d.FirstKey(), "$"):
		c.refuse("replacement", "must not begin with an update operator, %q", d.FirstKey())
	}
}

// extra objects to elements of Extra that options cover (known) or that the client sets.
func (c *check) extra(d bson.Raw, known []string) {
	if d == nil {
		return
	}
	it := d.Iter()
	for it.Next() {
		key := it.Key()
		if slices.Contains(known, key) || slices.Contains(reserved, key) ||
			strings.HasPrefix(key, "$") {
			c.refuse("options",
				"%q must not be in options: an argument, an option or the client itself sets it",
				key)
		}
	}
	if it.Err() != nil {
		c.refuse("options", "is malformed: %v", it.Err())
	}
}

// reserved are names that belong to the driver in every command.
var reserved = []string{
	"lsid", "txnNumber", "autocommit", "startTransaction", "apiVersion", "apiStrict",
	"apiDeprecationErrors",
	"maxTimeMS", "readConcern", "writeConcern",
}

// The wire versions of servers that take hints: 4.2 for updates, 4.4 for deletes, and for both in
// a findAndModify without acknowledgement.
const (
	wireVersion42 = 8
	wireVersion44 = 9
	// wireVersion82 is the first whose servers know rawData.
	wireVersion82 = 27
)

// hintGate refuses a hint that the server would ignore, without an acknowledgement that could say
// so.
func hintGate(hint bson.Value, wire, least int32) error {
	if hint.IsZero() || wire >= least {
		return nil
	}
	return &ArgumentError{Argument: "hint", Problem: "is not supported by the server"}
}
