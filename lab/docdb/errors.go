package docdb

import (
	_ "embed" // the table of codes
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// sqlstates is the table of errors: a state of SQL, and MongoDB's code. The states that begin with
// M are the extension's own.
//
//go:embed sqlstates.txt
var sqlstates string

// codes is that table.
var codes = sync.OnceValue(func() map[string]failure.Code {
	of := map[string]failure.Code{}
	for line := range strings.Lines(sqlstates) {
		var state string
		var code failure.Code
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscanln(line, &state, &code); err != nil {
			panic("bug: sqlstates.txt: " + line)
		}
		of[state] = code
	}
	return of
})

// translated returns an error of the engine as the server's.
func translated(err error) error {
	sql, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	code, known := codes()[sql.Code]
	switch {
	case isRace(sql):
		code = failure.WriteConflict
	case !known:
		return failure.InternalError.Errorf("%s: %s", sql.Code, sql.Message)
	}
	return code.Errorf("%s", sql.Message)
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
		code, known := codes()[unpackState(integer(e, "code"))]
		switch {
		case code == failure.WriteConflict:
			return nil, code.Errorf("%s", text(e, "errmsg"))
		case known:
			e = bson.With(e, "code", bson.Int32Value(int32(code)))
		}
		b.Document("", e)
	}
	return b.Close().Finish(), nil
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
