package deployment

import (
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

func (h *host) update(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range cmd.Documents("updates") {
		multi, _ := field(u, "multi").Bool()
		if err := cmd.allowsMulti(multi); err != nil {
			return reply{}, err
		}
	}
	r, err := cmd.statements(cmd.Documents("updates"), func(u bson.Raw) (result, error) {
		return h.updateLocked(cmd, namespace(cmd), u)
	})
	for _, u := range cmd.Documents("updates") {
		sleep, _ := sleepOf(field(u, "q", "$where"))
		r.delay += sleep
	}
	return r, err
}

// updateLocked runs one statement of a command.
func (h *host) updateLocked(cmd *request, namespace string, u bson.Raw) (did result, err error) {
	c := change{
		update: field(u, "u"), filters: h.arrayFilters(u), strict: h.wire < wire50,
		bypass: cmd.bypasses(),
	}
	if c.scope, err = newScope(cmd.Body, document(u, "collation")); err != nil {
		return result{}, err
	}
	s := cmd.store
	q := query{
		scope: c.scope, filter: document(u, "q"), sort: document(u, "sort"),
		hint: field(u, "hint"),
	}
	if multi, _ := field(u, "multi").Bool(); !multi {
		q.limit = 1
	}
	found, err := s.findLocked(namespace, q)
	if err != nil {
		return result{}, err
	}
	for _, doc := range found {
		changed, err := c.apply(doc)
		if err != nil {
			return did, err
		}
		did.n++
		if !bytesEqual(changed, doc) {
			did.modified++
			if err := s.replaceLocked(c.kind(), namespace, changed, c.bypass); err != nil {
				return did, err
			}
		}
	}
	if upsert, _ := field(u, "upsert").Bool(); upsert && did.n == 0 {
		doc, err := s.upsertLocked(namespace, q.filter, c)
		return result{n: 1, upserted: field(doc, "_id")}, err
	}
	return did, nil
}

func bytesEqual(a, b bson.Raw) bool { return string(a) == string(b) }

// upsertLocked inserts what the filter's equalities and the update make.
func (s *store) upsertLocked(namespace string, filter bson.Raw, c change) (bson.Raw, error) {
	b := new(bson.Builder)
	for key, v := range filter.All() {
		if d, isDoc := v.Document(); !isDoc || !strings.HasPrefix(d.FirstKey(), "$") {
			b.Value(key, v)
		}
	}
	doc, err := c.apply(b.Finish())
	if err != nil {
		return nil, err
	}
	if !doc.Has("_id") {
		doc = bson.PrependID(doc, "_id", bson.ObjectIDValue(bson.NewObjectID()))
	}
	return doc, s.insertLocked(namespace, doc, c.bypass)
}

func (h *host) arrayFilters(statement bson.Raw) []bson.Raw {
	list, _ := field(statement, "arrayFilters").Array()
	return slices.Collect(list.Documents())
}

// change represents an update: a pipeline, operators, or another document.
type change struct {
	scope   scope
	update  bson.Value
	filters []bson.Raw // arrayFilters
	strict  bool       // no key of another document begins with a dollar sign
	bypass  bool       // no validator is asked
}

// kind returns the operationType of change streams.
func (c change) kind() string {
	if u, isDoc := c.update.Document(); isDoc && !strings.HasPrefix(u.FirstKey(), "$") {
		return "replace"
	}
	return "update"
}

// apply returns doc after the change, with the same _id.
func (c change) apply(doc bson.Raw) (bson.Raw, error) {
	changed, err := c.changed(doc)
	before, had := doc.Lookup("_id")
	if after, _ := changed.Lookup("_id"); err == nil && had && !(scope{}).equal(before, after) {
		return nil, failure.ImmutableField.Errorf("the update changes the _id of a document")
	}
	return changed, err
}

// changed returns the same, maybe with another _id.
func (c change) changed(doc bson.Raw) (bson.Raw, error) {
	stages, isPipeline := c.update.Array()
	u, isDoc := c.update.Document()
	changed := u
	var err error
	switch {
	case isPipeline && stages.IsEmpty(), !isPipeline && !isDoc:
		return nil, failure.FailedToParse.Errorf("an update must be a document or a pipeline")
	case isPipeline:
		changed, err = c.pipeline(doc, stages)
	case strings.HasPrefix(u.FirstKey(), "$"):
		return c.operators(doc, u)
	case c.strict && hasDollar(u):
		return nil, failure.DollarPrefixedFieldName.Errorf("a field name begins with a dollar sign")
	}
	if id, has := doc.Lookup("_id"); err == nil && has && !changed.Has("_id") {
		return bson.PrependID(changed, "_id", id), nil
	}
	return changed, err
}

// hasDollar reports whether a key begins with a dollar sign, at any depth.
func hasDollar(doc bson.Raw) bool {
	for key, v := range doc.All() {
		d, _ := v.Document()
		if strings.HasPrefix(key, "$") || hasDollar(d) {
			return true
		}
	}
	return false
}

// checkStages refuses an update by a pipeline with a stage that is not known.
func checkStages(update bson.Value) error {
	stages, _ := update.Array()
	for stage := range stages.Documents() {
		if _, known := documentStages[stage.FirstKey()]; !known {
			return failure.UnknownStage.Errorf(
				"Unrecognized pipeline stage name: '%s'", stage.FirstKey())
		}
	}
	return nil
}

// pipeline runs stages that checkStages has seen.
func (c change) pipeline(doc bson.Raw, stages bson.Array) (bson.Raw, error) {
	for stage := range stages.Documents() {
		name := stage.FirstKey()
		var err error
		if doc, err = documentStages[name](c.scope, doc, field(stage, name)); err != nil {
			return nil, err
		}
	}
	return doc, nil
}

// operators are those that change the value at a path. The zero Value is a field that is missing.
var operators = map[string]func(old, argument bson.Value) (bson.Value, error){
	"$set":   func(_, argument bson.Value) (bson.Value, error) { return argument, nil },
	"$unset": func(bson.Value, bson.Value) (bson.Value, error) { return bson.Value{}, nil },
	"$inc": func(old, argument bson.Value) (bson.Value, error) {
		by, isNumber := argument.AsInt64()
		if !isNumber {
			return bson.Value{}, failure.TypeMismatch.Errorf(
				"Cannot increment with non-numeric argument")
		}
		if old.IsZero() {
			return argument, nil
		}
		n, isNumber := old.AsInt64()
		if !isNumber {
			return bson.Value{}, failure.TypeMismatch.Errorf(
				"Cannot apply $inc to a value of another type")
		}
		return bson.Int32Value(int32(n + by)), nil
	},
	"$push": push,
}

// push appends one item to an array. It knows no modifiers.
func push(old, argument bson.Value) (bson.Value, error) {
	array, isArray := old.Array()
	if !isArray && !old.IsZero() {
		return bson.Value{}, failure.BadValue.Errorf("The field must be an array")
	}
	if d, isDoc := argument.Document(); isDoc && strings.HasPrefix(d.FirstKey(), "$") {
		return bson.Value{}, failure.BadValue.Errorf(
			"Unrecognized clause in $push: %s", d.FirstKey())
	}
	b := new(bson.Builder).OpenArray("array")
	for _, item := range array.All() {
		b.Value("", item)
	}
	return field(b.Value("", argument).Close().Finish(), "array"), nil
}

func (c change) operators(doc, update bson.Raw) (bson.Raw, error) {
	for name, v := range update.All() {
		paths, isDoc := v.Document()
		operator, known := operators[name]
		if !isDoc || !known {
			return nil, failure.FailedToParse.Errorf("Unknown modifier: %s", name)
		}
		for path, argument := range paths.All() {
			changed, err := c.at(bson.DocumentValue(doc), strings.Split(path, "."),
				func(old bson.Value) (bson.Value, error) { return operator(old, argument) })
			if err != nil {
				return nil, err
			}
			doc, _ = changed.Document()
		}
	}
	return doc, nil
}

// at returns a value with another one in it, at the path.
func (c change) at(
	in bson.Value, path []string, replace func(old bson.Value) (bson.Value, error),
) (bson.Value, error) {
	if len(path) == 0 {
		return replace(in)
	}
	if name, ok := strings.CutPrefix(path[0], "$["); ok {
		return c.items(in, strings.TrimSuffix(name, "]"), path[1:], replace)
	}
	if array, isArray := in.Array(); isArray {
		return c.item(array, path, replace)
	}
	doc, isDoc := in.Document()
	if !isDoc && !in.IsZero() {
		return in, failure.BadValue.Errorf("only documents have fields here: %s", path[0])
	}
	value, err := c.at(field(doc, path[0]), path[1:], replace)
	if err != nil {
		return in, err
	}
	if value.IsZero() {
		return bson.DocumentValue(bson.Without(doc, path[0])), nil
	}
	return bson.DocumentValue(bson.With(doc, path[0], value)), nil
}

// item changes the item of an array that the path begins with.
func (c change) item(
	array bson.Array, path []string, replace func(old bson.Value) (bson.Value, error),
) (bson.Value, error) {
	b, found := new(bson.Builder).OpenArray("array"), false
	for key, item := range bson.Raw(array).All() {
		if key == path[0] {
			found = true
			var err error
			if item, err = c.at(item, path[1:], replace); err != nil {
				return item, err
			}
		}
		b.Value("", item)
	}
	if !found {
		return bson.Value{}, failure.BadValue.Errorf("arrays have no item %s here", path[0])
	}
	return field(b.Close().Finish(), "array"), nil
}

// items changes those items of an array that the filters of this name are about.
func (c change) items(
	in bson.Value, name string, path []string, replace func(old bson.Value) (bson.Value, error),
) (bson.Value, error) {
	array, isArray := in.Array()
	i := slices.IndexFunc(c.filters, func(filter bson.Raw) bool {
		first, _, _ := strings.Cut(filter.FirstKey(), ".")
		return first == name
	})
	if !isArray || i < 0 {
		return in, failure.BadValue.Errorf(
			"no array, or no array filter, for the identifier '%s'", name)
	}
	b := new(bson.Builder).OpenArray("array")
	for _, item := range array.All() {
		wanted, err := c.scope.matches(c.filters[i],
			bson.NewBuilder(nil).Value(name, item).Finish())
		if err == nil && wanted {
			item, err = c.at(item, path, replace)
		}
		if err != nil {
			return in, err
		}
		b.Value("", item)
	}
	return field(b.Close().Finish(), "array"), nil
}

func (h *host) delete(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range cmd.Documents("deletes") {
		if err := cmd.allowsMulti(integer(d, "limit") == 0); err != nil {
			return reply{}, err
		}
	}
	return cmd.statements(cmd.Documents("deletes"), func(d bson.Raw) (result, error) {
		return h.deleteLocked(cmd, namespace(cmd), d, integer(d, "limit"))
	})
}

// deleteLocked runs one statement of a command.
func (h *host) deleteLocked(
	cmd *request, namespace string, d bson.Raw, limit int64,
) (result, error) {
	sc, err := newScope(cmd.Body, document(d, "collation"))
	if err != nil {
		return result{}, err
	}
	s := cmd.store
	q := query{scope: sc, filter: document(d, "q"), limit: limit, hint: field(d, "hint")}
	found, err := s.findLocked(namespace, q)
	for _, doc := range found {
		s.deleteLocked(namespace, doc)
	}
	return result{n: int32(len(found))}, err
}

func (h *host) findAndModify(cmd *request) (reply, error) {
	cmd.store.mu.Lock()
	defer cmd.store.mu.Unlock()
	did, err := cmd.once(0, func() (result, error) { return h.findAndModifyLocked(cmd) })
	if err != nil {
		return reply{}, err
	}
	return ok(func(b *bson.Builder) {
		b.Value("value", did.value)
		b.OpenDocument("lastErrorObject").Int32("n", did.n)
		if remove, _ := field(cmd.Body, "remove").Bool(); !remove {
			b.Bool("updatedExisting", did.modified > 0)
		}
		if !did.upserted.IsZero() {
			b.Value("upserted", did.upserted)
		}
		b.Close()
	})
}

func (h *host) findAndModifyLocked(cmd *request) (result, error) {
	s := cmd.store
	sc, err := newScope(cmd.Body, document(cmd.Body, "collation"))
	if err != nil {
		return result{}, err
	}
	q := query{
		scope: sc, filter: document(cmd.Body, "query"), sort: document(cmd.Body, "sort"), limit: 1,
		hint: field(cmd.Body, "hint"),
	}
	found, err := s.findLocked(namespace(cmd), q)
	if err != nil {
		return result{}, err
	}
	doc, upserted, err := h.modifyLocked(cmd, found, q)
	if err != nil {
		return result{}, err
	}
	value := bson.NullValue()
	if doc != nil {
		kept, err := sc.project([]bson.Raw{doc}, document(cmd.Body, "fields"))
		if err != nil {
			return result{}, err
		}
		value = bson.DocumentValue(kept[0])
	}
	did := result{n: int32(len(found)), modified: int32(len(found)), value: value}
	if !upserted.IsZero() {
		did.n, did.upserted = 1, upserted
	}
	return did, nil
}

// modifyLocked changes the document that was found. It returns the document before or after the
// change, as the command asks, and the _id of a document that was inserted.
func (h *host) modifyLocked(
	cmd *request, found []bson.Raw, q query,
) (doc bson.Raw, upserted bson.Value, err error) {
	s := cmd.store
	after, _ := field(cmd.Body, "new").Bool()
	upsert, _ := field(cmd.Body, "upsert").Bool()
	remove, _ := field(cmd.Body, "remove").Bool()
	if err := checkStages(field(cmd.Body, "update")); err != nil {
		return nil, upserted, err
	}
	c := change{
		scope: q.scope, update: field(cmd.Body, "update"), filters: h.arrayFilters(cmd.Body),
		strict: h.wire < wire50, bypass: cmd.bypasses(),
	}
	switch {
	case len(found) == 0 && upsert:
		doc, err = s.upsertLocked(namespace(cmd), q.filter, c)
		upserted, _ = doc.Lookup("_id")
	case len(found) == 0:
		return nil, upserted, nil
	case remove:
		s.deleteLocked(namespace(cmd), found[0])
	default:
		if doc, err = c.apply(found[0]); err == nil {
			err = s.replaceLocked(c.kind(), namespace(cmd), doc, c.bypass)
		}
	}
	if err != nil || after || len(found) == 0 {
		if !after {
			doc = nil
		}
		return doc, upserted, err
	}
	return found[0], upserted, nil
}
