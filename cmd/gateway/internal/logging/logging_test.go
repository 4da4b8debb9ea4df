package logging_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
)

func TestFormat(t *testing.T) {
	for format, want := range map[config.LogFormat]string{
		config.LogText: `level=INFO msg=hello who=you`,
		config.LogJSON: `"level":"INFO","msg":"hello","who":"you"}`,
	} {
		var out bytes.Buffer
		log := logging.New(&out, config.Log{Format: format})
		log.Info("hello", "who", "you")
		log.Debug("unheard")
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "unheard") {
			t.Errorf("%s: %q, want %q", format, &out, want)
		}
	}
}

func TestFacts(t *testing.T) {
	server := func(kind description.ServerKind, err error) *description.Server {
		return &description.Server{Kind: kind, LastError: err}
	}
	changed := func(previous, now *description.Server) event.ServerDescriptionChanged {
		return event.ServerDescriptionChanged{Address: "db:27017", Previous: previous, New: now}
	}
	topology := func(was, is description.Kind) event.TopologyDescriptionChanged {
		return event.TopologyDescriptionChanged{
			Previous: description.Topology{Kind: was}, New: description.Topology{Kind: is},
		}
	}
	down := server(description.ServerUnknown, errors.New("connection refused"))
	unknown, up := server(description.ServerUnknown, nil), server(description.ServerStandalone, nil)
	for _, row := range []struct {
		name string
		tell func(*event.Sink)
		want string // empty: no line
	}{
		{"server found", func(s *event.Sink) { s.ServerDescriptionChanged(changed(unknown, up)) }, "level=INFO msg=\"server changed\" server=db:27017 was=Unknown is=Standalone"},
		{"server lost", func(s *event.Sink) { s.ServerDescriptionChanged(changed(up, down)) }, "level=WARN msg=\"server unavailable\" server=db:27017 was=Standalone err=\"connection refused\""},
		{"server still lost", func(s *event.Sink) { s.ServerDescriptionChanged(changed(down, down)) }, ""},
		{"other news of a server", func(s *event.Sink) { s.ServerDescriptionChanged(changed(up, up)) }, ""},
		{"pool cleared", func(s *event.Sink) { s.PoolCleared(event.PoolCleared{Address: "db:27017", Err: down.LastError}) }, "level=INFO msg=\"connection pool cleared\""},
		{
			"SRV records lost", func(s *event.Sink) {
				s.SeedlistProblem(event.SeedlistProblem{
					Host: "cluster.example.com", Err: errors.New("no such host"),
				})
			},
			"level=WARN msg=\"srv records cannot be followed\" host=cluster.example.com err=\"no such host\"",
		},
		{"balancer", func(s *event.Sink) { s.SeveralProcesses(event.SeveralProcesses{Address: "b:27017"}) }, "level=WARN msg=\"several servers answer at one address; if it is a load balancer, set loadBalanced=true\" server=b:27017"},
		{"deserted", func(s *event.Sink) { s.NoServers(event.NoServers{Err: errors.New("another set")}) }, "level=ERROR msg=\"deployment has no servers\" err=\"another set\""},
		{"incompatible", func(s *event.Sink) {
			s.TopologyDescriptionChanged(event.TopologyDescriptionChanged{
				New: description.Topology{CompatibilityError: errors.New("too old")},
			})
		}, "level=ERROR msg=\"deployment cannot be used\" err=\"too old\""},
		{"another kind of topology", func(s *event.Sink) {
			s.TopologyDescriptionChanged(topology(description.KindReplicaSetWithPrimary,
				description.KindReplicaSetNoPrimary))
		}, "level=INFO msg=\"topology changed\" was=ReplicaSetWithPrimary is=ReplicaSetNoPrimary"},
		{"the same kind", func(s *event.Sink) {
			s.TopologyDescriptionChanged(topology(description.KindSingle, description.KindSingle))
		}, ""},
		{"the first kind", func(s *event.Sink) {
			s.TopologyDescriptionChanged(topology(description.KindUnknown, description.KindSingle))
		}, ""},
	} {
		var out bytes.Buffer
		row.tell(logging.Sink(logging.New(&out, config.Log{Level: slog.LevelDebug})))
		if row.want == "" && out.Len() > 0 || !strings.Contains(out.String(), row.want) {
			t.Errorf("%s: %q, want %q", row.name, &out, row.want)
		}
	}
}

// TestDriver checks that the components that are chosen are logged in the words of the
// specifications, at Debug only, and commands without their content.
func TestDriver(t *testing.T) {
	var out bytes.Buffer
	log := logging.New(&out, config.Log{Level: slog.LevelDebug})
	s := logging.Driver(log, []string{"topology", "command"})
	failed := event.ServerHeartbeatFailed{
		Heartbeat: event.Heartbeat{Address: "db:27017"}, Err: errors.New("connection refused"),
	}
	s.ServerHeartbeatFailed(failed)
	for _, want := range []string{
		`level=DEBUG msg="Server heartbeat failed" component=topology`, "serverHost=db", "serverPort=27017", `failure="connection refused"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q, want %q in it", &out, want)
		}
	}
	out.Reset()
	secret := bson.NewBuilder(nil).String("find", "secret").Finish()
	s.CommandStarted(event.CommandStarted{Command: event.Command{Name: "find"}, Body: secret})
	s.CommandSucceeded(event.CommandSucceeded{Command: event.Command{Name: "find"}, Reply: secret})
	if text := out.String(); !strings.Contains(text, `msg="Command succeeded"`) ||
		strings.Contains(text, "secret") {
		t.Errorf("%s", text)
	}
	out.Reset()
	s.CommandFailed(event.CommandFailed{
		Command: event.Command{Name: "find"},
		Err: &mongoerr.CommandError{
			Code: 2, Name: "BadValue", Message: "secret", Address: "db:27017",
		},
	})
	if text := out.String(); !strings.Contains(text,
		`failure="command failed on db:27017: error (BadValue, code 2)"`) {
		t.Errorf("%s", text)
	}
	if s := logging.Driver(log, []string{"topology"}); s.CommandFailed != nil {
		t.Error("commands are heard, though they were not chosen")
	}
	if s.ConnectionReady != nil {
		t.Error("a component that was not chosen is heard")
	}
	out.Reset()
	logging.SetLevel(log, slog.LevelInfo)
	s.ServerHeartbeatFailed(failed)
	if out.Len() > 0 {
		t.Errorf("although Debug is off: %s", &out)
	}
	if logging.Driver(log, nil) != nil {
		t.Error("there is a sink without components")
	}
}

func TestLevel(t *testing.T) {
	var out bytes.Buffer
	log := logging.New(&out, config.Log{})
	derived := log.With("a", 1).WithGroup("g")
	derived.Debug("early")
	logging.SetLevel(log, slog.LevelDebug)
	derived.Debug("late", "b", 2)
	if text := out.String(); strings.Contains(text, "early") ||
		!strings.Contains(text, "msg=late a=1 g.b=2") {
		t.Errorf("%s", text)
	}
	if logging.Level(log) != slog.LevelDebug {
		t.Errorf("Level() = %s", logging.Level(log))
	}
	other := slog.New(slog.DiscardHandler)
	logging.SetLevel(other, slog.LevelDebug) // has no effect
	if logging.Level(other) != slog.LevelInfo || logging.Unlimited(other) != other {
		t.Error("another logger is changed")
	}
}

func TestDurationsAndTraces(t *testing.T) {
	var out bytes.Buffer
	log := logging.New(&out, config.Log{Format: config.LogJSON})
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	}))
	log.InfoContext(ctx, "hello", "duration", 1500*time.Millisecond)
	for _, want := range []string{
		`"duration":"1.5s"`, `"trace_id":"01000000000000000000000000000000"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s, want %s", &out, want)
		}
	}
}

// TestRepeats checks that a server whose errors alternate does not flood the log, that the number
// of what was dropped is written, and that quiet ends the series.
func TestRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var mu sync.Mutex
		log := logging.New(writer(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return out.Write(b)
		}), config.Log{Level: slog.LevelDebug})
		lines := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			defer out.Reset()
			return strings.Split(strings.TrimSpace(out.String()), "\n")
		}
		for i := range 68 { // 34 s
			log.Warn("server unavailable", "server", "a:27017", "err",
				[]string{"refused", "timeout"}[i%2])
			time.Sleep(500 * time.Millisecond) //nolint:forbidigo // fake time
		}
		log.Warn("server unavailable", "server", "b:27017")
		log.Debug("request")
		log.Debug("request")
		got := lines()
		if len(got) != 6 || !strings.Contains(got[1], "server=a:27017") ||
			!strings.Contains(got[1], "repeated=") || !strings.Contains(got[2], "repeated=") {
			t.Errorf("%d lines: %q", len(got), got)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "repeated=") {
			t.Errorf("the rest: %q", got)
		}
		log.Warn("server unavailable", "server", "a:27017")
		if got := lines(); len(got) != 1 || strings.Contains(got[0], "repeated") {
			t.Errorf("after quiet: %q", got)
		}
		for range 3 {
			logging.Unlimited(log).Info("server changed")
		}
		if got := lines(); len(got) != 3 {
			t.Errorf("unlimited: %q", got)
		}
		for i := range 5000 {
			log.Warn("server changed", "server", strconv.Itoa(i))
		}
		if got := lines(); len(got) != 5000 {
			t.Errorf("%d lines of different servers", len(got))
		}
		for range 3 {
			log.Info("started")
			log.Debug("request refused", "reason", "TooLarge")
		}
		if got := lines(); len(got) != 6 {
			t.Errorf("what is not limited: %q", got)
		}
		for _, reason := range []string{"TooLarge", "BodyTimeout", "TooLarge"} {
			log.Info("request refused", "method", "GET", "reason", reason)
		}
		if got := lines(); len(got) != 2 {
			t.Errorf("refusals of two kinds: %q", got)
		}
		for _, rule := range []string{"no rule", "tenants", "no rule"} {
			log.Warn("request refused by the policy", "method", "Find", "rule", rule)
		}
		if got := lines(); len(got) != 2 {
			t.Errorf("refusals by two rules: %q", got)
		}
		for _, rule := range []string{"no rule", "tenants", "no rule"} {
			log.Warn("open stream ended by the policy", "method", "Watch", "rule", rule)
		}
		if got := lines(); len(got) != 2 {
			t.Errorf("streams ended by two rules: %q", got)
		}
		for _, method := range []string{"GetTopology", "KillHandle", "GetTopology"} {
			log.Warn("request refused: the client is not an operator", "method", method)
		}
		if got := lines(); len(got) != 2 {
			t.Errorf("refusals of two methods: %q", got)
		}
	})
}

// TestClose closes a logger with records that wait for the end of a window: they are written then,
// and no goroutine or timer is left.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		// close has one goroutine write, and no other is left
		log := logging.New(writer(func(b []byte) (int, error) {
			lines = append(lines, string(b))
			return len(b), nil
		}), config.Log{})
		for range 3 {
			log.Warn("request failed", "reason", "a")
			log.With("x", 1).Warn("request failed", "reason", "b")
		}
		log.Warn("request failed", "reason", "c")
		if len(lines) != 3 {
			t.Fatalf("%q", lines)
		}
		logging.Close(log)
		rest := strings.Join(lines[3:], "")
		if len(lines) != 5 || !strings.Contains(rest, "reason=a repeated=2") ||
			!strings.Contains(rest, "reason=b repeated=2") {
			t.Errorf("after Close: %q", lines)
		}
		lines = nil
		logging.Close(log) // once more has no effect
		for range 3 {
			log.Warn("request failed", "reason", "a")
		}
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		if len(lines) != 3 {
			t.Errorf("a closed logger limits its records: %q", lines)
		}
		logging.Close(slog.New(slog.DiscardHandler))
		logging.Close(logging.Unlimited(log))
	})
}

// TestCloseWaits closes a logger while a timer writes.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := 0
		log := logging.New(writer(func(b []byte) (int, error) {
			if written++; written == 2 {
				time.Sleep(time.Minute) //nolint:forbidigo // fake time
				written++
			}
			return len(b), nil
		}), config.Log{})
		log.Warn("request failed")
		log.Warn("request failed")
		time.Sleep(11 * time.Second) //nolint:forbidigo // fake time; the timer writes
		logging.Close(log)
		if written != 3 {
			t.Errorf("Close does not wait: %d", written)
		}
	})
}

// TestManyKinds writes more kinds of records than are remembered, twice each: those that wait for
// the end of a window are not forgotten, and the others count as one.
func TestManyKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := logging.New(&out, config.Log{})
		for i := range 1500 {
			log.Warn("request failed", "reason", strconv.Itoa(i))
			log.Warn("request failed", "reason", strconv.Itoa(i))
		}
		if n := strings.Count(out.String(), "\n"); n != 1001 {
			t.Errorf("%d lines, want 1000 of the kinds that are remembered, and one", n)
		}
		logging.Close(log)
		if n := strings.Count(out.String(), "repeated=1\n"); n != 1000 {
			t.Errorf("%d lines of records that were counted, want 1000", n)
		}
		if !strings.Contains(out.String(), "reason=1499 repeated=999\n") {
			t.Error("the other kinds were not counted")
		}
	})
}

// large is an error that keeps a reply.
type large struct{ reply []byte }

func (e *large) Error() string { return "command failed: " + string(e.reply) }

// TestRepeatsAreBounded writes as many kinds of records as are remembered, twice each, with long
// texts and with errors that keep replies of servers: little of it is kept until the windows end.
func TestRepeatsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logging.New(io.Discard, config.Log{})
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		const size = 64 << 10
		for i := range 1500 {
			for range 2 {
				log.Warn("request failed", "host", strconv.Itoa(i)+strings.Repeat("h", size),
					"err", &large{bytes.Repeat([]byte("e"), size)})
			}
		}
		if kept := int64(heap() - before); kept > 8<<20 {
			t.Errorf("%d KiB are kept of 1,000 kinds of records, want at most 8 each", kept>>10)
		}
		logging.Close(log)
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
