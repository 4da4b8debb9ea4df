package policy_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
)

var (
	decisions = flag.Int("decisions", 20_000, "how many decisions TestModel compares")
	modelSeed = flag.Uint64("model-seed", 1, "what the policies and calls of TestModel depend on")
)

// A world of few names, in which rules meet often. A document has the fields t and u, by which
// filters tell documents, and x and y, which rules hide.
var (
	modelFields   = []string{"t", "u", "x", "y"}
	modelFilters  = []string{"", "{'t': 0}", "{'t': 1}", "{'u': 0}", "{'u': {'$in': [1]}}"}
	modelForced   = []string{"", "", "{'t': 0}", "{'t': 1}"}
	modelCommands = []string{"ping", "dbStats"}
	modelOn       = []string{"", "p", "q", "p.a", "p.b", "q.a"}
)

// modelRule is a rule as the model has it.
type modelRule struct {
	forbid           bool
	who, on          string // "": any
	exact            bool   // resource ==, not in
	except           string // what a condition of a permit leaves out; "": nothing
	of               string // of which actions; "": of all
	groups           []string
	filter, forced   int // indexes of modelFilters and modelForced
	hidden, readonly []string
	commands         []string
}

func newModelRule(r *rand.Rand, limits bool) modelRule {
	m := modelRule{forbid: r.IntN(8) == 0, on: modelOn[r.IntN(len(modelOn))], exact: r.IntN(6) == 0}
	if r.IntN(3) == 0 {
		m.who = []string{"key:a", "key:b"}[r.IntN(2)]
	}
	for _, group := range []string{"read", "write", "watch", "manage", "command", "describe"} {
		if r.IntN(2) == 0 {
			m.groups = append(m.groups, group)
		}
	}
	if len(m.groups) == 0 {
		m.groups = []string{"read"}
	}
	if strings.Contains(m.on, ".") { // no command, list or drop of a database works on a collection
		m.groups = append(m.groups, "read")
	} else if m.forbid || m.exact && !strings.Contains(m.on, ".") {
		m.exact = false
	}
	if m.forbid {
		return m
	}
	if r.IntN(4) == 0 {
		m.except = modelOn[1+r.IntN(len(modelOn)-1)]
		if r.IntN(2) == 0 {
			m.of = m.groups[r.IntN(len(m.groups))]
		}
	}
	if limits {
		m.limit(r)
	}
	for _, name := range modelCommands {
		if !m.limited() && r.IntN(2) == 0 {
			m.commands = append(m.commands, name)
		}
	}
	return m
}

// limit gives the rule some limits, or none.
func (m *modelRule) limit(r *rand.Rand) {
	if r.IntN(2) == 0 {
		m.filter = r.IntN(len(modelFilters))
	}
	if r.IntN(3) == 0 {
		m.forced = r.IntN(len(modelForced))
	}
	for _, field := range []string{"x", "y"} {
		if r.IntN(4) == 0 {
			m.hidden = append(m.hidden, field)
		}
		if r.IntN(4) == 0 {
			m.readonly = append(m.readonly, field)
		}
	}
}

func (m *modelRule) limited() bool {
	return modelFilters[m.filter] != "" || modelForced[m.forced] != "" ||
		len(m.hidden)+len(m.readonly) > 0
}

// text returns the rule in Cedar.
func (m *modelRule) text(id int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "@id(\"%d\") ", id)
	for name, value := range map[string]string{
		"filter": modelFilters[m.filter], "forced": modelForced[m.forced],
		"hidden": strings.Join(m.hidden, ","), "readonly": strings.Join(m.readonly, ","),
		"commands": strings.Join(m.commands, ","),
	} {
		if value != "" {
			fmt.Fprintf(&b, "@%s(%q) ", name, value)
		}
	}
	verb, who, in, condition := "permit", "principal", "in", ""
	if m.forbid {
		verb = "forbid"
	}
	if m.who != "" {
		who = fmt.Sprintf("principal == Principal::%q", m.who)
	}
	if m.exact {
		in = "=="
	}
	if m.except != "" {
		condition = fmt.Sprintf(" unless { resource in %s }", entityOf(m.except))
	}
	if m.of != "" {
		action := fmt.Sprintf("{ action in Action::%q &&", m.of)
		condition = strings.Replace(condition, "{", action, 1)
	}
	groups := make([]string, len(m.groups))
	for i, group := range m.groups {
		groups[i] = fmt.Sprintf("Action::%q", group)
	}
	fmt.Fprintf(&b, "%s (%s, action in [%s], resource %s %s)%s;\n", verb, who,
		strings.Join(groups, ", "), in, entityOf(m.on), condition)
	return b.String()
}

// entityOf returns a resource in Cedar.
func entityOf(on string) string {
	switch {
	case strings.Contains(on, "."):
		return fmt.Sprintf("Collection::%q", on)
	case on != "":
		return fmt.Sprintf("Database::%q", on)
	}
	return `Deployment::"deployment"`
}

// matches reports whether the rule is about an action on a resource.
func (m *modelRule) matches(who, group, on string) bool {
	return (m.who == "" || m.who == who) && slices.Contains(m.groups, group) &&
		(m.on == on || !m.exact && (m.on == "" || strings.HasPrefix(on, m.on+"."))) &&
		(m.except == "" || m.of != "" && m.of != group ||
			m.except != on && !strings.HasPrefix(on, m.except+"."))
}

// modelDoc is a document: its values of t and u. x and y are always there.
type modelDoc struct{ t, u int }

func allDocs() (docs []modelDoc) {
	for i := range 9 {
		docs = append(docs, modelDoc{i / 3, i % 3})
	}
	return docs
}

func (d modelDoc) matches(filter int) bool {
	return [...]bool{true, d.t == 0, d.t == 1, d.u == 0, d.u == 1}[filter]
}

// model says what rules allow, by one permit alone for each field of a document.
type model []modelRule

// permits returns the permits of an action that permit something which no other does. It reports
// false if a forbid refuses it, or if they do not go together.
func (m model) permits(who, group, on string) (left []modelRule, ok bool) {
	var all []modelRule
	for _, r := range m {
		if r.matches(who, group, on) {
			if r.forbid {
				return nil, false
			}
			all = append(all, r)
		}
	}
	writing := group == "write"
	for i, r := range all {
		covered := false
		for j, other := range all {
			covered = covered ||
				i != j && other.allowsAll(r, writing) && (j < i || !r.allowsAll(other, writing))
		}
		if !covered {
			left = append(left, r)
		}
	}
	sameDocs, sameFields := true, true
	for _, r := range left {
		sameDocs = sameDocs && r.filter == left[0].filter &&
			(!writing || modelForced[r.forced] == modelForced[left[0].forced])
		sameFields = sameFields && slices.Equal(r.hidden, left[0].hidden) && (!writing ||
			slices.Equal(r.readonly, left[0].readonly) &&
				modelForced[r.forced] == modelForced[left[0].forced])
	}
	return left, len(left) > 0 && (sameDocs || sameFields)
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

func (m *modelRule) allowsAll(other modelRule, writing bool) bool {
	return (m.filter == 0 || m.filter == other.filter) && subset(m.hidden, other.hidden) &&
		(!writing ||
			subset(m.readonly, other.readonly) &&
				(modelForced[m.forced] == "" || modelForced[m.forced] == modelForced[other.forced]))
}

// reads reports whether a field of a document may be read.
func (m model) reads(who, group, on string, d modelDoc, field string) bool {
	left, ok := m.permits(who, group, on)
	return ok && slices.ContainsFunc(left, func(r modelRule) bool {
		return d.matches(r.filter) && !slices.Contains(r.hidden, field)
	})
}

// updates reports whether a field of a document may be changed: no filter looks at it.
func (m model) updates(who, on string, d modelDoc, field string) bool {
	left, ok := m.permits(who, "write", on)
	for _, r := range left {
		ok = ok && !strings.Contains(modelFilters[r.filter], "'"+field+"'")
	}
	return ok && slices.ContainsFunc(left, func(r modelRule) bool {
		return d.matches(r.filter) && !slices.Contains(r.hidden, field) &&
			!slices.Contains(r.readonly, field)
	})
}

// whole reports whether one permit alone allows an action without limits.
func (m model) whole(who, group, on string) bool {
	left, ok := m.permits(who, group, on)
	return ok && len(left) == 1 && !left[0].limited()
}

// unlimited reports whether no forbid and no limit is for an action on a resource.
func (m model) unlimited(who, group, on string) bool {
	all, _ := m.permits(who, group, on)
	return (len(all) == 0 || m.whole(who, group, on)) &&
		!slices.ContainsFunc(m, func(r modelRule) bool {
			return r.forbid && r.matches(who, group, on)
		})
}

// against reports whether a forbid or a limit is for an action on a collection in a resource.
func (m model) against(who, on string, groups ...string) bool {
	return slices.ContainsFunc(m, func(r modelRule) bool {
		about := on == "" || r.on == "" || r.on == on || strings.HasPrefix(r.on, on+".")
		return about && (r.forbid || r.limited()) && (r.who == "" || r.who == who) &&
			slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(r.groups, g) })
	})
}

// excepting reports whether each permit without limits of an action on a resource leaves out
// something in it, of the action or of those that it reaches. everywhere says that it also reaches
// other databases, which a permit that names one leaves to it.
func (m model) excepting(who, group, on string, everywhere bool, reached ...string) bool {
	return !slices.ContainsFunc(m, func(r modelRule) bool {
		leaves := r.except != "" && (r.of == "" || r.of == group || slices.Contains(reached, r.of))
		within := leaves && (on == "" || r.except == on || strings.HasPrefix(r.except, on+"."))
		return !r.forbid && !r.limited() && r.matches(who, group, on) && !within &&
			(!everywhere || !leaves || r.on != "")
	})
}

// TestModel compares what the policy makes of calls, field of a document by field of a document,
// with a model.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(*modelSeed, 0))
	compared, allowed := 0, 0
	for world := 0; compared < *decisions; world++ {
		var rules model
		var text strings.Builder
		limits := r.IntN(4) > 0 // under some, few commands are allowed
		for i := range 1 + r.IntN(5) {
			rules = append(rules, newModelRule(r, limits))
			text.WriteString(rules[i].text(i))
		}
		p, err := policy.Parse([]byte(text.String()))
		if err != nil {
			continue // a mistake, such as a drop of a collection's database
		}
		s := &subject{t: t, e: policy.NewEnforcer(policy.Config{Policy: p})}
		for _, s.who = range []string{"key:a", "key:b"} {
			for _, on := range []string{"p.a", "p.b", "q.a"} {
				s.documents(rules, on)
				s.buckets(rules, on)
			}
			s.joins(rules, "p.a", "p.b")
			s.joins(rules, "p.b", "p.a")
			s.rename(rules, "p.a", "p.b")
			s.rename(rules, "p.b", "q.a")
			for _, on := range modelOn {
				s.wholes(rules, on)
			}
		}
		compared, allowed = compared+s.compared, allowed+s.allowed
		if t.Failed() {
			t.Fatalf("world %d of seed %d has the rules\n%s", world, *modelSeed, text.String())
		}
	}
	t.Logf("%d decisions, of which %d allow", compared, allowed)
	if allowed < compared/20 || allowed > compared*19/20 {
		t.Errorf("%d of %d decisions allow", allowed, compared)
	}
}

// subject asks a policy.
type subject struct {
	t                 *testing.T
	e                 *policy.Enforcer
	who               string
	compared, allowed int
}

func (s *subject) compare(got, want bool, format string, args ...any) {
	s.compared++
	if got {
		s.allowed++
	}
	if got != want {
		s.t.Errorf("%s: %s: %t, want %t", s.who, fmt.Sprintf(format, args...), got, want)
	}
}

func (s *subject) check(method string, m proto.Message) (policy.Call, bool) {
	call := s.e.Begin(&caller.Identity{Principal: s.who}, "/mooring.v1."+method, true)
	err := call.Check(s.t.Context(), m)
	return call, err == nil
}

// run checks a request alone, or as the operation of a transaction.
func (s *subject) run(method string, m proto.Message, op *mooringv1.TransactionOperation) bool {
	_, alone := s.check(method, m)
	if op != nil {
		_, within := s.check("TransactionService/Run", &mooringv1.TransactionServiceRunRequest{
			Operations: []*mooringv1.TransactionOperation{op},
		})
		s.compare(within, alone, "%s in a transaction", method)
	}
	return alone
}

// documents compares calls on the documents of a collection.
func (s *subject) documents(rules model, on string) {
	db, c, _ := strings.Cut(on, ".")
	find := &mooringv1.FindRequest{Database: db, Collection: c}
	_, ok := s.check("DocumentService/Find", find)
	for _, d := range allDocs() {
		for _, field := range modelFields {
			got := ok && matchesBSON(find.GetFilter().GetBson(), d) &&
				!bson.Raw(find.GetProjection().GetBson()).Has(field)
			s.compare(got, rules.reads(s.who, "read", on, d, field), "find %s of %v in %s", field,
				d, on)
		}
	}
	for _, field := range modelFields {
		count := &mooringv1.CountDocumentsRequest{
			Database: db, Collection: c, Filter: payload.NewDocument(field1(field, 9)),
		}
		_, ok := s.check("DocumentService/CountDocuments", count)
		any := slices.ContainsFunc(allDocs(), func(d modelDoc) bool {
			return rules.reads(s.who, "read", on, d, field)
		})
		s.compare(ok, any, "count by %s in %s", field, on)
		set := &mooringv1.UpdateManyRequest{
			Database: db, Collection: c, Filter: payload.NewDocument(bson.NewBuilder(nil).Finish()),
			Update: &mooringv1.Update{
				Kind: &mooringv1.Update_Operators{
					Operators: payload.NewDocument(wrap("$set", field1(field, 9))),
				},
			},
		}
		bulk := &mooringv1.BulkWriteRequest{Models: []*mooringv1.WriteModel{{
			Namespace: &on, Kind: &mooringv1.WriteModel_UpdateMany{UpdateMany: &mooringv1.UpdateManyModel{
				Filter: set.Filter, Update: proto.CloneOf(set.Update),
			}},
		}}}
		_, inBulk := s.check("DocumentService/BulkWrite", bulk)
		ok = s.run("DocumentService/UpdateMany", set, &mooringv1.TransactionOperation{
			Operation: &mooringv1.TransactionOperation_UpdateMany{UpdateMany: proto.CloneOf(set)},
		})
		s.compare(inBulk, ok, "update %s of %s in a bulk write", field, on)
		for _, d := range allDocs() {
			got := ok && matchesBSON(set.GetFilter().GetBson(), d)
			s.compare(got, rules.updates(s.who, on, d, field), "update %s of %v in %s", field, d,
				on)
		}
	}
	remove := &mooringv1.DeleteManyRequest{
		Database: db, Collection: c, Filter: payload.NewDocument(bson.NewBuilder(nil).Finish()),
	}
	ok = s.run("DocumentService/DeleteMany", remove, &mooringv1.TransactionOperation{
		Operation: &mooringv1.TransactionOperation_DeleteMany{DeleteMany: proto.CloneOf(remove)},
	})
	left, together := rules.permits(s.who, "write", on)
	for _, d := range allDocs() {
		got := ok && matchesBSON(remove.GetFilter().GetBson(), d)
		s.compare(got, together && slices.ContainsFunc(left, func(r modelRule) bool {
			return d.matches(r.filter)
		}), "delete %v in %s", d, on)
		s.insert(left, together, on, d)
	}
}

// buckets compares calls on the buckets of a time series, which limits cannot be put into.
func (s *subject) buckets(rules model, series string) {
	db, c, _ := strings.Cut(series, ".")
	in := "system.buckets." + c
	for method, m := range map[string]proto.Message{
		"Find":       &mooringv1.FindRequest{Database: db, Collection: in},
		"DeleteMany": &mooringv1.DeleteManyRequest{Database: db, Collection: in},
	} {
		group := "read"
		if method == "DeleteMany" {
			group = "write"
		}
		_, ok := s.check("DocumentService/"+method, m)
		s.compare(ok, rules.whole(s.who, group, series) && rules.whole(s.who, group, db+"."+in),
			"%s of the buckets of %s", method, series)
	}
}

// joins compares pipelines on a collection that read another one: alone, with a $match that could
// fail on a document which a filter excludes, with a collation, and explained.
func (s *subject) joins(rules model, on, other string) {
	db, c, _ := strings.Cut(on, ".")
	_, name, _ := strings.Cut(other, ".")
	fails := wrap("$match", wrap("$expr", bson.NewBuilder(nil).String("$toInt", "$t").Finish()))
	english := payload.NewDocument(bson.NewBuilder(nil).String("locale", "en").Finish())
	union := bson.NewBuilder(nil).String("$unionWith", name).Finish()
	nested := bson.NewBuilder(nil).OpenDocument("$lookup").String("from", name).String("as", "z").
		OpenArray("pipeline").Document("", union).Close().Close().Finish()

	left, ok := rules.permits(s.who, "read", on)
	there, also := rules.permits(s.who, "read", other)
	readable := ok && also
	filtered := readable && left[0].filter != 0
	joined := readable && there[0].filter != 0
	for _, read := range []bson.Raw{union, nested} {
		ask := func(what string, want bool, collation *mooringv1.Document, stages ...bson.Raw) {
			m := &mooringv1.AggregateRequest{Database: db, Collection: &c, Collation: collation}
			for _, stage := range stages {
				m.Pipeline = append(m.Pipeline, payload.NewDocument(stage))
			}
			_, got := s.check("DocumentService/Aggregate", m)
			s.compare(got, want, "%s of %s and %s", what, on, other)
			s.compare(got && collation == nil && m.GetCollation() != nil,
				want && collation == nil && joined && !filtered, "the collation of that %s", what)
		}
		ask("join", readable, nil, read)
		ask("join with a $match", readable && !filtered && !joined, nil, read, fails)
		ask("join with a collation", readable && !filtered && !joined, english, read)
		explain := &mooringv1.ExplainAggregateRequest{Database: db, Collection: &c}
		explain.Pipeline = append(explain.Pipeline, payload.NewDocument(read))
		_, got := s.check("DocumentService/ExplainAggregate", explain)
		s.compare(got, rules.whole(s.who, "read", on) && rules.whole(s.who, "read", other),
			"explained join of %s and %s", on, other)
	}
}

// runs reports whether a command is listed on a database.
func (m model) runs(who, name, db string) bool {
	var listing model
	lists := false
	for _, r := range m {
		if slices.Contains(r.commands, name) {
			listing = append(listing, r)
			lists = lists || r.matches(who, "command", db)
		}
	}
	_, together := m.permits(who, "command", db)
	return lists && together && !listing.excepting(who, "command", db, true, every...)
}

// rename compares renames of a collection, alone and in place of another.
func (s *subject) rename(rules model, on, to string) {
	db, c, _ := strings.Cut(on, ".")
	otherDB, other, _ := strings.Cut(to, ".")
	want := rules.whole(s.who, "manage", on) && rules.whole(s.who, "manage", to)
	for _, group := range every {
		_, here := rules.permits(s.who, group, on)
		_, there := rules.permits(s.who, group, to)
		want = want && here == there && (!here ||
			rules.whole(s.who, group, on) && rules.whole(s.who, group, to))
	}
	if db != otherDB {
		for _, name := range modelCommands {
			want = want && (rules.runs(s.who, name, db) || !rules.runs(s.who, name, otherDB))
		}
	}
	for _, drop := range []bool{false, true} {
		_, ok := s.check("CatalogService/RenameCollection", &mooringv1.RenameCollectionRequest{
			Database: db, Collection: c, ToDatabase: &otherDB, To: other, DropTarget: &drop,
		})
		s.compare(ok, want && (!drop || rules.whole(s.who, "write", to)),
			"rename of %s to %s, which is dropped: %t", on, to, drop)
	}
}

// insert compares the insertion of documents with each set of fields.
func (s *subject) insert(left []modelRule, together bool, on string, d modelDoc) {
	db, c, _ := strings.Cut(on, ".")
	for _, fields := range [][]string{nil, {"x"}, {"y"}, {"x", "y"}} {
		b := bson.NewBuilder(nil).Int32("t", int32(d.t)).Int32("u", int32(d.u))
		for _, field := range fields {
			b.Int32(field, 1)
		}
		insert := &mooringv1.InsertOneRequest{
			Database: db, Collection: c, Document: payload.NewDocument(b.Finish()),
		}
		got := s.run("DocumentService/InsertOne", insert, &mooringv1.TransactionOperation{
			Operation: &mooringv1.TransactionOperation_InsertOne{InsertOne: proto.CloneOf(insert)},
		})
		want := together
		if want {
			inserted := d
			if forced := modelForced[left[0].forced]; forced != "" {
				inserted.t = int(forced[len("{'t': ")] - '0')
			}
			want = slices.ContainsFunc(left, func(r modelRule) bool {
				return inserted.matches(r.filter)
			})
			for _, field := range fields {
				want = want && !everyRuleKeeps(left, field)
			}
			if t, _ := bson.Raw(insert.GetDocument().GetBson()).Lookup("t"); got {
				s.compare(t.Equal(bson.Int32Value(int32(inserted.t))), true,
					"forced value of %v in %s", d, on)
			}
		}
		s.compare(got, want, "insert %v with %v in %s", d, fields, on)
	}
}

// everyRuleKeeps reports whether each rule hides a field or has it read-only, and not all hide it:
// hidden fields can be inserted.
func everyRuleKeeps(left []modelRule, field string) bool {
	allReadOnly, allHidden := true, true
	for _, r := range left {
		readonly, hidden := slices.Contains(r.readonly, field), slices.Contains(r.hidden, field)
		if !readonly && !hidden {
			return false
		}
		allReadOnly, allHidden = allReadOnly && readonly, allHidden && hidden
	}
	return allReadOnly || !allHidden
}

// wholes compares calls on a resource as a whole.
func (s *subject) wholes(rules model, on string) {
	db, c, isCollection := strings.Cut(on, ".")
	watch := &mooringv1.WatchRequest{Database: db}
	if isCollection {
		watch.Collection = &c
	}
	watching, ok := s.check("ChangeStreamService/Watch", watch)
	_, want := rules.permits(s.who, "watch", on)
	s.compare(ok, want, "watch %q", on)
	if ok {
		all := rules.whole(s.who, "watch", on) &&
			(isCollection || !rules.against(s.who, on, "watch") &&
				!rules.excepting(s.who, "watch", on, false))
		s.compare(watching.PerEvent(), !all, "watch %q event by event", on)
		s.events(rules, on, watching.PerEvent())
	}
	_, ticket := s.check("ChangeStreamService/CreateTicket",
		&mooringv1.CreateTicketRequest{Watch: proto.CloneOf(watch)})
	s.compare(ticket, want, "ticket for %q", on)
	if isCollection || on == "" {
		return
	}
	s.servers(rules, on)
	left, together := rules.permits(s.who, "command", on)
	for _, name := range modelCommands {
		run := &mooringv1.RunCommandRequest{
			Database: db, Command: payload.NewDocument(field1(name, 1)),
		}
		_, ok = s.check("CommandService/RunCommand", run)
		var listing model
		for _, r := range rules {
			if slices.Contains(r.commands, name) {
				listing = append(listing, r)
			}
		}
		s.compare(ok, together && !left[0].limited() && !rules.against(s.who, "", every...) &&
			!listing.excepting(s.who, "command", on, true, every...), "%s on %s", name, on)
	}
	for method, group := range map[string]string{
		"CatalogService/DropDatabase": "manage", "CatalogService/ListCollections": "describe",
	} {
		var m proto.Message = &mooringv1.DropDatabaseRequest{Database: db}
		if group == "describe" {
			m = &mooringv1.ListCollectionsRequest{Database: db}
		}
		call, ok := s.check(method, m)
		s.compare(ok, rules.whole(s.who, group, on), "%s %s", method, on)
		if inside := call.Inside(); ok {
			for _, name := range []string{"a", "b"} {
				want := rules.unlimited(s.who, group, on+"."+name) &&
					(!rules.excepting(s.who, group, on, false) ||
						rules.whole(s.who, group, on+"."+name))
				got := inside == nil || inside(db, name) == nil
				s.compare(got, want, "%s %s, which has %s", method, on, name)
				const buckets = "system.buckets."
				got = inside == nil || inside(db, buckets+name) == nil
				s.compare(got, want && rules.unlimited(s.who, group, on+"."+buckets+name),
					"%s %s, which has the time series %s", method, on, name)
			}
		}
	}
}

// every lists the groups of actions that change or tell of collections.
var every = []string{"read", "write", "watch", "manage", "describe"}

// servers compares reads of a database as a whole, and of the server's own collections.
func (s *subject) servers(rules model, db string) {
	_, ok := s.check("DocumentService/Aggregate", &mooringv1.AggregateRequest{Database: db})
	s.compare(ok, rules.whole(s.who, "read", db) && !rules.against(s.who, db, "read") &&
		!rules.excepting(s.who, "read", db, false), "aggregation of %s", db)
	profile := &mooringv1.FindRequest{Database: db, Collection: "system.profile"}
	_, ok = s.check("DocumentService/Find", profile)
	s.compare(ok, rules.whole(s.who, "read", db+".system.profile") &&
		!rules.against(s.who, db, every...) && !rules.excepting(s.who, "read", db, false, every...),
		"find of the profile of %s", db)
	oplog := &mooringv1.FindRequest{Database: "local", Collection: "oplog.rs"}
	_, ok = s.check("DocumentService/Find", oplog)
	s.compare(ok, rules.whole(s.who, "read", "local.oplog.rs") &&
		!rules.against(s.who, "", every...) &&
		!rules.excepting(s.who, "read", "local", true, every...),
		"find of the oplog")
}

// events compares what a stream on a resource shows of inserted documents, field by field.
func (s *subject) events(rules model, on string, perEvent bool) {
	for _, name := range []string{"p.a", "p.b", "q.a"} {
		if on != "" && on != name && !strings.HasPrefix(name, on+".") {
			continue
		}
		db, c, _ := strings.Cut(name, ".")
		for _, d := range allDocs() {
			full := bson.NewBuilder(nil).Int32("t", int32(d.t)).Int32("u", int32(d.u)).
				Int32("x", 1).Int32("y", 1).Finish()
			event := bson.NewBuilder(nil).String("operationType", "insert").OpenDocument("ns").
				String("db", db).String("coll", c).Close().
				Document("fullDocument", full).Finish()
			shown := true
			if perEvent {
				event, shown = s.e.Event(&caller.Identity{Principal: s.who}, event)
			}
			for _, field := range modelFields {
				_, got := event.Lookup("fullDocument", field)
				s.compare(shown && got, rules.reads(s.who, "watch", name, d, field),
					"%s of %v in an event of %s, watching %q", field, d, name, on)
			}
		}
	}
}

func field1(name string, n int32) bson.Raw { return bson.NewBuilder(nil).Int32(name, n).Finish() }

// matchesBSON reports whether a filter that the policy has made matches a document. It knows what
// rules of the model have.
func matchesBSON(filter bson.Raw, d modelDoc) bool {
	for key, v := range filter.All() {
		list, _ := v.Array()
		some, every := false, true
		for sub := range list.Documents() {
			m := matchesBSON(sub, d)
			some, every = some || m, every && m
		}
		value := map[string]int{"t": d.t, "u": d.u}[key]
		switch condition, isDocument := v.Document(); {
		case key == "$or" && !some, key == "$and" && !every:
			return false
		case key == "$or" || key == "$and":
		case isDocument:
			in, _ := condition.Lookup("$in")
			items, _ := in.Array()
			found := false
			for _, item := range items.All() {
				n, _ := item.AsInt64()
				found = found || int(n) == value
			}
			if !found {
				return false
			}
		default:
			if n, _ := v.AsInt64(); int(n) != value {
				return false
			}
		}
	}
	return true
}
