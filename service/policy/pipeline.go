package policy

import (
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/admission"
)

// pipelines checks the pipelines of one caller.
type pipelines struct {
	// may returns what the caller may do with another collection.
	may func(action string, on Resource) limits
	// database is the database that the pipeline runs in.
	database string
	// whole lists the actions that the caller must be allowed on all of another collection. It is
	// empty for calls that are possible with limits, which the pipeline gets.
	whole     []string
	collation bson.Raw // of the request; nil or empty: that of the main collection
	// filter is that of another collection that is read so far; nil: none has one.
	filter  bson.Raw
	work    *admission.Work
	depth   int  // of the pipeline that is checked, in others
	faceted bool // the pipeline that is checked is in a $facet
}

// maxDepth is how deeply pipelines may nest, as in the server. What is changed in the innermost is
// copied with each pipeline around it.
const maxDepth = 20

// stageCopies is how often the operand of a stage is copied that is changed: what is changed in it,
// the operand around that, and the stage.
const stageCopies = 3

// maxKeys is how many keys a stage may have whose keys are all looked at. The server takes as many
// stages in a pipeline.
const maxKeys = 1000

// anyStage lists the stages that work on the documents that they get, and on nothing else.
var anyStage = map[string]bool{
	"$addFields": true, "$bucket": true, "$bucketAuto": true, "$count": true, "$densify": true,
	"$fill": true, "$group": true, "$limit": true, "$project": true, "$redact": true,
	"$replaceRoot": true, "$replaceWith": true, "$sample": true, "$set": true,
	"$setWindowFields": true, "$skip": true, "$sort": true, "$sortByCount": true, "$unset": true,
	"$unwind": true,
}

// wholeStage lists the stages that tell something of all documents of a collection, or that must
// begin a pipeline.
var wholeStage = map[string]bool{
	"$collStats": true, "$documents": true, "$indexStats": true, "$listSearchIndexes": true,
	"$planCacheStats": true, "$search": true, "$searchMeta": true, "$vectorSearch": true,
}

// rewrite returns a pipeline that reads only the documents and fields that the limits allow.
func (p *pipelines) rewrite(stages []bson.Raw, l *limits) ([]bson.Raw, error) {
	faceted := p.faceted
	p.faceted = false
	checked, err := p.stages(stages, l)
	p.faceted = faceted
	if err != nil || l.Filter == nil && len(l.Hidden) == 0 {
		return checked, err
	}
	var head []bson.Raw
	if len(checked) > 0 {
		switch checked[0].FirstKey() {
		case "$match": // with the filter, so that a $text in it stays in the first stage
			v, _ := checked[0].Lookup("$match")
			client, _ := v.Document()
			if err := p.work.Copy(2 * len(client)); err != nil { // the filter, and its stage
				return nil, err
			}
			head, checked = append(head, stage("$match", and(l.Filter, client))), checked[1:]
		case "$geoNear": // it has the filter, and must be first
			head, checked = append(head, checked[0]), checked[1:]
		}
	}
	if head == nil && l.Filter != nil {
		head = append(head, stage("$match", l.Filter))
	}
	if len(l.Hidden) > 0 {
		b := bson.NewBuilder(nil).OpenArray("$unset")
		for _, path := range l.Hidden {
			b.String("", path)
		}
		head = append(head, b.Close().Finish())
	}
	return append(head, checked...), nil
}

func stage(name string, doc bson.Raw) bson.Raw {
	return bson.NewBuilder(make([]byte, 0, len(doc)+24)).Document(name, doc).Finish()
}

// stages checks each stage, and puts limits into those that read other collections.
func (p *pipelines) stages(stages []bson.Raw, l *limits) ([]bson.Raw, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, problem("has pipelines in pipelines, more than 20 deep")
	}
	defer func() { p.depth-- }()
	checked := make([]bson.Raw, len(stages))
	for i, s := range stages {
		if err := p.work.Do(element); err != nil {
			return nil, err
		}
		if s.Len() != 1 {
			return nil, problem("has a stage that is not one operator")
		}
		name := s.FirstKey()
		v, _ := s.Lookup(name)
		changed, err := p.stage(name, v, l, i == len(stages)-1)
		if err != nil {
			return nil, err
		}
		if checked[i] = s; changed != nil {
			checked[i] = changed
		}
	}
	return checked, nil
}

// stage checks a stage. It returns nil if the stage stays as it is.
func (p *pipelines) stage(
	name string, v bson.Value, l *limits, last bool,
) (changed bson.Raw, err error) {
	operand, _ := v.Document()
	if !anyStage[name] && name != "$match" {
		if operand.Len() > maxKeys {
			return nil, problem("has a stage with more than 1000 keys")
		}
		if repeats(operand) {
			return nil, problem("has a stage with the same key twice")
		}
		if err := p.work.Copy(stageCopies * len(operand)); err != nil {
			return nil, err
		}
	}
	switch {
	case name == "$match":
		return nil, p.match(operand, l)
	case name == "$facet":
		return p.facet(operand, l)
	case name == "$geoNear":
		return p.geoNear(operand, l)
	case name == "$lookup":
		return p.lookup(operand, l)
	case name == "$graphLookup":
		return p.graphLookup(operand, l)
	case name == "$unionWith":
		return p.unionWith(v)
	case (name == "$out" || name == "$merge") && last:
		return nil, p.into(name, v, l)
	case name == "$changeStreamSplitLargeEvent":
		return nil, nil
	case anyStage[name]:
		return nil, l.checkExpressions(v)
	case wholeStage[name] && !l.Restricted():
		return nil, l.checkExpressions(v)
	}
	return nil, problem("has the stage " + name + ", which the policy does not allow here")
}

// match checks a $match. After a stage that reads a collection with a filter, it is checked as one
// under this filter: servers move it to where that collection is read, and may evaluate it first.
func (p *pipelines) match(client bson.Raw, l *limits) error {
	if l.Filter != nil || p.filter == nil {
		return l.checkFilter(client)
	}
	filtered := *l
	filtered.Filter = p.filter
	return filtered.checkFilter(client)
}

func (p *pipelines) facet(operand bson.Raw, l *limits) (bson.Raw, error) {
	if p.faceted {
		return nil, problem("has a $facet within a $facet, which servers refuse")
	}
	p.faceted = true
	defer func() { p.faceted = false }()
	b := bson.NewBuilder(make([]byte, 0, len(operand)+64)).OpenDocument("$facet")
	for key, v := range operand.All() {
		list, ok := v.Array()
		if !ok {
			return nil, problem("has a $facet without pipelines")
		}
		checked, err := p.stages(documentsOf(list), l)
		if err != nil {
			return nil, err
		}
		b.Array(key, arrayOf(checked))
	}
	return b.Close().Finish(), nil
}

func (p *pipelines) geoNear(operand bson.Raw, l *limits) (bson.Raw, error) {
	if err := l.checkExpressions(bson.DocumentValue(operand)); err != nil {
		return nil, err
	}
	if key, ok := operand.Lookup("key"); ok {
		if text, _ := key.Str(); touches(text, l.Hidden) {
			return nil, errHidden
		}
	} else if len(l.Hidden) > 0 {
		return nil, problem("has a $geoNear without key, which is not possible with hidden fields")
	}
	v, _ := operand.Lookup("query")
	client, _ := v.Document()
	query, err := l.filter(client)
	if err != nil || query == nil {
		return nil, err
	}
	return stage("$geoNear", bson.With(operand, "query", bson.DocumentValue(query))), nil
}

// other returns what the caller may read of a collection of the same database.
func (p *pipelines) other(v bson.Value) (limits, error) {
	name, ok := v.Str()
	if !ok || name == "" {
		return limits{}, problem("reads from a source that is not a collection of the database")
	}
	on := Resource{p.database, name}
	l := p.may("Aggregate", on)
	if !l.Allowed {
		return l, &foreign{on, l.Rule}
	}
	if err := p.all(on, p.whole); err != nil {
		return l, err
	}
	if l.Filter != nil {
		p.filter = l.Filter
	}
	return l, l.checkCollation(p.collation)
}

// foreign reports that a pipeline reads or writes a collection that the caller may not.
type foreign struct {
	on   Resource
	rule string
}

func (e *foreign) Error() string {
	return "reads or writes " + e.on.String() + ", which the caller may not use"
}

func (p *pipelines) lookup(operand bson.Raw, l *limits) (bson.Raw, error) {
	for key, v := range operand.All() {
		switch key {
		case "from", "as", "foreignField", "pipeline":
		case "localField":
			if path, _ := v.Str(); touches(path, l.Hidden) {
				return nil, errHidden
			}
		case "let":
			if err := l.checkExpressions(v); err != nil {
				return nil, err
			}
		default:
			return nil, problem("has a $lookup with " + key + ", which the policy does not support")
		}
	}
	from, _ := operand.Lookup("from")
	there, err := p.other(from)
	if err != nil {
		return nil, err
	}
	field, _ := operand.Lookup("foreignField")
	if path, ok := field.Str(); ok && touches(path, there.Hidden) {
		return nil, errHidden
	}
	v, _ := operand.Lookup("pipeline")
	list, _ := v.Array()
	inner, err := p.rewrite(documentsOf(list), &there)
	if err != nil || len(inner) == 0 {
		return nil, err
	}
	return stage("$lookup", bson.With(operand, "pipeline", bson.ArrayValue(arrayOf(inner)))), nil
}

func (p *pipelines) graphLookup(operand bson.Raw, l *limits) (bson.Raw, error) {
	from, _ := operand.Lookup("from")
	there, err := p.other(from)
	if err != nil {
		return nil, err
	}
	if len(there.Hidden) > 0 {
		return nil, problem("has a $graphLookup into a collection with hidden fields")
	}
	start, _ := operand.Lookup("startWith")
	if err := l.checkExpressions(start); err != nil {
		return nil, err
	}
	const restrict = "restrictSearchWithMatch"
	v, _ := operand.Lookup(restrict)
	client, _ := v.Document()
	filter, err := there.filter(client)
	if err != nil || filter == nil {
		return nil, err
	}
	return stage("$graphLookup", bson.With(operand, restrict, bson.DocumentValue(filter))), nil
}

func (p *pipelines) unionWith(v bson.Value) (bson.Raw, error) {
	coll := v
	var list bson.Array
	if operand, ok := v.Document(); ok {
		coll, _ = operand.Lookup("coll")
		inner, _ := operand.Lookup("pipeline")
		list, _ = inner.Array()
	}
	there, err := p.other(coll)
	if err != nil {
		return nil, err
	}
	inner, err := p.rewrite(documentsOf(list), &there)
	if err != nil || len(inner) == 0 {
		return nil, err
	}
	pipeline := arrayOf(inner)
	b := bson.NewBuilder(make([]byte, 0, len(pipeline)+len(coll.Data)+64))
	return b.OpenDocument("$unionWith").Value("coll", coll).Array("pipeline", pipeline).Close().
		Finish(), nil
}

// into checks a stage that writes its documents into a collection: the caller must be allowed to
// write all documents there.
func (p *pipelines) into(name string, v bson.Value, l *limits) error {
	if err := l.checkExpressions(v); err != nil {
		return err
	}
	target, ok := v.Str()
	on := Resource{p.database, target}
	if operand, isDocument := v.Document(); isDocument && !isAmbiguous(operand) {
		into, isText := operand.Lookup("into")
		if isText && name == "$merge" {
			if on.Collection, ok = into.Str(); !ok {
				operand, _ = into.Document()
			}
		}
		if !ok && !isAmbiguous(operand) {
			on, ok = targetOf(operand, p.database)
		}
	}
	if !ok || on.Database == "" || on.Collection == "" {
		return problem("has a " + name + " without a collection, or with the same key twice")
	}
	actions := adding
	if name == "$out" {
		actions = replacing
	}
	return p.all(on, actions)
}

// reduced checks where a mapReduce writes its documents to, if not into its reply: a collection
// that it replaces, or adds to.
func (p *pipelines) reduced(out bson.Value) error {
	wrong := problem("has a mapReduce whose out is not one collection")
	if name, isText := out.Str(); isText && name != "" {
		return p.all(Resource{p.database, name}, replacing)
	}
	operand, isDocument := out.Document()
	if !isDocument || isAmbiguous(operand) {
		return wrong
	}
	on := Resource{Database: p.database}
	var actions []string
	for key, v := range operand.All() {
		name, isText := v.Str()
		switch key {
		case "inline", "sharded", "nonAtomic":
			continue
		case "db":
			on.Database = name
		case "replace", "merge", "reduce":
			if actions != nil {
				return wrong
			}
			if on.Collection, actions = name, adding; key == "replace" {
				actions = replacing
			}
		default: // servers before 4.4 have another name of replace
			return wrong
		}
		if !isText || name == "" {
			return wrong
		}
	}
	return p.all(on, actions)
}

// What the caller must be allowed on a collection that documents are added to, or that is replaced.
var (
	adding    = []string{"InsertMany", "UpdateMany"}
	replacing = []string{"InsertMany", "DeleteMany", "DropCollection"}
)

// all reports whether the caller may do actions with all of another collection.
func (p *pipelines) all(on Resource, actions []string) error {
	for _, action := range actions {
		if d := p.may(action, on); !d.Allowed || d.Restricted() {
			return &foreign{on, d.Rule}
		}
	}
	return nil
}

// targetOf reads {db: …, coll: …}.
func targetOf(operand bson.Raw, database string) (Resource, bool) {
	on := Resource{Database: database}
	if db, found := operand.Lookup("db"); found {
		var ok bool
		if on.Database, ok = db.Str(); !ok {
			return on, false
		}
	}
	coll, _ := operand.Lookup("coll")
	var ok bool
	on.Collection, ok = coll.Str()
	return on, ok
}

// isAmbiguous reports whether a document may have a key twice.
func isAmbiguous(d bson.Raw) bool { return d.Len() > maxKeys || repeats(d) }

// repeats reports whether a document has a key twice. Servers differ in which of them counts.
func repeats(d bson.Raw) bool {
	seen := map[string]struct{}{}
	for key := range d.All() {
		if _, twice := seen[key]; twice {
			return true
		}
		seen[key] = struct{}{}
	}
	return false
}

func documentsOf(a bson.Array) (docs []bson.Raw) {
	for _, v := range a.All() {
		d, _ := v.Document() // what is not a document has no stage, and is refused
		docs = append(docs, d)
	}
	return docs
}

func arrayOf(docs []bson.Raw) bson.Array {
	size := 16
	for _, d := range docs {
		size += len(d) + 12
	}
	b := bson.NewBuilder(make([]byte, 0, size)).OpenArray("a")
	for _, d := range docs {
		b.Document("", d)
	}
	v, _ := b.Close().Finish().Lookup("a")
	a, _ := v.Array()
	return a
}

// isSystem reports whether a collection is one of the server's own, which can have documents of
// other collections in it.
func isSystem(collection string) bool { return strings.HasPrefix(collection, "system.") }
