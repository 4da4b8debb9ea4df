package logging

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/internal/spans"
)

// New returns a logger that writes to w. Its level can change (see SetLevel). Records that clients
// and servers can cause at any rate are limited (see limiter). A record with a span in its context
// has the trace's id. The caller closes the logger with Close.
func New(w io.Writer, cfg config.Log) *slog.Logger {
	level := new(slog.LevelVar)
	level.Set(cfg.Level)
	opt := &slog.HandlerOptions{Level: level, ReplaceAttr: spell}
	var next slog.Handler = slog.NewTextHandler(w, opt)
	if cfg.Format == config.LogJSON {
		next = slog.NewJSONHandler(w, opt)
	}
	return slog.New(&handler{
		next: next, level: level, limiter: &limiter{states: map[string]*repeat{}},
	})
}

// spell writes durations as text in both formats, such as 1.5s.
func spell(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// SetLevel changes the level of a logger that New has made, and of all that are derived from it. It
// has no effect on other loggers.
func SetLevel(log *slog.Logger, level slog.Level) {
	if h, ok := log.Handler().(*handler); ok {
		h.level.Set(level)
	}
}

// Level returns the level of a logger that New has made.
func Level(log *slog.Logger) slog.Level {
	if h, ok := log.Handler().(*handler); ok {
		return h.level.Level()
	}
	return slog.LevelInfo
}

// Unlimited returns a logger that drops no repeated record, for the lines of an audit.
func Unlimited(log *slog.Logger) *slog.Logger {
	h, ok := log.Handler().(*handler)
	if !ok {
		return log
	}
	return slog.New(&handler{next: h.next, level: h.level})
}

// Close writes the records of windows that have not ended, ends the limit of a logger that New has
// made, and waits for its goroutines. Later records are written at once. It has no effect on other
// loggers.
func Close(log *slog.Logger) {
	if h, ok := log.Handler().(*handler); ok && h.limiter != nil {
		h.limiter.close()
	}
}

// handler adds to a handler of slog what New says.
type handler struct {
	next    slog.Handler
	level   *slog.LevelVar
	limiter *limiter // nil: there is no limit
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if id := spans.TraceID(ctx); id != "" {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", id))
	}
	if h.limiter == nil || r.Level <= slog.LevelDebug || !slices.Contains(limited, r.Message) {
		return h.next.Handle(ctx, r)
	}
	return h.limiter.handle(ctx, h.next, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{next: h.next.WithAttrs(attrs), level: h.level, limiter: h.limiter}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), level: h.level, limiter: h.limiter}
}

const (
	// firstWindow is the time after a record in which records like it are only counted. Each window
	// with such records doubles the next one, up to maxWindow; one without ends the series.
	firstWindow = 10 * time.Second
	maxWindow   = 5 * time.Minute
	// maxKeys bounds the kinds of records that are remembered. If more occur at once, the others
	// of a message count as one kind.
	maxKeys = 1000
)

// limiter lets one record of each kind through in a window. Records are of one kind if they have
// the same message and agree in the attributes that say what they are about. When a window ends,
// the last record that was counted is written, with the number of all in the attribute repeated, by
// a timer that close stops or waits for.
type limiter struct {
	flushes sync.WaitGroup // one for each timer that has not done its work

	// mu guards the fields below. Nothing blocks while it is held.
	mu     sync.Mutex
	states map[string]*repeat
	closed bool // nothing is limited any more
}

// repeat holds what is known of one kind of records.
type repeat struct {
	window  time.Duration
	until   time.Time
	counted int
	last    slog.Record // of those that were counted
	timer   *time.Timer // writes last; set if counted is not 0
	flush   func()      // what timer does
}

// limited are the messages that clients and servers can cause at any rate.
var limited = []string{
	"request failed", "request refused", "request refused by the policy",
	"request refused: the client is not an operator", "request ended by the shutdown",
	"slow request", "server unavailable", "server changed", "connection pool cleared",
	"replica joined", "replica left", "panic", "audit lines lost",
	"open stream ended by the policy",
}

// subjects are the attributes that tell kinds of records apart, by their first maxSubject bytes.
var subjects = []string{
	"server", "replica", "host", "reason", "option", "problem", "was", "is", "method", "rule",
}

func kindOf(r *slog.Record) string {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if slices.Contains(subjects, a.Key) {
			b.WriteString("\x00" + a.Key + "=" + cut(a.Value.String(), maxSubject))
		}
		return true
	})
	return b.String()
}

func (l *limiter) handle(ctx context.Context, next slog.Handler, r slog.Record) error {
	if !l.admit(ctx, next, &r, time.Now()) {
		return nil
	}
	return next.Handle(ctx, r)
}

// admit reports whether a record is written now.
func (l *limiter) admit(
	ctx context.Context, next slog.Handler, r *slog.Record, now time.Time,
) bool {
	kind := kindOf(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return true
	}
	s := l.states[kind]
	if s == nil && !l.roomLocked() {
		kind = r.Message
		s = l.states[kind]
	}
	switch {
	case s == nil || s.counted == 0 && !now.Before(s.until):
		l.states[kind] = &repeat{window: firstWindow, until: now.Add(firstWindow)}
		return true
	case s.counted == 0:
		ctx = context.WithoutCancel(ctx)
		s.flush = func() {
			defer l.flushes.Done()
			_ = next.Handle(ctx, l.end(s)) // as slog does
		}
		l.flushes.Add(1)
		s.timer = time.AfterFunc(s.until.Sub(now), s.flush)
	}
	s.counted++
	s.last = kept(r)
	return false
}

const (
	maxSubject = 256
	// maxKept is how many bytes of the text of an attribute are kept of a record that is counted.
	maxKept = 1 << 10
)

// kept returns the record as it is kept until its window ends: with the texts of errors, which can
// have the replies of servers, and of long texts the beginning.
func kept(r *slog.Record) slog.Record {
	k := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindString, slog.KindAny:
			text := v.String()
			if v.Kind() == slog.KindString || isError(v) || len(text) > maxKept {
				a.Value = slog.StringValue(strings.Clone(cut(text, maxKept)))
			}
		default:
		}
		k.AddAttrs(a)
		return true
	})
	return k
}

func isError(v slog.Value) bool {
	_, ok := v.Any().(error)
	return ok
}

// cut returns a text, or its beginning of so many bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// roomLocked reports whether one more kind can be remembered. If there are too many, it forgets
// those without records that were counted, except those of all subjects of a message.
func (l *limiter) roomLocked() bool {
	if len(l.states) >= maxKeys {
		maps.DeleteFunc(l.states, func(kind string, s *repeat) bool {
			return s.counted == 0 && strings.Contains(kind, "\x00")
		})
	}
	return len(l.states) < maxKeys
}

// end ends a window with records that were counted, and returns the last one.
func (l *limiter) end(s *repeat) slog.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := s.last
	last.AddAttrs(slog.Int("repeated", s.counted))
	s.window = min(2*s.window, maxWindow)
	s.until, s.counted, s.last = time.Now().Add(s.window), 0, slog.Record{}
	return last
}

// close ends all windows, and waits until their records are written.
func (l *limiter) close() {
	l.mu.Lock()
	l.closed = true
	var stopped []*repeat
	for _, s := range l.states {
		if s.counted > 0 && s.timer.Stop() {
			stopped = append(stopped, s)
		}
	}
	l.mu.Unlock()
	for _, s := range stopped {
		s.flush()
	}
	l.flushes.Wait()
}
