package policy

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/payload"
)

// reader checks the fields of one request, and changes them.
type reader struct {
	call   *Call
	method *method.Method // nil: a write of a bulk write
	limits limits
	on     Resource
	write  bool // the request must have a filter if it can have one
}

// message checks all fields of a request.
func (r *reader) message(m protoreflect.Message) error {
	for _, f := range method.Checked(m.Descriptor()) {
		if !m.Has(f.FieldDescriptor) {
			continue
		}
		if err := r.visit(m, f); err != nil {
			return err
		}
	}
	if !r.limits.Restricted() {
		return nil
	}
	return r.missing(m)
}

// visit checks one field of the request.
func (r *reader) visit(m protoreflect.Message, f method.Field) error {
	err := r.field(m, f, m.Get(f.FieldDescriptor))
	if err == nil {
		return nil
	}
	if _, malformed := errors.AsType[*payload.Error](err); malformed {
		return err
	}
	return &partError{f.JSONName(), unwrapPart(err)}
}

// missing adds what the limits need to fields that the client has not set.
func (r *reader) missing(m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	if fd := fields.ByName("filter"); fd != nil && !m.Has(fd) && r.limits.Filter != nil &&
		!isCreation(m) {
		if r.write && fields.ByName("id") == nil {
			return &payload.Error{
				Field: "filter", Offset: payload.NoOffset, Problem: "is required",
			}
		}
		filter := r.limits.Filter
		if overwrites(m) {
			filter = r.limits.unshared(filter)
		}
		m.Set(fd, newDocument(filter))
	}
	if fd := fields.ByName("projection"); fd != nil && !m.Has(fd) && len(r.limits.Hidden) > 0 {
		raw, err := r.limits.projection(nil)
		if err != nil {
			return err
		}
		m.Set(fd, newDocument(raw))
	}
	if fd := fields.ByName("pipeline"); fd != nil && fd.IsList() && !m.Has(fd) &&
		r.limits.Restricted() {
		return r.pipeline(m, fd)
	}
	return nil
}

// field checks a field of the request, and changes it.
func (r *reader) field(m protoreflect.Message, f method.Field, v protoreflect.Value) error {
	l, fd := &r.limits, f.FieldDescriptor
	switch f.Check {
	case mooringv1.Check_CHECK_FILTER:
		return r.change(m, fd, v, r.call.decoder.Raw, func(d bson.Raw) (bson.Raw, error) {
			if upserts(m) {
				if err := l.checkUpsert(d); err != nil {
					return nil, err
				}
			}
			d, err := l.filter(d)
			if err != nil || !overwrites(m) {
				return d, err
			}
			return l.unshared(d), nil
		})
	case mooringv1.Check_CHECK_PROJECTION:
		return r.change(m, fd, v, r.call.decoder.Raw, l.projection)
	case mooringv1.Check_CHECK_KEYS:
		return r.change(m, fd, v, r.call.decoder.Keys, func(d bson.Raw) (bson.Raw, error) {
			return d, l.checkFields(d)
		})
	case mooringv1.Check_CHECK_HINT:
		h, _ := v.Message().Interface().(*mooringv1.Hint)
		return r.hint(h)
	case mooringv1.Check_CHECK_COLLATION:
		return r.change(m, fd, v, r.call.decoder.Raw, func(d bson.Raw) (bson.Raw, error) {
			return d, l.checkCollation(d)
		})
	case mooringv1.Check_CHECK_EXPRESSIONS:
		d, _ := v.Message().Interface().(*mooringv1.Document)
		return r.expressions(fd.JSONName(), d)
	case mooringv1.Check_CHECK_OPTIONS:
		d, _ := v.Message().Interface().(*mooringv1.Document)
		return r.options(d)
	case mooringv1.Check_CHECK_REPLACEMENT:
		return r.change(m, fd, v, r.call.decoder.Raw, l.replacement)
	case mooringv1.Check_CHECK_INSERT:
		return r.insert(m, fd, v)
	case mooringv1.Check_CHECK_ARRAY_FILTERS:
		raws, err := r.list(fd, v.List())
		if err != nil {
			return err
		}
		return l.checkArrayFilters(raws)
	case mooringv1.Check_CHECK_UPDATE:
		u, _ := v.Message().Interface().(*mooringv1.Update)
		return r.update(u, upserts(m))
	case mooringv1.Check_CHECK_ID:
		if upserts(m) { // which writes it
			return l.checkUpsert(bson.NewBuilder(nil).Null("_id").Finish())
		}
		return nil
	case mooringv1.Check_CHECK_IF_MATCH:
		if len(l.Hidden) > 0 && (v.List().Len() != 1 || v.List().Get(0).String() != "*") {
			return problem("compares whole documents, which have fields that the caller may " +
				"not use")
		}
		return nil
	case mooringv1.Check_CHECK_RETURN_KEY:
		if v.Bool() && len(l.Hidden) > 0 {
			return errHidden
		}
		return nil
	case mooringv1.Check_CHECK_FIELD_NAME:
		if touches(v.String(), l.Hidden) {
			return errHidden
		}
		return nil
	case mooringv1.Check_CHECK_PIPELINE:
		return r.pipeline(m, fd)
	default:
		return r.whole(m, f, v)
	}
}

// hint refuses an index that can have hidden fields: the order of the results would tell theirs.
func (r *reader) hint(h *mooringv1.Hint) error {
	switch kind := h.GetKind().(type) {
	case *mooringv1.Hint_Keys:
		keys, err := r.call.decoder.Keys("hint", kind.Keys)
		if err != nil {
			return err
		}
		return r.limits.checkFields(keys)
	case *mooringv1.Hint_Name:
		if len(r.limits.Hidden) > 0 {
			return problem("names an index, which can have fields that the caller may not use")
		}
	}
	return nil
}

// upserts reports whether a request inserts a document if none matches.
func upserts(m protoreflect.Message) bool {
	if put, ok := m.Interface().(*mooringv1.PutDocumentRequest); ok {
		return len(put.GetIfMatch()) == 0
	}
	fd := m.Descriptor().Fields().ByName("upsert")
	return fd != nil && m.Get(fd).Bool()
}

// overwrites reports whether a request writes what a rule's filter demands into documents that are
// there: a replacement does, and so does a pipeline that may insert.
func overwrites(m protoreflect.Message) bool {
	if m.Descriptor().Fields().ByName("replacement") != nil {
		return true
	}
	request, ok := m.Interface().(interface{ GetUpdate() *mooringv1.Update })
	return ok && request.GetUpdate().GetPipeline() != nil && upserts(m)
}

// isCreation reports whether a request can only insert a document, which no filter finds.
func isCreation(m protoreflect.Message) bool {
	put, ok := m.Interface().(*mooringv1.PutDocumentRequest)
	return ok && put.GetOnlyCreate()
}

// change replaces a document of the request.
func (r *reader) change(
	m protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value,
	decode func(string, *mooringv1.Document) (bson.Raw, error),
	apply func(bson.Raw) (bson.Raw, error),
) error {
	d, ok := v.Message().Interface().(*mooringv1.Document)
	if !ok || d.GetEncoding() == nil {
		return nil // the service refuses it
	}
	raw, err := decode(fd.JSONName(), d)
	if err != nil {
		return err
	}
	if r.limits.Restricted() {
		if err := r.limits.work.Copy(len(raw)); err != nil {
			return err
		}
	}
	changed, err := apply(raw)
	if err != nil {
		return err
	}
	if _, isJSON := d.GetEncoding().(*mooringv1.Document_Json); isJSON || !same(raw, changed) {
		m.Set(fd, newDocument(changed))
	}
	return nil
}

// same reports whether two documents share their bytes.
func same(a, b bson.Raw) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (r *reader) list(
	fd protoreflect.FieldDescriptor, list protoreflect.List,
) ([]bson.Raw, error) {
	docs := make([]*mooringv1.Document, list.Len())
	for i := range docs {
		docs[i], _ = list.Get(i).Message().Interface().(*mooringv1.Document)
	}
	return r.call.decoder.List(fd.JSONName(), docs)
}

// insert checks inserted documents: one, or a list.
func (r *reader) insert(
	m protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value,
) error {
	if !r.limits.Restricted() {
		return nil
	}
	if !fd.IsList() {
		return r.change(m, fd, v, r.call.decoder.Raw, r.limits.insert)
	}
	list := v.List()
	raws, err := r.list(fd, list)
	if err != nil {
		return err
	}
	for i, raw := range raws {
		if err := r.limits.work.Do(element); err != nil {
			return err
		}
		if err := r.limits.work.Copy(len(raw)); err != nil {
			return err
		}
		if raw, err = r.limits.insert(raw); err != nil {
			return err
		}
		list.Set(i, newDocument(raw))
	}
	return nil
}

func (r *reader) update(u *mooringv1.Update, upsert bool) error {
	switch kind := u.GetKind().(type) {
	case *mooringv1.Update_Operators:
		raw, err := r.call.decoder.Raw("update", kind.Operators)
		if err != nil || raw == nil {
			return err
		}
		if raw, err = r.limits.operators(raw, upsert); err != nil {
			return err
		}
		kind.Operators = payload.NewDocument(raw)
	case *mooringv1.Update_Pipeline:
		raws, err := r.call.decoder.List("update", kind.Pipeline.GetStages())
		if err != nil {
			return err
		}
		if raws, err = r.limits.changes(raws, upsert); err != nil {
			return err
		}
		stages := make([]*mooringv1.Document, len(raws))
		for i, raw := range raws {
			stages[i] = payload.NewDocument(raw)
		}
		kind.Pipeline = &mooringv1.Pipeline{Stages: stages}
	}
	return nil
}

func (r *reader) pipelines() *pipelines {
	p := &pipelines{may: r.call.limits, database: r.on.Database, work: &r.call.work}
	if r.method.Scope != mooringv1.Method_SCOPE_DOCUMENTS {
		p.whole = append(p.whole, "Aggregate") // a view, which is kept for other callers
		if r.method.Group == mooringv1.Method_GROUP_READ {
			p.whole = append(p.whole, r.method.Action) // explain, which tells of all it reads
		}
	}
	return p
}

// pipeline checks and replaces the pipeline of an aggregation.
func (r *reader) pipeline(m protoreflect.Message, fd protoreflect.FieldDescriptor) error {
	p := r.pipelines()
	collation := m.Descriptor().Fields().ByName("collation")
	if collation != nil {
		d, _ := m.Get(collation).Message().Interface().(*mooringv1.Document)
		raw, err := r.call.decoder.Raw("collation", d)
		if err != nil {
			return err
		}
		p.collation = raw
	}
	stages, err := r.list(fd, m.Get(fd).List())
	if err != nil {
		return err
	}
	if stages, err = p.rewrite(stages, &r.limits); err != nil {
		return err
	}
	if p.filter != nil && r.limits.Filter == nil && p.collation.IsEmpty() {
		// Otherwise the filter is compared as the main collection's default collation says.
		m.Set(collation, newDocument(bson.NewBuilder(nil).String("locale", "simple").Finish()))
	}
	changed := m.NewField(fd).List()
	for _, s := range stages {
		changed.Append(newDocument(s))
	}
	m.Set(fd, protoreflect.ValueOfList(changed))
	return nil
}

// expressions checks a document of variables.
func (r *reader) expressions(field string, d *mooringv1.Document) error {
	raw, err := r.call.decoder.Raw(field, d)
	if err != nil || raw == nil {
		return err
	}
	return r.limits.checkExpressions(bson.DocumentValue(raw))
}

// options checks that the field options has only names that the rules list.
func (r *reader) options(d *mooringv1.Document) error {
	raw, err := r.call.decoder.Raw("options", d)
	if err != nil {
		return err
	}
next:
	for key := range raw.All() {
		for _, listed := range r.limits.Options {
			if key == listed {
				continue next
			}
		}
		return &partError{"options", problem("has an option that is not listed")}
	}
	return nil
}

// whole checks a field that cannot be used under limits: what reads from, or moves to, another
// collection, or what the policy does not know.
func (r *reader) whole(m protoreflect.Message, f method.Field, v protoreflect.Value) error {
	if r.limits.Restricted() {
		return problem("has the field " + f.JSONName() + ", which the policy does not support")
	}
	switch f.Check {
	case mooringv1.Check_CHECK_VIEW_ON:
		_, err := r.pipelines().other(bson.StringValue(v.String()))
		return err
	case mooringv1.Check_CHECK_RENAME:
		return r.rename(m, v.String())
	default:
	}
	return nil
}

// rename checks what else a rename does: it drops the collection under its name, and may drop
// another under the new name. The documents must not come to where the caller may do other things
// with them.
func (r *reader) rename(m protoreflect.Message, name string) error {
	to, fields := Resource{r.on.Database, name}, m.Descriptor().Fields()
	if fd := fields.ByName("to_database"); fd != nil && m.Has(fd) {
		to.Database = m.Get(fd).String()
	}
	if r.on.isLong() || to.isLong() { // each of the decisions would take its time
		return problem("has a name that is longer than any of a server's")
	}
	p := r.pipelines()
	err := p.all(to, []string{"RenameCollection"})
	if err == nil {
		err = p.all(r.on, []string{"DropCollection"})
	}
	if fd := fields.ByName("drop_target"); err == nil && fd != nil && m.Get(fd).Bool() {
		err = p.all(to, replacing)
	}
	if err != nil {
		return err
	}
	for _, action := range onCollections {
		here, there := r.call.limits(action, r.on), r.call.limits(action, to)
		switch {
		case here.Restricted():
			return &foreign{r.on, here.Rule}
		case there.Restricted() || here.Allowed && !there.Allowed:
			return &foreign{to, there.Rule}
		case there.Allowed && !here.Allowed:
			return &foreign{r.on, here.Rule}
		}
	}
	if to.Database == r.on.Database {
		return nil
	}
	for _, action := range commandActions {
		here := r.call.limits(action, Resource{Database: r.on.Database})
		there := r.call.limits(action, Resource{Database: to.Database})
		for _, command := range there.Commands {
			if there.Allowed && !(here.Allowed && slices.Contains(here.Commands, command)) {
				return &foreign{to, there.Rule}
			}
		}
	}
	return nil
}
