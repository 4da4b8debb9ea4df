package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	"github.com/mooringdb/mooring/cmd/gateway/internal/build"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/memory"
)

// closeTime is the time that the gateway has, after the drain, to kill cursors and to close
// connections.
const closeTime = 8 * time.Second

// serve runs the command serve.
func serve(c call) error {
	cfg, err := config.Load(c.flags, c.environ)
	if err != nil {
		return err
	}
	log := logging.New(c.stderr, cfg.Log)
	defer logging.Close(log)
	log.Info("starting", slog.String("version", build.Version()), cfg.Attrs())
	for _, w := range cfg.Warnings {
		log.Warn("configuration", "problem", w)
	}

	signals, hangups := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	memory.New(cfg.MemoryBudget, memory.Read()).Apply()
	defer memory.StartTrimming().Stop()
	raiseProcs(c.environ)
	gateway, err := app.New(cfg, log)
	if err != nil {
		return err
	}
	// The start may take long; a signal ends it.
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
	// Only now: a signal that follows this record meets a gateway that has started.
	log.Info("listening", gateway.Addresses().Attrs()...)
	return running{
		gateway, cfg.DrainLinger + cfg.DrainTimeout, log,
		os.Exit,
	}.untilStopped(signals, hangups)
}

// leastProcs is the least GOMAXPROCS. With one, a call waits for each large one that works whenever
// it waits for the network: Go looks at the network only when it has nothing else to do. With two,
// one of them does, and the kernel divides the processor between them.
const leastProcs = 2

// raiseProcs raises GOMAXPROCS on a machine with one processor, unless the environment sets it.
func raiseProcs(environ []string) {
	set := slices.ContainsFunc(environ, func(v string) bool {
		return strings.HasPrefix(v, "GOMAXPROCS=")
	})
	if !set && runtime.GOMAXPROCS(0) < leastProcs {
		runtime.GOMAXPROCS(leastProcs)
	}
}

// running holds a gateway that has started, and what its end needs.
type running struct {
	gateway interface {
		Reload()
		Failed() <-chan error
		Stop(context.Context) error
	}
	drainTimeout time.Duration
	log          *slog.Logger
	exit         func(code int)
}

// untilStopped reloads the gateway at each hangup, and stops it at the first signal or failure. It
// blocks until the gateway has stopped, and returns the failure and the error of stopping. A second
// signal ends the process at once: the signal's default action would not do, since it spares
// process 1.
func (r running) untilStopped(signals, hangups <-chan os.Signal) error {
	failure := r.untilEvent(signals, hangups)

	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-signals:
			r.exit(exitError)
		case <-stopped:
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), r.drainTimeout+closeTime)
	defer cancel()
	if err := r.gateway.Stop(ctx); err != nil {
		return errors.Join(failure, fmt.Errorf("stop: %w", err))
	}
	if failure == nil {
		r.log.Info("stopped")
	}
	return failure
}

// untilEvent blocks until a signal arrives, and returns nil, or until the gateway fails, and
// returns its error.
func (r running) untilEvent(signals, hangups <-chan os.Signal) error {
	for {
		select {
		case <-hangups:
			r.gateway.Reload()
		case s := <-signals:
			r.log.Info("stopping", "signal", s.String(), "drain_timeout", r.drainTimeout)
			return nil
		case err := <-r.gateway.Failed():
			r.log.Error("stopping", "err", err)
			return err
		}
	}
}
