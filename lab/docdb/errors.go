package docdb

import (
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
	failedToParse         = 9
	unauthorized          = 13
	illegalOperation      = 20
	namespaceNotFound     = 26
	cursorNotFound        = 43
	noMatchingDocument    = 47
	maxTimeExpired        = 50
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
	duplicateKey          = 11000
	interruptedAtShutdown = 11600
	stageNotAllowed       = 40324
	unknownField          = 40415
)

// names has the names of codes for which the table has no row.
var names = map[int32]string{
	illegalOperation: "IllegalOperation", commandNotFound: "CommandNotFound",
	writeConflict: "WriteConflict", conflictingOperation: "ConflictingOperationInProgress",
	incompleteHistory: "IncompleteTransactionHistory", transactionTooOld: "TransactionTooOld",
	snapshotTooOld: "SnapshotTooOld", noSuchTransaction: "NoSuchTransaction",
	transactionCommitted: "TransactionCommitted", invalidResumeToken: "InvalidResumeToken",
	notInTransaction:   "OperationNotSupportedInTransaction",
	noMatchingDocument: "NoMatchingDocument",
	changeStreamFatal:  "ChangeStreamFatalError", historyLost: "ChangeStreamHistoryLost",
	interruptedAtShutdown: "InterruptedAtShutdown", invalidOptions: "InvalidOptions",
	unauthorized: "Unauthorized",
}

// conflicts are PostgreSQL's states of two writers that meet: serialization failure, deadlock, and
// a lock that another transaction holds.
var conflicts = []string{"40001", "40P01", "55P03"}

// sqlstates is the one table of SQL errors: a state, MongoDB's code, and the code's name if it has
// one. The states that begin with M are the extension's own.
//
//go:embed sqlstates.txt
var sqlstates string

type state struct {
	code int32
	name string
}

// states returns the table by state.
var states = sync.OnceValue(func() map[string]state {
	table := map[string]state{}
	for line := range strings.Lines(sqlstates) {
		row := strings.Fields(line)
		if len(row) < 2 || row[0] == "#" {
			continue
		}
		code, err := strconv.ParseInt(row[1], 10, 32)
		if err != nil {
			panic("bug: sqlstates.txt: " + line)
		}
		s := state{code: int32(code), name: "Location" + row[1]}
		if len(row) > 2 {
			s.name = row[2]
		}
		table[row[0]] = s
	}
	return table
})

// stateNames returns the names of codes that the table has.
var stateNames = sync.OnceValue(func() map[int32]string {
	all := map[int32]string{}
	for _, s := range states() {
		all[s.code] = s.name
	}
	return all
})

func codeName(code int32) string {
	if name, ok := names[code]; ok {
		return name
	}
	if name, ok := stateNames()[code]; ok {
		return name
	}
	return fmt.Sprintf("Location%d", code)
}

// translated returns an error of the engine as the server's.
func translated(err error) error {
	sql, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	if isRace(sql) {
		return fail(writeConflict, "%s", sql.Message)
	}
	if s, known := states()[sql.Code]; known {
		return &serverError{code: s.code, message: sql.Message}
	}
	return &serverError{code: internalError, message: sql.Code + ": " + sql.Message}
}

// isConflict reports whether the engine refused because of another writer.
func isConflict(err error) bool {
	if e, ok := errors.AsType[*serverError](err); ok {
		return e.code == writeConflict
	}
	sql, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (slices.Contains(conflicts, sql.Code) || isRace(sql))
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
		code := integer(e, "code")
		packed := unpackState(code)
		if slices.Contains(conflicts, packed) {
			return nil, fail(writeConflict, "%s", text(e, "errmsg"))
		}
		if s, known := states()[packed]; known {
			e = bson.With(e, "code", bson.Int32Value(s.code))
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
		String("codeName", codeName(e.code))
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
