package audit

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// Config configures a Log.
type Config struct {
	// Handler writes the lines. Only one goroutine calls it, and it may block and fail.
	Handler slog.Handler
	// Logger says when lines are lost; nil: nothing does.
	Logger *slog.Logger
	// Meter counts the lines that are lost; nil: nothing does.
	Meter Meter
}

// Meter counts lines. Its methods must not block.
type Meter interface {
	// AuditLost counts lines that the log has not: because of Full or Failed.
	AuditLost(because string, lines int)
	// AuditSummarized counts refusals that have no line of their own.
	AuditSummarized(refusals int)
}

// The reasons for which lines are lost.
const (
	Full   = "full"   // the queue had no room
	Failed = "failed" // the line could not be written
)

// Log writes entries. A nil Log writes nothing. It is safe for concurrent use. Close ends its
// goroutine.
type Log struct {
	queue queue

	// mu guards the fields below. Nothing blocks while it is held.
	mu    sync.Mutex
	tally tally
	timer *time.Timer // ends the interval of the tally; nil: none has begun
}

// New returns a log. Its goroutine runs until Close.
func New(cfg Config) *Log {
	l := &Log{}
	l.queue.init(cfg)
	go l.queue.run()
	return l
}

// Flush blocks until all lines that are in the queue are written, or until ctx ends.
func (l *Log) Flush(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return l.queue.flush(ctx)
}

// Close writes the summary of what was counted and all that is in the queue, and ends the log's
// goroutine. It blocks until that has ended, or until ctx ends. Later entries are lost.
func (l *Log) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.summarize()
	return l.queue.close(ctx)
}

// admit reports whether a refusal has a line of its own. If it has none, it is counted.
func (l *Log) admit(e *Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	admitted, begins := l.tally.admit(sourceOf(e), e.Reason)
	if begins {
		l.timer = time.AfterFunc(tallyInterval, l.summarize)
	}
	return admitted
}

// summarize ends the interval, and puts the line about it.
func (l *Log) summarize() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		return
	}
	l.timer.Stop()
	l.timer = nil
	if s := l.tally.end(); s != nil {
		if m := l.queue.meter; m != nil {
			m.AuditSummarized(s.counted)
		}
		l.queue.put(&line{at: time.Now(), summary: s})
	}
}

// line holds one line of the log.
type line struct {
	at                                      time.Time
	principal, action, namespace            string
	namespaces, outcome, requestID, traceID string
	client                                  netip.Addr
	part, parts                             int
	summary                                 *summary // nil: the line is about a call
}

// size returns about how much memory a line takes.
func (l *line) size() int {
	const fixed = 256
	n := fixed + len(l.principal) + len(l.action) + len(l.namespace) + len(l.namespaces) +
		len(l.outcome) + len(l.requestID) + len(l.traceID)
	if l.summary != nil {
		n += maxSummary
	}
	return n
}

// record returns the record of a line, with the client's address as text.
func (l *line) record(client string) slog.Record {
	if l.summary != nil {
		return l.summary.record(l.at)
	}
	r := slog.NewRecord(l.at, slog.LevelInfo, "audit", 0)
	r.AddAttrs(
		slog.String("principal", l.principal),
		slog.String("action", l.action),
		slog.String("namespace", l.namespace),
		slog.String("outcome", l.outcome),
		slog.String("request_id", l.requestID),
	)
	if l.client.IsValid() {
		r.AddAttrs(slog.String("client", client))
	}
	if l.namespaces != "" {
		r.AddAttrs(slog.Any("namespaces", json.RawMessage(l.namespaces)))
	}
	if l.parts > 1 {
		r.AddAttrs(slog.Int("part", l.part), slog.Int("parts", l.parts))
	}
	if l.traceID != "" {
		r.AddAttrs(slog.String("trace_id", l.traceID))
	}
	return r
}

// The bounds of the queue.
const (
	maxLines = 16 << 10
	maxBytes = 4 << 20
)

// queue holds the lines that wait to be written. Any goroutine puts lines; the goroutine of
// run writes them, in order.
type queue struct {
	handler slog.Handler
	logger  *slog.Logger
	meter   Meter
	wake    chan struct{} // has an element when there may be something to write
	ended   chan struct{} // closed when run has ended
	// client is the last line's, and text its address: mostly the next line has the same. They are
	// run's.
	client netip.Addr
	text   string

	// mu guards the fields below. Nothing blocks while it is held.
	mu     sync.Mutex
	lines  []line
	held   int  // lines that are not written, with those that run has taken
	bytes  int  // of those
	lost   int  // since the last line that says so
	fails  bool // the last line could not be written
	closed bool
	// room is closed, and made anew, when lines were written; nil: no call waits for that.
	room chan struct{}
}

func (q *queue) init(cfg Config) {
	q.handler, q.logger, q.meter = cfg.Handler, cfg.Logger, cfg.Meter
	q.wake, q.ended = make(chan struct{}, 1), make(chan struct{})
}

// put adds a line. If there is no room, it counts the line as lost.
func (q *queue) put(l *line) {
	q.mu.Lock()
	ok, _ := q.addLocked(l)
	if !ok {
		q.lost++
	}
	q.mu.Unlock()
	if !ok {
		q.loses(Full)
	}
	q.notify()
}

// putInTime adds a line once there is room, or counts it as lost when ctx ends.
func (q *queue) putInTime(ctx context.Context, l *line) {
	for {
		q.mu.Lock()
		ok, room := q.addLocked(l)
		q.mu.Unlock()
		if ok {
			q.notify()
			return
		}
		select {
		case <-room:
		case <-ctx.Done():
			q.put(l)
			return
		case <-q.ended:
			q.put(l)
			return
		}
	}
}

// addLocked adds a line if there is room. If there is none, room is closed when there may be.
func (q *queue) addLocked(l *line) (ok bool, room <-chan struct{}) {
	size := l.size()
	if q.closed || q.held >= maxLines || q.bytes+size > maxBytes {
		if q.room == nil {
			q.room = make(chan struct{})
		}
		return false, q.room
	}
	q.lines = append(q.lines, *l)
	q.held++
	q.bytes += size
	return true, nil
}

func (q *queue) notify() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) loses(because string) {
	if q.meter != nil {
		q.meter.AuditLost(because, 1)
	}
}

// maxSpare is the room for lines that stays allocated.
const maxSpare = 1 << 10

// run writes the lines until the queue is closed and empty.
func (q *queue) run() {
	defer close(q.ended)
	var taken []line
	for {
		taken = q.take(taken[:0])
		for i := range taken {
			q.write(&taken[i])
			taken[i] = line{}
		}
		if cap(taken) > maxSpare {
			taken = nil
		}
		if lost := q.takeLost(); lost > 0 {
			q.say(lost)
		}
		if q.isDone() {
			return
		}
		<-q.wake
	}
}

// take returns all lines of the queue, whose place empty takes.
func (q *queue) take(empty []line) []line {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.lines
	q.lines = empty
	return taken
}

// takeLost returns how many lines were lost, once a line could be written.
func (q *queue) takeLost() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fails {
		return 0
	}
	lost := q.lost
	q.lost = 0
	return lost
}

func (q *queue) isDone() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed && len(q.lines) == 0
}

// write writes a line, and frees its room.
func (q *queue) write(l *line) {
	size := l.size()
	if l.client != q.client {
		q.client, q.text = l.client, l.client.String()
	}
	ok := q.handle(l.record(q.text))
	if !ok {
		q.loses(Failed)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fails = !ok; q.fails {
		q.lost++
	}
	q.held--
	q.bytes -= size
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// handle has the handler write a record. A panic of the handler ends neither the process nor the
// log.
func (q *queue) handle(r slog.Record) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			ok = false
			if q.logger != nil {
				q.logger.Error("panic", "method", "audit", "panic", p)
			}
		}
	}()
	ctx := context.Background()
	return !q.handler.Enabled(ctx, r.Level) || q.handler.Handle(ctx, r) == nil
}

// say writes how many lines were lost: to the log itself, where they are missing, and to the
// gateway's.
func (q *queue) say(lost int) {
	r := slog.NewRecord(time.Now(), slog.LevelInfo, "audit lines lost", 0)
	r.AddAttrs(slog.Int("lines", lost))
	q.handle(r)
	if q.logger != nil {
		q.logger.Error("audit lines lost", "lines", lost)
	}
}

// flush blocks until the queue is empty.
func (q *queue) flush(ctx context.Context) error {
	for {
		q.mu.Lock()
		held := q.held
		if held > 0 && q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		if held == 0 {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (q *queue) close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.notify()
	select {
	case <-q.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
