package deployment

import (
	"fmt"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// Engine runs commands on data. It stands for a real server, which knows no fail points, no
// sessions and no other members.
type Engine interface {
	// Run returns the reply to a command, also a reply that is an error. It blocks until the reply
	// is there. Its error says that there is none. It may be called by several goroutines.
	Run(body bson.Raw, sequences map[string][]bson.Raw) (bson.Raw, error)
}

// onEngine are the commands that an engine runs, and whether they write.
var onEngine = map[string]bool{
	"insert": true, "update": true, "delete": true, "findAndModify": true, "create": true,
	"drop": true, "collMod": true, "createIndexes": true, "dropIndexes": true,
	"renameCollection": true, "dropDatabase": true, "bulkWrite": true,

	"listCollections": false, "listIndexes": false, "find": false, "aggregate": false,
	"count": false, "distinct": false, "listDatabases": false, "getMore": false,
	"killCursors": false, "explain": false, "dbStats": false, "collStats": false,
	"buildInfo": false, "serverStatus": false, "hostInfo": false, "connectionStatus": false,
	"listCommands": false, "validate": false,
}

// UseEngine has e run the commands on data from now on. The collections are those of e. The hosts
// still have their roles, their fail points and their memory of retryable writes. There are no
// transactions.
func (d *Deployment) UseEngine(e Engine) {
	d.engine = e
	for _, h := range d.hosts {
		for name := range onEngine {
			h.handle(name, (*host).onEngine)
		}
	}
}

// UseServer has e run the commands on data as UseEngine does, but also those of sessions,
// transactions and change streams: it remembers retryable writes, and has the cluster time. The
// hosts still have their roles and their fail points. An election aborts the transactions in
// progress: e gets the command killAllSessions before the first command of another term.
func (d *Deployment) UseServer(e Engine) {
	d.mu.Lock()
	d.whole, d.known = true, d.termLocked()
	d.mu.Unlock()
	d.UseEngine(e)
	for _, h := range d.hosts {
		for _, name := range []string{"commitTransaction", "abortTransaction"} {
			h.handle(name, (*host).onEngine)
		}
	}
}

// enter tells the engine of an election, if there was one since it was told last.
func (d *Deployment) enter() error {
	d.terms.Lock()
	defer d.terms.Unlock()
	d.mu.Lock()
	term := d.termLocked()
	d.mu.Unlock()
	if d.known == term {
		return nil
	}
	_, err := d.ask("admin", bson.NewBuilder(nil).OpenArray("killAllSessions").Close())
	if err == nil {
		d.known = term
	}
	return err
}

// onEngine runs a command on the engine, if the host allows it.
func (h *host) onEngine(cmd *request) (reply, error) {
	if err := h.allows(cmd.Command); err != nil {
		return reply{}, err
	}
	if cmd.transaction != nil {
		return reply{}, failure.OperationNotSupportedInTransaction.Errorf(
			"an engine has no transactions")
	}
	if cmd.done == nil {
		doc, err := h.pass(cmd.Command)
		return reply{doc: doc}, err
	}
	cmd.checkedOut.Lock()
	defer cmd.checkedOut.Unlock()
	if list, ok := statementLists[cmd.Name]; ok {
		return h.statementsOnEngine(cmd, list)
	}
	// An engine cannot tell the operations of a bulkWrite apart: they are one statement.
	did, err := cmd.once(0, func() (result, error) {
		doc, err := h.pass(cmd.Command)
		if err == nil && integer(doc, "ok") != 1 {
			err = &fatal{reply: doc}
		}
		return result{reply: doc}, err
	})
	return reply{doc: did.reply}, err
}

// statementLists are the statements of writes that have several.
var statementLists = map[string]string{
	"insert": "documents", "update": "updates", "delete": "deletes",
}

// statementsOnEngine runs the statements of a retryable write one by one.
func (h *host) statementsOnEngine(cmd *request, list string) (reply, error) {
	for _, statement := range cmd.Documents(list) {
		multi, _ := field(statement, "multi").Bool()
		if limit := field(statement, "limit"); !limit.IsZero() && !limit.Truthy() {
			multi = true
		}
		if err := cmd.allowsMulti(multi); err != nil {
			return reply{}, err
		}
	}
	return cmd.statements(cmd.Documents(list), func(statement bson.Raw) (result, error) {
		one := *cmd.Command
		one.Body = bson.Without(one.Body, list)
		one.Sequences = map[string][]bson.Raw{list: {statement}}
		doc, err := h.pass(&one)
		if err != nil {
			return result{}, err
		}
		if integer(doc, "ok") != 1 {
			return result{}, &fatal{reply: doc}
		}
		errs, _ := field(doc, "writeErrors").Array()
		for e := range errs.Documents() {
			message, _ := field(e, "errmsg").Str()
			return result{}, &failure.Error{
				Code: failure.Code(integer(e, "code")), Message: message,
				Details: bson.Without(e, "index", "code", "errmsg"),
			}
		}
		return result{
			n: int32(integer(doc, "n")), modified: int32(integer(doc, "nModified")),
			upserted: field(doc, "upserted", "0", "_id"),
		}, nil
	})
}

// allows refuses what the host's role, version and cursors do not allow.
func (h *host) allows(cmd *fakemongo.Command) error {
	if err := checkAPI(cmd); err != nil {
		return err
	}
	if _, known := fields[cmd.Name]; known {
		if err := h.checkFields(cmd.Name, cmd.Body); err != nil {
			return err
		}
	}
	if err := h.checkStatements(cmd); err != nil {
		return err
	}
	role, _ := h.Role()
	mode, _ := field(cmd.Body, "$readPreference", "mode").Str()
	switch {
	case role <= fakemongo.Primary:
	case onEngine[cmd.Name], cmd.Name == "commitTransaction", cmd.Name == "abortTransaction":
		return failure.NotWritablePrimary.Errorf("not primary")
	case mode == "" || mode == "primary":
		return failure.NotPrimaryNoSecondaryOk.Errorf("not primary and secondaryOk=false")
	}
	return h.checkCursors(cmd)
}

// pass has the engine run a command without the fields that are about members, sessions and
// versions: these are the deployment's.
func (h *host) pass(cmd *fakemongo.Command) (bson.Raw, error) {
	without := []string{"rawData"}
	for _, name := range driverFields {
		if !slices.Contains(passed, name) &&
			!(h.deployment.whole && slices.Contains(ofSessions, name)) {
			without = append(without, name)
		}
	}
	if h.deployment.whole {
		if err := h.deployment.enter(); err != nil {
			return nil, err
		}
	}
	doc, err := h.deployment.engine.Run(bson.Without(cmd.Body, without...), cmd.Sequences)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	h.keepCursor(cmd, doc)
	return doc, nil
}

// The driver's fields that every engine gets, and those that an engine with sessions gets, too.
var (
	passed     = []string{"$db", "maxTimeMS"}
	ofSessions = []string{
		"lsid", "txnNumber", "autocommit", "startTransaction", "readConcern",
	}
)

// checkCursors refuses cursors that another host has opened: hosts share the engine, and no
// cursors.
func (h *host) checkCursors(cmd *fakemongo.Command) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id := integer(cmd.Body, "getMore"); cmd.Name == "getMore" && h.cursors[id] == nil {
		return failure.CursorNotFound.Errorf("cursor id %d not found", id)
	}
	if cmd.Name != "killCursors" {
		return nil
	}
	ids, _ := field(cmd.Body, "cursors").Array()
	for _, v := range ids.All() {
		id, _ := v.AsInt64()
		if h.cursors[id] == nil {
			return failure.CursorNotFound.Errorf("cursor id %d not found", id)
		}
		delete(h.cursors, id)
	}
	return nil
}

// keepCursor remembers the cursor that a reply opens, or forgets that which it ends.
func (h *host) keepCursor(cmd *fakemongo.Command, reply bson.Raw) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := integer(reply, "cursor", "id")
	if cmd.Name == "getMore" && id == 0 {
		delete(h.cursors, integer(cmd.Body, "getMore"))
	}
	if id != 0 && cmd.Name != "getMore" {
		h.cursors[id] = &cursor{}
		if stage, ok := field(cmd.Body, "pipeline", "0").Document(); ok &&
			stage.FirstKey() == "$changeStream" {
			h.cursors[id].stream = &changeStream{}
		}
	}
}

// Prepare empties the databases, which the engine may have from another test.
func (d *Deployment) Prepare(databases ...string) error {
	if d.engine == nil {
		return nil
	}
	slices.Sort(databases)
	for _, name := range slices.Compact(databases) {
		if _, err := d.ask(name, bson.NewBuilder(nil).Int32("dropDatabase", 1)); err != nil {
			return err
		}
	}
	return nil
}

// SetCollection makes a collection with the options of create, and with these contents and nothing
// else.
func (d *Deployment) SetCollection(database, name string, options bson.Raw, docs []bson.Raw) error {
	if d.engine == nil {
		d.SetDocuments(database+"."+name, docs...)
		d.SetOptions(database+"."+name, options)
		return nil
	}
	_, err := d.ask(database, bson.NewBuilder(nil).String("drop", name))
	if err != nil && !failure.NamespaceNotFound.Is(err) {
		return err
	}
	create := bson.NewBuilder(nil).String("create", name).AppendElements(options)
	if _, err := d.ask(database, create); err != nil || len(docs) == 0 {
		return err
	}
	b := bson.NewBuilder(nil).String("insert", name).OpenArray("documents")
	for _, doc := range docs {
		b.Document("", doc)
	}
	_, err = d.ask(database, b.Close())
	return err
}

// ask has the engine run a command of the deployment's own. A write error is an error, too.
func (d *Deployment) ask(database string, command *bson.Builder) (bson.Raw, error) {
	doc, err := d.engine.Run(command.String("$db", database).Finish(), nil)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	failed := doc
	errs, _ := field(doc, "writeErrors").Array()
	for e := range errs.Documents() {
		failed = e
	}
	if message, ok := field(failed, "errmsg").Str(); ok {
		return nil, &failure.Error{Code: failure.Code(integer(failed, "code")), Message: message}
	}
	return doc, nil
}

// list returns the documents of the first batch of a command of the deployment's own.
func (d *Deployment) list(database string, command *bson.Builder) ([]bson.Raw, error) {
	doc, err := d.ask(database, command)
	if failure.NamespaceNotFound.Is(err) {
		return nil, nil
	}
	batch, _ := field(doc, "cursor", "firstBatch").Array()
	return slices.Collect(batch.Documents()), err
}

// Contents returns the documents of a collection, sorted by _id.
func (d *Deployment) Contents(database, name string) ([]bson.Raw, error) {
	if d.engine == nil {
		return d.Sorted(database + "." + name), nil
	}
	return d.list(database, bson.NewBuilder(nil).String("find", name).
		OpenDocument("sort").Int32("_id", 1).Close().Int32("batchSize", 10_000))
}

// HasCollection reports whether there is such a collection.
func (d *Deployment) HasCollection(database, name string) (bool, error) {
	if d.engine == nil {
		_, exists := d.Documents(database + "." + name)
		return exists, nil
	}
	found, err := d.list(database, bson.NewBuilder(nil).Int32("listCollections", 1).
		OpenDocument("filter").String("name", name).Close())
	return len(found) > 0, err
}

// HasIndex reports whether a collection has an index of that name.
func (d *Deployment) HasIndex(database, collection, name string) (bool, error) {
	if d.engine == nil {
		return slices.Contains(d.Indexes(database+"."+collection), name), nil
	}
	found, err := d.list(database, bson.NewBuilder(nil).String("listIndexes", collection))
	return slices.ContainsFunc(found, func(index bson.Raw) bool {
		other, _ := field(index, "name").Str()
		return other == name
	}), err
}
