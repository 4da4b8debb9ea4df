package policy

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/payload"
)

// Call checks the requests of one call.
type Call struct {
	enforcer *Enforcer
	state    *state
	who      *caller.Identity
	method   *method.Method // nil: the policy knows no such call, and refuses it
	name     string         // of the action
	decoder  payload.Decoder
	// on is the resource of the first message of a stream; later ones do not name it.
	on    Resource
	begun bool
	quiet bool
	// perEvent says that each event of the stream is decided.
	perEvent bool
	rule     string
	work     admission.Work
	// grounds gets the decisions; nil: they are not kept.
	grounds *Grounds
	// reader reads the request, here so that it is not allocated.
	reader reader
}

// Begin returns a Call that checks the requests of one call of a method, such as
// /mooring.v1.DocumentService/Find. built says that this process, and not the client, built the
// BSON in the requests. The Call is for one goroutine at a time.
func (e *Enforcer) Begin(who *caller.Identity, name string, built bool) Call {
	c := Call{
		enforcer: e, state: e.state.Load(), who: who, name: name,
		decoder: payload.Decoder{Built: built},
	}
	if c.method = method.Of(name); c.method != nil {
		c.name = c.method.Action
	}
	return c
}

// Keep makes Check add its decisions to g.
func (c *Call) Keep(g *Grounds) { c.grounds = g }

// Stale reports whether the rules were replaced since Begin.
func (c *Call) Stale() bool { return c.enforcer.state.Load() != c.state }

// Quiet reports whether the server's error messages must be kept from the client, since they could
// reveal documents or fields that the client may not read.
func (c *Call) Quiet() bool { return c.quiet }

// Rule returns the ids of the rules that decided about the last request.
func (c *Call) Rule() string { return c.rule }

// Check decides about a request, and changes it in place so that it does no more than is allowed.
// It puts new BSON into the request, and does not write to the bytes that were there. It may wait
// for its turn to do heavy work. Its errors are *Refusal, those of package payload for invalid
// BSON, and the cause of ctx if that has ended before.
func (c *Call) Check(ctx context.Context, request proto.Message) error {
	// A stream has no end, and what its handler keeps of a message is the handler's to charge.
	c.work.Release()
	c.work = admission.From(ctx).Work(ctx)
	defer c.work.Rest()
	c.decoder.By = &c.work
	return c.decide(request) //nolint:contextcheck // a turn comes soon, whatever the call
}

// element is what the check of an element of a request costs: as much as decoding so many bytes.
const element = 32

func (c *Call) decide(request proto.Message) error {
	m := request.ProtoReflect()
	if c.method == nil {
		return c.refuse(&limits{Decision: Decision{Rule: NoRule}}, c.name, c.on, nil)
	}
	c.Of(request)
	return c.check(m, c.method, c.on)
}

// listed has, of each call that lists or drops what is in a database or the deployment, the actions
// that are decided for each database or collection that is there.
var listed = map[string][]string{
	"ListDatabases":   {"ListDatabases"},
	"ListCollections": {"ListCollections"},
	"DropDatabase":    {"DropDatabase", "DropCollection"},
}

// Inside returns a function for calls that list or drop several databases or collections: its error
// is a *Refusal if a forbid or a limit applies to that one, or if a condition of what permits the
// call leaves it out. Inside returns nil if the function would refuse none.
func (c *Call) Inside() func(database, collection string) error {
	names := listed[c.name]
	if names == nil {
		return nil
	}
	who := principal(c.who)
	p, excepts := c.state.policy, c.state.decide(question{c.who, c.name, c.on}).excepts
	if excepts == nil && p.limiting(&who, names, Resource{Database: c.on.Database}) == nil {
		return nil
	}
	return func(database, collection string) error {
		about := []Resource{{database, collection}}
		if of, ok := strings.CutPrefix(collection, buckets); ok {
			about = append(about, Resource{database, of})
		}
		for _, on := range about {
			for _, name := range names {
				d := p.decide(&who, name, on)
				if d.limits() || !d.Allowed && slices.Contains(excepts, name) {
					// The client does not learn which are there.
					return c.refuse(&limits{Decision: d}, c.name, c.on, nil)
				}
			}
		}
		return nil
	}
}

// Answer returns what the client may see of the document that a request is answered with, which
// Check has allowed. A server that repeats its answer to a write has neither projected the document
// nor matched it with the filter of the rules. repeated says so, and that the document is whole.
// The error is a *Refusal.
func (c *Call) Answer(
	request proto.Message, document bson.Raw, repeated bool,
) (bson.Raw, error) {
	on := ResourceOf(request)
	action := method.OfRequest(request.ProtoReflect().Descriptor().FullName()).Action
	d := c.state.decide(question{c.who, action, on})
	if repeated && d.Filter != nil && !d.matches(document) {
		return nil, &Refusal{
			Principal: principalName(c.who), Action: action, On: on.brief(), Rule: d.Rule,
			Changed: true,
		}
	}
	if len(d.Hidden) == 0 {
		return document, nil
	}
	return without(document, d.Hidden), nil
}

// Of sets what the call works on, by its first request; further calls of Of do nothing.
func (c *Call) Of(request proto.Message) {
	if !c.begun {
		c.begun, c.on = true, ResourceOf(request)
	}
}

// ResourceOf returns what a request works on, by its fields database and collection.
func ResourceOf(request proto.Message) (on Resource) {
	if named, ok := request.(interface{ GetDatabase() string }); ok {
		on.Database = named.GetDatabase()
	}
	if named, ok := request.(interface{ GetCollection() string }); ok {
		on.Collection = named.GetCollection()
	}
	return on
}

// limits returns what the caller may do.
func (c *Call) limits(action string, on Resource) limits {
	d := c.state.decide(question{c.who, action, on})
	c.grounds.add(c.state, c.who, asked{action, on}, d.sum)
	c.quiet = c.quiet || d.Restricted()
	return limits{Decision: *d, script: c.enforcer.script, work: &c.work}
}

// refuse returns the Refusal of a request, or of its part that cause is about. Other errors stay as
// they are.
func (c *Call) refuse(l *limits, action string, on Resource, cause error) error {
	r := &Refusal{
		Principal: principalName(c.who), Action: brief(action), On: on.brief(), Rule: l.Rule,
	}
	part, ok := errors.AsType[*partError](cause)
	if ok {
		r.Field, cause = part.field, part.err
	}
	if other, ok := errors.AsType[*foreign](cause); ok {
		r.Rule = other.rule
	} else if _, ok := errors.AsType[problem](cause); cause != nil && !ok {
		return cause
	}
	if cause != nil {
		r.Problem = brief(cause.Error())
	}
	return r
}

// maxText is how many bytes of a text of the client's are repeated to it and logged. No server has
// a longer name of a collection.
const maxText = 255

// brief returns a text, or its beginning.
func brief(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// isLong reports whether a name is longer than any of a server's.
func (r Resource) isLong() bool { return len(r.Database) > maxText || len(r.Collection) > maxText }

func (r Resource) brief() Resource { return Resource{brief(r.Database), brief(r.Collection)} }

func principalName(id *caller.Identity) string {
	if id == nil {
		return anonymous
	}
	return id.Principal
}

// partError says which field of a request a problem is in.
type partError struct {
	field string
	err   error
}

func (e *partError) Error() string { return e.field + ": " + e.err.Error() }

func (c *Call) check(m protoreflect.Message, a *method.Method, on Resource) error {
	limitable := false
	switch a.Scope {
	case mooringv1.Method_SCOPE_REQUESTS:
		return c.contained(m)
	case mooringv1.Method_SCOPE_WRITES:
		return c.models(m, on)
	case mooringv1.Method_SCOPE_DEPLOYMENT, mooringv1.Method_SCOPE_OPENED:
		on = Resource{}
	case mooringv1.Method_SCOPE_DOCUMENTS:
		limitable = on.Collection != ""
	default:
	}
	l := c.limits(a.Action, on)
	c.rule = l.Rule
	if listed[a.Action] != nil {
		c.grounds.addAll(c.state, c.who)
	}
	watched := a.Action == watchAction && l.Allowed && (l.perEvent || l.Restricted())
	if !l.Allowed || !limitable && l.Restricted() && !watched {
		return c.refuse(&l, a.Action, on, nil)
	}
	if watched {
		if err := c.watch(m, &l); err != nil {
			return c.refuse(&l, a.Action, on, err)
		}
		return nil
	}
	if a.Scope == mooringv1.Method_SCOPE_OPENED {
		c.quiet = c.quiet || c.state.standing(c.who).restricted
		return nil
	}
	if l.picked = c.Inside() != nil; l.picked {
		l.script, c.quiet = false, true
	}
	r := &c.reader
	*r = reader{
		call: c, method: a, limits: l, on: on, write: a.Group == mooringv1.Method_GROUP_WRITE,
	}
	err := r.message(m)
	if err == nil && a.Scope == mooringv1.Method_SCOPE_COMMAND {
		err = r.command(m)
	}
	if err != nil {
		return c.refuse(&r.limits, a.Action, on, err)
	}
	return nil
}

// contained checks each request in a message. A ticket keeps its request as the client has sent it:
// the request is checked again, and limited, when the ticket opens a stream.
func (c *Call) contained(m protoreflect.Message) (err error) {
	later := c.method.Name == mooringv1.ChangeStreamService_CreateTicket_FullMethodName
	one := func(sub protoreflect.Message) bool {
		if a := method.OfRequest(sub.Descriptor().FullName()); a != nil {
			if later {
				sub = shallow(sub)
			}
			err = c.check(sub, a, ResourceOf(sub.Interface()))
			return err == nil
		}
		if sub.Descriptor().Fields().ByName("database") != nil {
			err = c.refuse(&limits{Decision: Decision{Rule: NoRule}},
				string(sub.Descriptor().Name()), ResourceOf(sub.Interface()), nil)
			return false
		}
		err = c.contained(sub)
		return err == nil
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() != protoreflect.MessageKind || fd.IsMap():
			return true
		case !fd.IsList():
			return one(v.Message())
		}
		for i := range v.List().Len() {
			if !one(v.List().Get(i).Message()) {
				return false
			}
		}
		return true
	})
	return err
}

// shallow returns a message with the same fields. What is set in it is not set in m.
func shallow(m protoreflect.Message) protoreflect.Message {
	made := m.New()
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		made.Set(fd, v)
		return true
	})
	made.SetUnknown(m.GetUnknown())
	return made
}

// models checks each write of a bulk write. What it decides about the collection of the request, it
// decides once for each kind of write: the enforcer does not remember the longest names.
func (c *Call) models(m protoreflect.Message, on Resource) error {
	request, ok := m.Interface().(*mooringv1.BulkWriteRequest)
	if !ok {
		return errors.New("bug: policy: not a bulk write")
	}
	made := map[string]limits{} // by action
	for i, model := range request.GetModels() {
		if err := c.work.Do(element); err != nil {
			return err
		}
		at := on
		if model.Namespace != nil {
			at.Database, at.Collection, _ = strings.Cut(model.GetNamespace(), ".")
		}
		kind := model.ProtoReflect().WhichOneof(
			model.ProtoReflect().Descriptor().Oneofs().ByName("kind"))
		if kind == nil {
			continue // the service refuses it
		}
		action := actionOf(kind.JSONName())
		l, known := made[action]
		if !known || model.Namespace != nil {
			l = c.limits(action, at)
		}
		if model.Namespace == nil {
			made[action] = l
		}
		c.rule = l.Rule
		r := &reader{call: c, limits: l, on: at, write: true}
		err := r.options(request.GetOptions())
		if err == nil && l.Allowed {
			err = r.message(model.ProtoReflect().Get(kind).Message())
		}
		if err != nil || !l.Allowed {
			if err != nil {
				err = &partError{"models." + strconv.Itoa(i), unwrapPart(err)}
			}
			return c.refuse(&r.limits, action, at, err)
		}
	}
	r := &reader{call: c, limits: limits{script: c.enforcer.script, work: &c.work}, on: on}
	if err := r.expressions("let", request.GetLet()); err != nil {
		return c.refuse(&r.limits, "BulkWrite", on, err)
	}
	return nil
}

func unwrapPart(err error) error {
	if part, ok := errors.AsType[*partError](err); ok {
		return part.err
	}
	return err
}

// actionOf returns the name of the action of a kind of write: InsertOne of insertOne.
func actionOf(kind string) string { return strings.ToUpper(kind[:1]) + kind[1:] }

// command checks that the command of RunCommand is one that the rules list.
func (r *reader) command(m protoreflect.Message) error {
	d, ok := m.Get(m.Descriptor().Fields().ByName("command")).Message().
		Interface().(*mooringv1.Document)
	if !ok || d.GetEncoding() == nil {
		return nil // the service refuses it
	}
	raw, err := r.call.decoder.Raw("command", d)
	if err != nil {
		return err
	}
	name := raw.FirstKey()
	for _, listed := range r.limits.Commands {
		if name != listed {
			continue
		}
		if rule := r.call.state.standing(r.call.who).commandless; rule != "" {
			r.limits.Rule = rule
			return problem("is a command, which reaches all collections, and a rule forbids or " +
				"limits the use of some")
		}
		r.call.grounds.add(r.call.state, r.call.who, asked{action: commands}, Sum{})
		return r.checkCommand(raw)
	}
	return problem("has a command that is not listed")
}

// scriptCommands lists the commands that run JavaScript, in lower case. Servers before 4.2 have
// group and eval.
var scriptCommands = []string{"mapreduce", "group", "eval"}

// checkCommand checks what a listed command does, or explains: it runs no JavaScript that is off,
// has no operators of servers, and writes no result of a pipeline or a mapReduce where the caller
// may not write.
func (r *reader) checkCommand(command bson.Raw) error {
	name := command.FirstKey()
	first, _ := command.Lookup(name)
	if explained, ok := first.Document(); ok && name == "explain" {
		command, name = explained, explained.FirstKey()
	}
	for key, v := range command.All() {
		if err := r.checkField(strings.ToLower(name), key, v); err != nil {
			return err
		}
	}
	if !r.limits.script && slices.Contains(scriptCommands, strings.ToLower(name)) {
		return errScript
	}
	switch {
	case strings.EqualFold(name, "mapReduce"):
		return r.checkReduced(command)
	case name != "aggregate":
		return nil
	}
	writes := false
	for key, v := range command.All() {
		list, isArray := v.Array()
		if key != "pipeline" || !isArray {
			continue
		}
		for stage := range list.Documents() {
			for name, operand := range stage.All() {
				switch {
				case writes: // no server takes it, and each decision would take its time
					return problem("has something behind a stage that writes")
				case name != "$out" && name != "$merge":
					continue
				}
				writes = true
				if err := r.pipelines().into(name, operand, &r.limits); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkReduced checks where a mapReduce writes to. Servers take the command in any case.
func (r *reader) checkReduced(command bson.Raw) error {
	for key, v := range command.All() {
		if key != "out" {
			continue
		}
		if err := r.pipelines().reduced(v); err != nil {
			return err
		}
	}
	return nil
}

// checkField checks a field of a command, but not the documents that it writes: what looks like
// an operator there is data.
func (r *reader) checkField(command, field string, v bson.Value) error {
	_, isDocument := v.Document()
	list, isList := v.Array()
	switch command + "." + field {
	case "insert.documents":
		return nil
	case "findandmodify.update":
		if isDocument {
			return nil
		}
	case "update.updates", "bulkwrite.ops":
		if isList {
			return r.checkWrites(list)
		}
	}
	if err := r.limits.checkPart(field, v); err != nil {
		return err
	}
	if isDocument || isList {
		return r.limits.checkExpressions(v)
	}
	return nil
}

// checkWrites does what checkField does for the writes of an update or a bulkWrite.
func (r *reader) checkWrites(list bson.Array) error {
	for write := range list.Documents() {
		for key, v := range write.All() {
			_, isDocument := v.Document()
			if isDocument && (key == "u" || key == "updateMods" || key == "document") {
				continue
			}
			if err := r.limits.checkExpressions(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// newDocument returns the value of a field that is a document.
func newDocument(raw bson.Raw) protoreflect.Value {
	return protoreflect.ValueOfMessage(payload.NewDocument(raw).ProtoReflect())
}
