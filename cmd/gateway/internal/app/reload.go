package app

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/keyfile"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/tracing"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/server"
)

// reloading provides what reads the configuration file again.
var reloading = fx.Module("reloading", fx.Provide(newConfigFile))

// configFile keeps the gateway up to date with its configuration file.
type configFile struct {
	*keyfile.Watcher
	parts   liveParts
	current *config.Config // belongs to the watching goroutine
}

// liveParts holds the parts whose options can change while the gateway runs.
type liveParts struct {
	fx.In

	Log       *slog.Logger
	Admission *admission.Admission
	Chain     *interceptor.Chain
	Front     *front.Handler
	Server    *server.Server
	Callers   *caller.Authenticator
	Keys      *handleKeys
	Exact     *idempotency.Keys
	Traces    *tracing.Tracing
	Comments  *comments
}

func newConfigFile(lc fx.Lifecycle, cfg *config.Config, parts liveParts) *configFile {
	f := &configFile{parts: parts, current: cfg}
	var paths []string
	if cfg.File != "" {
		paths = []string{cfg.File}
	}
	f.Watcher = keyfile.New(keyfile.Config{
		Source: "configuration", Paths: paths, Sum: cfg.FileSum, Log: parts.Log,
		Messages: keyfile.Messages{
			Read: "configuration read", Count: "changed",
			Failed:  "the configuration cannot be used: keeping the old one",
			Nothing: "there is no configuration file to reload",
		},
		Use: func(texts []string) (int, error) { return f.use(texts[0]) },
	})
	lc.Append(fx.Hook{OnStart: f.Start, OnStop: f.Close})
	return f
}

// reload reads the file now.
func (f *configFile) reload() { f.Reload() }

// use reads the whole configuration again, with the text of its file. Nothing changes unless all of
// it can be used. It returns the number of options that have taken effect.
func (f *configFile) use(text string) (int, error) {
	next, err := f.current.Again(text)
	if err != nil {
		return 0, err
	}
	adopted, changes := f.current.Adopt(next)
	if err := f.parts.apply(adopted); err != nil {
		return 0, err
	}
	if adopted.Log.Level != f.current.Log.Level { // else that of PUT /log/level stays
		logging.SetLevel(f.parts.Log, adopted.Log.Level)
	}
	f.current = adopted
	n := 0
	for _, c := range changes {
		attrs := []slog.Attr{slog.String("option", c.Option)}
		if c.From != "" || c.To != "" {
			attrs = append(attrs, slog.String("from", c.From), slog.String("to", c.To))
		}
		level, message := slog.LevelInfo, "option changed"
		if c.Restart {
			level, message = slog.LevelWarn, "option changed: it needs a restart"
		} else {
			n++
		}
		//nolint:sloglint // both are constant
		f.parts.Log.LogAttrs(context.Background(), level, message, attrs...)
	}
	return n, nil
}

// apply puts the options that can change into effect. The only part that can refuse its option
// comes first, so that all of them change or none.
func (p *liveParts) apply(c *config.Config) error {
	if c.Idempotency.Len() > 0 && c.IdempotencyKeyFile == "" {
		if err := changeIdempotency(p.Exact, c.Idempotency, p.Log); err != nil {
			return err
		}
	}
	if len(c.HandleKeys) > 0 && c.HandleKeysFile == "" {
		if err := p.Keys.replace(c.HandleKeys); err != nil {
			return err
		}
	}
	if p.Callers != nil && c.Auth.APIKeysFile == "" {
		p.Callers.Replace(c.Auth.APIKeys)
	}
	p.Admission.SetLimits(limits(c, p.Admission.Bytes().Limit))
	p.Chain.SetTimeouts(interceptor.Timeouts{
		Default: c.RequestTimeout, Max: c.MaxRequestTimeout,
	})
	p.Front.SetAccess(c.RESTHosts(), front.CORS(c.REST.CORS))
	p.Server.SetMaxConnections(c.Connections.Max, c.Connections.MaxPerAddress)
	p.Traces.SetSampling(c.Tracing.Sampling)
	p.Comments.on.Store(c.Tracing.Comment)
	return nil
}

// comments says whether the comments of commands name the trace.
type comments struct{ on atomic.Bool }

func newComments(cfg *config.Config) *comments {
	c := &comments{}
	c.on.Store(cfg.Tracing.Comment)
	return c
}
