package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/mooringdb/mooring/cmd/gateway/internal/certificate"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/tracing"
	"github.com/mooringdb/mooring/core/client"
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
	cfg, err := config.Load(c.flags, c.environ)
	if err != nil {
		return err
	}
	if _, err := certificate.New(cfg.TLS); err != nil {
		return err
	}
	if _, err := seal.NewRing(cfg.HandleKeys...); err != nil {
		return &config.Error{Option: "handle.keys", Problem: err.Error()}
	}
	if _, err := client.TopologyConfig(&cfg.MongoDB, client.Options{}); err != nil {
		return cfg.WrongURI(err)
	}
	if err := cfg.CheckWritten(); err != nil {
		return err
	}
	ctx := context.Background()
	traces, err := tracing.New(ctx, tracing.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := traces.Close(ctx); err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(c.stderr, "mooring: warning:", w)
	}
	return cfg.WriteEffective(c.stdout)
}
