package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
)

// closeTime is what the gateway has, after the drain, to kill cursors and close connections.
const closeTime = 8 * time.Second

// serve is the command serve.
func serve(c call) error {
	cfg, err := config.Load(c.flags, c.environ)
	if err != nil {
		return err
	}
	log := logging.New(c.stderr, cfg.Log)
	for _, w := range cfg.Warnings {
		log.Warn("configuration", "problem", w)
	}

	signals, hangups := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	gateway, err := app.New(cfg, log)
	if err != nil {
		return err
	}
	// The start may take long: it looks SRV records up. A signal ends it.
	starting, started := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = gateway.Start(starting)
	interrupted := starting.Err() != nil
	started()
	switch {
	case err != nil && interrupted:
		log.Info("stopped while starting", "err", err)
		return nil
	case err != nil:
		return err
	}
	s, failure := untilStop(gateway, signals, hangups)
	if failure == nil {
		log.Info("stopping", "signal", s.String(), "drain_timeout", cfg.DrainTimeout)
	} else {
		log.Error("stopping", "err", failure)
	}
	// Whoever sends a second signal does not want to wait. The default action would not do: it spares process 1.
	go func() {
		<-signals
		os.Exit(exitError)
	}()

	ctx, cancel := context.WithTimeout(context.Background(), cfg.DrainTimeout+closeTime)
	defer cancel()
	if err := gateway.Stop(ctx); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if failure == nil {
		log.Info("stopped")
	}
	return failure
}

// untilStop lets the gateway run until a signal or a failure says that it stops.
func untilStop(gateway *app.App, signals, hangups <-chan os.Signal) (os.Signal, error) {
	for {
		select {
		case <-hangups:
			gateway.Reload()
		case s := <-signals:
			return s, nil
		case err := <-gateway.Failed():
			return nil, err
		}
	}
}
