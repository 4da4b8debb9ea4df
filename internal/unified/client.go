package unified

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventlog"
)

// observed holds a client and its recorded events.
type observed struct {
	*client.Client

	kinds []string // of events that are kept (observeEvents)
	// stored are the kinds of events that entities get (storeEventsAsEntities), by the entity.
	stored    map[string][]string
	ignored   []string // commands whose events are not kept
	sensitive bool     // events of sensitive commands are kept
	levels    map[eventlog.Component]eventlog.Level

	traces   bool // spans are made (observeTracingMessages)
	payload  bool // with the commands in them
	exporter exporter

	minPoolSize uint64

	// mu guards the fields below.
	mu         sync.Mutex
	changed    chan struct{} // closed, and replaced, at each event
	events     []seen
	messages   []bson.Raw
	lists      map[string][]bson.Raw // of stored
	checkedOut int                   // connections
}

// seen holds an event: its name in the format, and its fields there.
type seen struct {
	kind   string
	fields bson.Raw
}

func (r *run) newClient(ctx context.Context, a *arguments) (any, error) {
	several := a.bool("useMultipleMongoses")
	options := a.document("uriOptions")
	api := a.serverAPI()
	c := &observed{changed: make(chan struct{}), levels: map[eventlog.Component]eventlog.Level{}}
	c.exporter = newExporter()
	c.stored, c.lists = map[string][]string{}, map[string][]bson.Raw{}
	c.kinds, c.ignored = texts(a.doc, "observeEvents"),
		texts(a.doc, "ignoreCommandMonitoringEvents")
	a.value("observeEvents")
	a.value("ignoreCommandMonitoringEvents")
	for _, entity := range a.documents("storeEventsAsEntities") {
		c.stored[text(entity, "id")] = texts(entity, "events")
	}
	sensitive := a.bool("observeSensitiveCommands")
	c.sensitive = sensitive != nil && *sensitive
	for component, v := range a.document("observeLogMessages").All() {
		level, _ := v.Str()
		c.levels[eventlog.Component(component)] = levels[level]
	}
	tracing := &arguments{doc: a.document("observeTracingMessages")}
	c.traces = tracing.doc != nil
	payload := tracing.bool("enableCommandPayload")
	c.payload = payload != nil && *payload
	a.adopt(tracing)
	limit := a.int64("awaitMinPoolSizeMS")
	if err := a.done(); err != nil {
		return nil, err
	}
	for id := range c.stored {
		if err := r.entities.add(id, storedEvents{c, id}); err != nil {
			return nil, err
		}
	}
	for _, kind := range c.kinds {
		if !slices.Contains(allKinds, kind) {
			return nil, fmt.Errorf("there are no events %q", kind)
		}
	}
	if err := r.connect(ctx, c, several != nil && *several, options, api); err != nil ||
		limit == nil {
		return c, err
	}
	err := c.awaitMinPoolSize(ctx, time.Duration(*limit)*time.Millisecond)
	if err != nil {
		err = errors.Join(err, c.Close(ctx))
	}
	return c, err
}

// awaitMinPoolSize blocks until every pool has its minPoolSize connections, and then drops what was
// observed until then.
func (c *observed) awaitMinPoolSize(ctx context.Context, limit time.Duration) error {
	if c.minPoolSize == 0 {
		return nil
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !c.isFilled() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited %v for pools with %d connections", limit, c.minPoolSize)
		}
	}
	settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events, c.messages = nil, nil
	c.exporter.memory.Reset()
	return nil
}

// isFilled reports whether all servers are known and every data-bearing one has a pool with
// minPoolSize connections.
func (c *observed) isFilled() bool {
	bearing := 0
	for _, s := range c.Topology().Servers {
		if !s.IsAvailable() {
			return false
		}
		if s.Kind.IsDataBearing() {
			bearing++
		}
	}
	for _, p := range c.Pools() {
		if uint64(p.Available+p.InUse) >= c.minPoolSize {
			bearing--
		}
	}
	return bearing == 0
}

// levels are the levels of log messages that the driver has; the format has more, which stand for
// the nearest.
var levels = map[string]eventlog.Level{
	"emergency": eventlog.Info, "alert": eventlog.Info, "critical": eventlog.Info,
	"error": eventlog.Info, "warning": eventlog.Info,
	"notice": eventlog.Info, "info": eventlog.Info, "debug": eventlog.Debug,
	"trace": eventlog.Debug,
}

func (r *run) connect(
	ctx context.Context, c *observed, several bool, uriOptions bson.Raw, api *client.ServerAPI,
) error {
	options, err := optionTexts(uriOptions)
	if err != nil {
		return err
	}
	cfg, err := connstring.ParseWith(r.deployment.URI(several, options), options)
	if err != nil {
		return err
	}
	if len(cfg.Warnings) > 0 {
		return fmt.Errorf("uriOptions: %v", cfg.Warnings[0])
	}
	if cfg.MinPoolSize != nil {
		c.minPoolSize = *cfg.MinPoolSize
	}
	sink := c.sink()
	if len(c.levels) > 0 {
		sink = event.Join(nil, sink, eventlog.Sink(eventlog.Config{
			Write:             c.write,
			MaxDocumentLength: -1,
		}))
	}
	if c.traces {
		sink = event.Join(nil, sink, c.spanSink())
	}
	if c.Client, err = client.New(cfg, client.Options{
		Sink: sink, Dialer: r.deployment.Dial,
		ServerAPI: api,
	}); err != nil {
		return err
	}
	return c.Start(ctx)
}

func (c *observed) changeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// seconds returns the time as the format has it in stored events and errors.
func seconds() float64 { return float64(time.Now().UnixMilli()) / 1000 }

// record keeps an event, if the test observes or stores its kind.
func (c *observed) record(kind string, fields *bson.Builder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doc := fields.Finish()
	name := strings.ToUpper(kind[:1]) + kind[1:] // events have other names where they are stored
	for id, kinds := range c.stored {
		if slices.Contains(kinds, name) {
			stored := bson.NewBuilder(nil).String("name", name).Double("observedAt", seconds())
			c.lists[id] = append(c.lists[id], stored.AppendElements(doc).Finish())
		}
	}
	if !slices.Contains(c.kinds, kind) {
		return
	}
	c.events = append(c.events, seen{kind, doc})
	c.changeLocked()
}

// storedEvents represents an entity: the events that a client has stored as a list.
type storedEvents struct {
	client *observed
	id     string
}

func (s storedEvents) value() bson.Value {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return list(s.client.lists[s.id]).value
}

func (c *observed) write(m eventlog.Message) {
	level, wanted := c.levels[m.Component]
	if !wanted || m.Level < level {
		return
	}
	b := bson.NewBuilder(nil).String("component", string(m.Component)).String("level",
		m.Level.String())
	b.OpenDocument("data").String("message", m.Message)
	for _, f := range m.Fields {
		switch v := f.Value.(type) {
		case string:
			b.String(f.Key, v)
		case int64:
			b.Int64(f.Key, v)
		case bool:
			b.Bool(f.Key, v)
		default:
			b.String(f.Key, fmt.Sprintf("bug: a field of the type %T", v))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages = append(c.messages, b.Close().Finish())
}

// sensitiveCommands are those whose events tests do not want unless they say so.
var sensitiveCommands = []string{
	"authenticate", "saslstart", "saslcontinue", "getnonce", "createuser", "updateuser",
	"copydbgetnonce", "copydbsaslstart", "copydb",
}

// wants tells whether the events of a command are kept. Of a hello with speculative authentication
// the driver shows nothing: it is hidden.
func (c *observed) wants(cmd event.Command, hidden bool) bool {
	name := strings.ToLower(cmd.Name)
	sensitive := slices.Contains(sensitiveCommands, name) ||
		slices.Contains([]string{"hello", "ismaster"}, name) && hidden
	return cmd.Name != "configureFailPoint" && !slices.Contains(c.ignored, cmd.Name) &&
		(c.sensitive || !sensitive)
}

func (c *observed) checkOuts(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkedOut += n
	c.changeLocked()
}
