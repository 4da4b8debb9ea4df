package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	"github.com/mooringdb/mooring/cmd/gateway/internal/certificate"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/tracing"
	"github.com/mooringdb/mooring/service/seal"
)

// showConfig runs the command config.
func showConfig(c call) error {
	cfg, err := config.Load(c.flags, c.environ)
	if err != nil {
		return err
	}
	return cfg.WriteEffective(c.stdout)
}

// showSchema runs the command config schema.
func showSchema(c call) error { return config.WriteSchema(c.stdout) }

// checkConfig runs the command config check: it reads all that serve would read before it opens a
// socket, looks whether the files that serve would write can be written, and prints what serve
// would use.
func checkConfig(c call) error {
	cfg, _, err := loadAll(c)
	if err != nil {
		return err
	}
	warnings, err := app.CheckDeployment(cfg)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(c.stderr, "mooring: warning:", w)
	}
	for _, w := range warnings {
		fmt.Fprintln(c.stderr, "mooring: warning:", w)
	}
	return cfg.WriteEffective(c.stdout)
}

// loadAll reads all that serve would read before it opens a socket, except for what the connection
// string names, and returns an error if serve would not start. The holder is nil if clients use no
// TLS.
func loadAll(c call) (*config.Config, *certificate.Holder, error) {
	cfg, err := config.Load(c.flags, c.environ)
	if err != nil {
		return nil, nil, err
	}
	holder, err := certificate.New(cfg.TLS)
	if err != nil {
		return nil, nil, err
	}
	if _, err := seal.NewRing(cfg.HandleKeys...); err != nil {
		return nil, nil, &config.Error{Option: "handle.keys", Problem: err.Error()}
	}
	if err := cfg.CheckWritten(); err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	traces, err := tracing.New(ctx, tracing.Config{Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = traces.Close(ctx)
	}
	return cfg, holder, err
}
