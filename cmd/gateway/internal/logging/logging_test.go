package logging_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
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
		{"SRV records lost", func(s *event.Sink) {
			s.SeedlistProblem(event.SeedlistProblem{Host: "cluster.example.com", Err: errors.New("no such host")})
		}, "level=WARN msg=\"srv records cannot be followed\" host=cluster.example.com err=\"no such host\""},
		{"balancer", func(s *event.Sink) { s.SeveralProcesses(event.SeveralProcesses{Address: "b:27017"}) }, "level=WARN msg=\"several servers answer at one address; if it is a load balancer, set loadBalanced=true\" server=b:27017"},
		{"deserted", func(s *event.Sink) { s.NoServers(event.NoServers{Err: errors.New("another set")}) }, "level=ERROR msg=\"deployment has no servers\" err=\"another set\""},
		{"incompatible", func(s *event.Sink) {
			s.TopologyDescriptionChanged(event.TopologyDescriptionChanged{New: description.Topology{CompatibilityError: errors.New("too old")}})
		}, "level=ERROR msg=\"deployment cannot be used\" err=\"too old\""},
		{"a client's command", func(s *event.Sink) {
			s.CommandFailed(event.CommandFailed{Command: event.Command{Name: "find", RequestID: 7, Caller: "3f0d"}})
		}, "message_id=7 request_id=3f0d"},
		{"command", func(s *event.Sink) { s.CommandSucceeded(event.CommandSucceeded{Command: event.Command{Name: "find"}}) }, "level=DEBUG msg=\"command succeeded\" command=find"},
	} {
		var out bytes.Buffer
		row.tell(logging.Sink(logging.New(&out, config.Log{Level: slog.LevelDebug})))
		if row.want == "" && out.Len() > 0 || !strings.Contains(out.String(), row.want) {
			t.Errorf("%s: %q, want %q", row.name, &out, row.want)
		}
	}
}

// TestSpecified checks that the events with messages in the specifications are logged in their
// words, and only at Debug.
func TestSpecified(t *testing.T) {
	var out bytes.Buffer
	s := logging.Specified(logging.New(&out, config.Log{Level: slog.LevelDebug}))
	s.ServerHeartbeatFailed(event.ServerHeartbeatFailed{Heartbeat: event.Heartbeat{Address: "db:27017"}, Err: errors.New("connection refused")})
	for _, want := range []string{`level=DEBUG msg="Server heartbeat failed" component=topology`, "serverHost=db", "serverPort=27017", `failure="connection refused"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q, want %q in it", &out, want)
		}
	}
	if s := logging.Specified(logging.New(&out, config.Log{})); s != nil {
		t.Errorf("a sink, although its level is off")
	}
}

// TestQuietCostsNothing checks that the events of commands are not made if Debug is not logged.
func TestQuietCostsNothing(t *testing.T) {
	s := logging.Sink(logging.New(&bytes.Buffer{}, config.Log{}))
	if s.CommandStarted != nil || s.CommandSucceeded != nil || s.CommandFailed != nil {
		t.Error("Sink wants commands although Debug is off")
	}
}

// TestSetLevel changes the level of a logger and of those derived from it.
func TestSetLevel(t *testing.T) {
	for _, format := range []config.LogFormat{config.LogText, config.LogJSON} {
		var out bytes.Buffer
		log := logging.New(&out, config.Log{Format: format})
		for level, want := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
			out.Reset()
			logging.SetLevel(log, level)
			log.With("a", 1).Debug("derived")
			if got := strings.Contains(out.String(), "derived"); got != want {
				t.Errorf("%s at %s: %q", format, level, out.String())
			}
		}
	}
	logging.SetLevel(slog.New(slog.DiscardHandler), slog.LevelDebug) // has no effect
}
