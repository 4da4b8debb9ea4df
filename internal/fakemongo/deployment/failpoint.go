package deployment

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// failPoints holds the fail points of one server, by name. Like those of a real server, they match
// commands by the name that was sent.
type failPoints struct {
	mu     sync.Mutex
	points map[string]*failPoint
	random *rand.Rand // for activationProbability; the same numbers in each test
}

func newFailPoints() failPoints {
	return failPoints{points: map[string]*failPoint{}, random: rand.New(rand.NewPCG(1, 2))}
}

// failPoint holds the settings of a configureFailPoint. The zero value is off.
type failPoint struct {
	times  int64 // how often it will still fail; less than 0: for ever
	skip   int64 // how many commands it will still let pass
	chance float64
	names  []string
	all    bool         // of all commands, in place of names
	space  string       // "database.collection" that the command is about; empty: any
	extra  bson.Raw     // more fields of the error; nil: none
	app    string       // of clients that it is about; empty: all
	code   failure.Code // 0: none
	labels *[]string
	close  *bool
	blocks bool
	block  time.Duration // where it blocks
	wce    bson.Raw      // writeConcernError
	// before, of onPrimaryTransactionalWrite, says that it fails before it writes.
	before bool
}

// The names of the fail points.
const (
	failCommand         = "failCommand"
	failGetMore         = "failGetMoreAfterCursorCheckout"
	failRetryableWrites = "onPrimaryTransactionalWrite"
)

// SetFailPoint runs a configureFailPoint on the server at an address, or, behind a load balancer,
// on the one with that serviceId.
func (d *Deployment) SetFailPoint(
	at address.Address, service bson.ObjectID, command bson.Raw,
) error {
	for _, h := range d.hosts {
		if h.Address() == at || !service.IsZero() && h.Process() == service {
			return h.failPoints.configure(command)
		}
	}
	return fmt.Errorf("there is no server %s", at)
}

// isAbout reports whether a fail point of that name is about a command.
func (p *failPoint) isAbout(name string, cmd *fakemongo.Command, appName string) bool {
	switch {
	case p.app != "" && p.app != appName, p.space != "" && p.space != namespaceOf(cmd):
		return false
	case name == failGetMore:
		return cmd.Name == "getMore"
	case name == failRetryableWrites: // which its statements ask for
		return true
	}
	return p.all || slices.Contains(p.names, commandName(cmd.Name))
}

// namespaceOf returns "database.collection" of a command, with the collection $cmd if it has none.
func namespaceOf(cmd *fakemongo.Command) string {
	name, ok := field(cmd.Body, cmd.Name).Str()
	switch cmd.Name {
	case "getMore":
		name, ok = field(cmd.Body, "collection").Str()
	case "renameCollection":
		return name
	}
	if !ok {
		name = "$cmd"
	}
	return cmd.Database + "." + name
}

// answer returns the answer to cmd of the fail point that matches it, or next's if none does.
func (f *failPoints) answer(
	h *host, cmd *fakemongo.Command, next fakemongo.Handler,
) fakemongo.Reply {
	if cmd.Name == "configureFailPoint" {
		if err := f.configure(cmd.Body); err != nil {
			return fakemongo.Document(failure.Reply(err, false))
		}
		return fakemongo.OK(nil)
	}
	appName := h.appName(cmd)
	if p, matches := f.take(failCommand, cmd, appName); matches {
		return p.answer(h, cmd, next)
	}
	if p, matches := f.take(failGetMore, cmd, appName); matches {
		if p.labels == nil && h.resumes(cmd, p.code) {
			p.labels = &[]string{"ResumableChangeStreamError"}
		}
		return p.answer(h, cmd, next)
	}
	return next(cmd)
}

func (p *failPoint) answer(
	h *host, cmd *fakemongo.Command, next fakemongo.Handler,
) fakemongo.Reply {
	switch {
	case p.close != nil && *p.close:
		return fakemongo.Drop().After(p.block)
	case p.code != 0:
		return fakemongo.Document(p.errorReply(h, cmd)).After(p.block)
	case p.wce != nil:
		return fakemongo.Document(p.writeConcernReply(h, cmd)).After(p.block)
	}
	return next(cmd).After(p.block)
}

// fatal ends a retryable write at a statement, before or after that is run: with an error, or, if
// there is none or the fail point says so, with the connection.
func (p *failPoint) fatal(r *request) error {
	closes := p.close == nil || *p.close
	switch {
	case closes:
		return &fatal{}
	case p.before:
		return &fatal{reply: p.errorReply(r.host, r.Command)}
	}
	return nil
}

// take returns the fail point of that name, if it matches a command, and counts one use of it.
func (f *failPoints) take(
	name string, cmd *fakemongo.Command, appName string,
) (taken *failPoint, matches bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, set := f.points[name]
	if !set || p.times == 0 || !p.isAbout(name, cmd, appName) {
		return nil, false
	}
	if p.skip > 0 {
		p.skip--
		return nil, false
	}
	if f.random.Float64() >= p.chance {
		return nil, false
	}
	if p.times > 0 {
		p.times--
	}
	taken = new(*p)
	if !taken.blocks {
		taken.block = 0
	}
	return taken, true
}

// commandName returns a command's name. One command has two spellings.
func commandName(sent string) string {
	if sent == "ismaster" {
		return "isMaster"
	}
	return sent
}

func (f *failPoints) configure(cmd bson.Raw) error {
	value, _ := cmd.Lookup("configureFailPoint")
	name, _ := value.Str()
	if !slices.Contains([]string{failCommand, failGetMore, failRetryableWrites}, name) {
		return failure.BadValue.Errorf("there is no fail point %q", name)
	}
	p := &failPoint{chance: 1}
	mode, _ := cmd.Lookup("mode")
	if err := p.setMode(mode); err != nil {
		return err
	}
	value, _ = cmd.Lookup("data")
	data, _ := value.Document()
	for key, v := range data.All() {
		if err := p.set(key, v); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.points[name] = p
	return nil
}

func (p *failPoint) setMode(mode bson.Value) error {
	if name, ok := mode.Str(); ok {
		switch name {
		case "alwaysOn":
			p.times = -1
		case "off":
		default:
			return failure.BadValue.Errorf("there is no fail point mode %q", name)
		}
		return nil
	}
	doc, _ := mode.Document()
	for key, v := range doc.All() {
		n, ok := v.AsInt64()
		chance, isNumber := v.AsDouble()
		switch {
		case key == "activationProbability" && isNumber && chance >= 0 && chance <= 1:
			p.times, p.chance = -1, chance
		case key == "activationProbability":
			return failure.BadValue.Errorf("activationProbability must be between 0.0 and 1.0")
		case !ok || n < 0:
			return failure.BadValue.Errorf("fail point mode %s is not a number", key)
		case key == "times":
			p.times = n
		case key == "skip":
			p.times, p.skip = -1, n
		default:
			return failure.BadValue.Errorf("there is no fail point mode %q", key)
		}
	}
	return nil
}

func (p *failPoint) set(key string, v bson.Value) error {
	ok := true
	switch key {
	case "failCommands":
		p.names, ok = texts(v)
		for i, name := range p.names {
			p.names[i] = commandName(name)
		}
	case "failAllCommands":
		p.all, ok = v.Bool()
	case "failInternalCommands", "failLocalClients":
		_, ok = v.Bool() // there are no clients but those of tests
	case "namespace":
		p.space, ok = v.Str()
	case "errorExtraInfo":
		p.extra, ok = v.Document()
	case "appName":
		p.app, ok = v.Str()
	case "errorCode":
		var n int64
		n, ok = v.AsInt64()
		p.code = failure.Code(n)
	case "failBeforeCommitExceptionCode":
		var n int64
		n, ok = v.AsInt64()
		p.code, p.before = failure.Code(n), true
	case "errorLabels":
		var labels []string
		labels, ok = texts(v)
		p.labels = &labels
	case "closeConnection":
		var closes bool
		closes, ok = v.Bool()
		p.close = &closes
	case "blockConnection":
		p.blocks, ok = v.Bool()
	case "blockTimeMS":
		var n int64
		n, ok = v.AsInt64()
		p.block = time.Duration(n) * time.Millisecond
	case "writeConcernError":
		p.wce, ok = v.Document()
	default:
		return failure.UnknownField.Errorf("BSON field 'data.%s' is an unknown field", key)
	}
	if !ok {
		return failure.TypeMismatch.Errorf("data.%s has the wrong type", key)
	}
	return nil
}

func texts(v bson.Value) ([]string, bool) {
	array, ok := v.Array()
	all := []string{}
	for _, v := range array.All() {
		s, isText := v.Str()
		ok = ok && isText
		all = append(all, s)
	}
	return all, ok
}

// retryable are the errors that a server gives the label RetryableWriteError to where the client
// would retry.
var retryable = []failure.Code{6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436}

func (p *failPoint) errorReply(h *host, cmd *fakemongo.Command) bson.Raw {
	b := new(bson.Builder)
	b.Double("ok", 0).Int32("code", int32(p.code)).String("codeName", p.code.String())
	b.String("errmsg", "Failing command via 'failCommand' failpoint")
	if p.extra != nil {
		b.AppendElements(p.extra)
	}
	return p.labeled(h, cmd, b.Finish(), p.code)
}

// labeled adds error labels to a reply: those of the fail point, or else those of servers.
func (p *failPoint) labeled(
	h *host, cmd *fakemongo.Command, reply bson.Raw, code failure.Code,
) bson.Raw {
	if p.labels != nil {
		return withLabels(reply, *p.labels)
	}
	return withLabels(reply, h.labels(cmd, code, p.wce != nil))
}

// writeConcernReply does the command, and says that it was not acknowledged as asked.
func (p *failPoint) writeConcernReply(h *host, cmd *fakemongo.Command) bson.Raw {
	done := bson.NewBuilder(nil).Double("ok", 1).Finish()
	_, passes := onEngine[cmd.Name]
	if h.deployment.engine != nil && passes {
		done = h.run(cmd, (*host).onEngine).doc
	} else if command, ok := commands[cmd.Name]; ok {
		done = h.run(cmd, command).doc
	}
	if integer(done, "ok") != 1 {
		return done
	}
	done = bson.With(done, "writeConcernError", bson.DocumentValue(p.wce))
	return p.labeled(h, cmd, done, failure.Code(integer(p.wce, "code")))
}
