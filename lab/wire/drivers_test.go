package wire_test

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	obson "go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/cursor"
)

// The database and the collections of the operations.
const (
	database = "wire"
	things   = "things"
	capped   = "capped"
)

var ns = client.Namespace{Database: database, Collection: things}

// awaitTime is how long a server waits for documents of the tailable cursor.
const awaitTime = 50 * time.Millisecond

// operation is one operation, as each driver's caller writes it.
type operation struct {
	name     string
	mooring  func(context.Context, mooring) error
	official func(context.Context, official) error // nil: the driver does not have it
	pymongo  string                                // "": the driver does not have it
}

// driver runs operations, and closes its client at the end.
type driver interface {
	// run runs an operation. known is false if the driver does not have it.
	run(ctx context.Context, op operation) (known bool, err error)
	close(ctx context.Context) error
}

// d parses a document, value one that is an update or a hint, list an array.
func d(text string) bson.Raw {
	doc, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		panic(fmt.Sprintf("bug: %s: %v", text, err))
	}
	return doc
}

func value(text string) bson.Value { return bson.DocumentValue(d(text)) }

func text(s string) bson.Value { return bson.StringValue(s) }

func list(text string) bson.Array {
	v, _ := d(`{"list": ` + text + `}`).Lookup("list")
	array, _ := v.Array()
	return array
}

// od and olist are the same for the official driver.
func od(text string) obson.Raw { return obson.Raw(d(text)) }

func olist(text string) []obson.Raw {
	var docs []obson.Raw
	for doc := range list(text).Documents() {
		docs = append(docs, obson.Raw(doc))
	}
	return docs
}

// mooring is the product's driver.
type mooring struct{ *client.Client }

func newMooring(ctx context.Context, uri string) (driver, error) {
	cfg, err := connstring.Parse(uri)
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	return mooring{c}, c.Start(ctx)
}

func (m mooring) run(ctx context.Context, op operation) (bool, error) {
	return true, op.mooring(ctx, m)
}

func (m mooring) close(ctx context.Context) error { return m.Close(ctx) }

func (m mooring) find(ctx context.Context, o client.FindOptions) error {
	cur, err := m.Find(ctx, ns, o)
	if err != nil {
		return err
	}
	return drain(ctx, cur)
}

// first reads two batches, and closes the cursor.
func (m mooring) first(ctx context.Context, collection string, o client.FindOptions) error {
	cur, err := m.Find(ctx, client.Namespace{Database: database, Collection: collection}, o)
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := cur.Next(ctx); err != nil {
			return errors.Join(err, cur.Close(ctx))
		}
	}
	return cur.Close(ctx)
}

func (m mooring) aggregate(ctx context.Context, o client.AggregateOptions) error {
	cur, err := m.Aggregate(ctx, ns, o)
	if err != nil {
		return err
	}
	return drain(ctx, cur)
}

func drain(ctx context.Context, cur *cursor.Cursor) error {
	for {
		if _, err := cur.Next(ctx); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return errors.Join(err, cur.Close(ctx))
		}
	}
}

// official is the official Go driver.
type official struct {
	db *mongo.Database
	c  *mongo.Collection
}

func newOfficial(_ context.Context, uri string) (driver, error) {
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	db := c.Database(database)
	return official{db: db, c: db.Collection(things)}, nil
}

func (o official) run(ctx context.Context, op operation) (bool, error) {
	if op.official == nil {
		return false, nil
	}
	return true, op.official(ctx, o)
}

func (o official) close(ctx context.Context) error { return o.db.Client().Disconnect(ctx) }

func (o official) find(
	ctx context.Context, filter string, opts options.Lister[options.FindOptions],
) error {
	cur, err := o.c.Find(ctx, od(filter), opts)
	if err != nil {
		return err
	}
	return cur.All(ctx, new([]obson.Raw))
}

func (o official) first(
	ctx context.Context, collection string, opts options.Lister[options.FindOptions],
) error {
	cur, err := o.db.Collection(collection).Find(ctx, od(`{}`), opts)
	if err != nil {
		return err
	}
	for range 2 {
		if !cur.Next(ctx) {
			return errors.Join(cur.Err(), cur.Close(ctx))
		}
	}
	return cur.Close(ctx)
}

func (o official) aggregate(
	ctx context.Context, pipeline string, opts options.Lister[options.AggregateOptions],
) error {
	cur, err := o.c.Aggregate(ctx, olist(pipeline), opts)
	if err != nil {
		return err
	}
	return cur.All(ctx, new([]obson.Raw))
}

//go:embed testdata/pymongo.py
var script string

// scripted is a process that runs one operation for each line that it is sent.
type scripted struct {
	// how its callers write an operation; "": the driver does not have it
	of      func(operation) string
	cmd     *exec.Cmd
	in      *json.Encoder
	stdin   io.Closer
	answers *bufio.Scanner
}

func newScripted(of func(operation) string, program string, args ...string) (driver, error) {
	s := &scripted{of: of, cmd: exec.Command(program, args...)}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.in, s.stdin, s.answers = json.NewEncoder(in), in, bufio.NewScanner(out)
	return s, s.cmd.Start()
}

func newPymongo(_ context.Context, uri string) (driver, error) {
	return newScripted(func(op operation) string { return op.pymongo }, python(), "-c", script, uri)
}

func (s *scripted) run(_ context.Context, op operation) (bool, error) {
	text := s.of(op)
	if text == "" {
		return false, nil
	}
	if err := s.in.Encode(text); err != nil {
		return true, err
	}
	if !s.answers.Scan() {
		return true, fmt.Errorf("the script has ended: %w", s.answers.Err())
	}
	if answer := s.answers.Text(); answer != "" {
		return true, errors.New(answer)
	}
	return true, nil
}

// close lets the script close its client and end.
func (s *scripted) close(context.Context) error {
	return errors.Join(s.stdin.Close(), s.cmd.Wait())
}

// python returns an interpreter that has pymongo, "" if there is none. Debian's own may not be the
// first in the path.
func python() string {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import pymongo").Run() == nil {
			return name
		}
	}
	return ""
}

// contender is a driver that is compared.
type contender struct {
	name string
	open func(ctx context.Context, uri string) (driver, error)
}

// drivers are those that are compared. Mooring's is the first.
var drivers = []contender{
	{"mooring", newMooring}, {"official", newOfficial}, {"pymongo", newPymongo},
}

// skipWithoutPymongo skips a test that needs it.
func skipWithoutPymongo(t *testing.T) {
	t.Helper()
	if python() == "" {
		t.Skip("pymongo is not installed (Debian: python3-pymongo)")
	}
}
