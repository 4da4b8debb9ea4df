package docdb

import (
	"cmp"
	_ "embed" // the table of codes
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooringdb/mooring/core/bson"
)

// serverError reports an error that the front answers with.
type serverError struct {
	code    int32
	message string
}

func (e *serverError) Error() string { return e.message }

func fail(code int32, format string, args ...any) error {
	return &serverError{code: code, message: fmt.Sprintf(format, args...)}
}

// The codes of the front's own errors.
const (
	internalError         = 1
	badValue              = 2
	unauthorized          = 13
	cursorNotFound        = 43
	noMatchingDocument    = 47
	commandNotFound       = 59
	invalidOptions        = 72
	writeConflict         = 112
	conflictingOperation  = 117
	incompleteHistory     = 217
	transactionTooOld     = 225
	snapshotTooOld        = 239
	noSuchTransaction     = 251
	transactionCommitted  = 256
	invalidResumeToken    = 260
	notInTransaction      = 263
	changeStreamFatal     = 280
	historyLost           = 286
	interruptedAtShutdown = 11600
	stageNotAllowed       = 40324
	unknownField          = 40415
)

// sqlstates is the one table of errors: a state of SQL, MongoDB's code, and the code's name if it
// has one. The states that begin with M are the extension's own.
//
//go:embed sqlstates.txt
var sqlstates string

// codes is that table: the codes of states, and the names of codes.
var codes = sync.OnceValue(func() (table struct {
	of    map[string]int32
	names map[int32]string
},
) {
	table.of, table.names = map[string]int32{}, map[int32]string{}
	for line := range strings.Lines(sqlstates) {
		row := strings.Fields(line)
		if len(row) < 2 || row[0] == "#" {
			continue
		}
		code, err := strconv.ParseInt(row[1], 10, 32)
		if err != nil {
			panic("bug: sqlstates.txt: " + line)
		}
		table.of[row[0]] = int32(code)
		if len(row) > 2 {
			table.names[int32(code)] = row[2]
		}
	}
	return table
})

// translated returns an error of the engine as the server's.
func translated(err error) error {
	sql, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	code, known := codes().of[sql.Code]
	switch {
	case isRace(sql):
		return fail(writeConflict, "%s", sql.Message)
	case known:
		return fail(code, "%s", sql.Message)
	}
	return fail(internalError, "%s: %s", sql.Code, sql.Message)
}

// isConflict reports whether the engine refused because of another writer.
func isConflict(err error) bool {
	e, ok := errors.AsType[*serverError](translated(err))
	return ok && e.code == writeConflict
}

// isRace reports whether two commands have created the same collection, or the first one of the
// same database.
func isRace(sql *pgconn.PgError) bool {
	return sql.Code == "23505" &&
		(sql.SchemaName == "documentdb_api_catalog" || sql.SchemaName == "pg_catalog") ||
		strings.HasPrefix(sql.Message, "Unable to create ")
}

// unpackState returns the state that the engine puts into write errors: five characters of six
// bits.
func unpackState(packed int64) string {
	var state [5]byte
	for i := range state {
		state[i] = byte(packed>>(6*i)&0x3f) + '0'
	}
	return string(state[:])
}

// withCodes returns a reply whose write errors have MongoDB's codes. A conflict among them is an
// error of the whole command.
func withCodes(reply bson.Raw) (bson.Raw, error) {
	errs, ok := field(reply, "writeErrors").Array()
	if !ok {
		return reply, nil
	}
	b := bson.NewBuilder(nil).AppendElements(bson.Without(reply, "writeErrors"))
	b.OpenArray("writeErrors")
	for e := range errs.Documents() {
		code, known := codes().of[unpackState(integer(e, "code"))]
		switch {
		case code == writeConflict:
			return nil, fail(writeConflict, "%s", text(e, "errmsg"))
		case known:
			e = bson.With(e, "code", bson.Int32Value(code))
		}
		b.Document("", e)
	}
	return b.Close().Finish(), nil
}

// transient are the errors in transactions after which the whole transaction may be run again.
var transient = []int32{writeConflict, snapshotTooOld, noSuchTransaction, interruptedAtShutdown}

// refusal returns the reply that says err. inTransaction says that the command was one of a
// transaction.
func refusal(err error, inTransaction bool) bson.Raw {
	e, ok := errors.AsType[*serverError](err)
	if !ok {
		e = &serverError{code: internalError, message: err.Error()}
	}
	b := bson.NewBuilder(nil).Double("ok", 0).String("errmsg", e.message).Int32("code", e.code).
		String("codeName", cmp.Or(codes().names[e.code], fmt.Sprintf("Location%d", e.code)))
	label := ""
	switch {
	case inTransaction && slices.Contains(transient, e.code):
		label = "TransientTransactionError"
	case e.code == changeStreamFatal || e.code == historyLost:
		label = "NonResumableChangeStreamError"
	}
	if label != "" {
		b.OpenArray("errorLabels").String("", label).Close()
	}
	return b.Finish()
}

func field(d bson.Raw, path ...string) bson.Value {
	v, _ := d.Lookup(path...)
	return v
}

func document(d bson.Raw, path ...string) bson.Raw {
	doc, _ := field(d, path...).Document()
	return doc
}

func integer(d bson.Raw, path ...string) int64 {
	n, _ := field(d, path...).AsInt64()
	return n
}

func text(d bson.Raw, path ...string) string {
	s, _ := field(d, path...).Str()
	return s
}
