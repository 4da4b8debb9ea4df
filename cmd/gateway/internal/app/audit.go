package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/service/audit"
)

// auditing provides the log of writes and refusals, and its file.
var auditing = fx.Module("audit", fx.Provide(newAuditFile, newAudit))

// newAudit returns the log; nil if there is none.
func newAudit(cfg *config.Config, log *slog.Logger, file *auditFile) *audit.Log {
	switch {
	case file != nil:
		return audit.New(slog.New(slog.NewJSONHandler(file, nil)))
	case cfg.Audit == config.AuditLog:
		return audit.New(logging.Unlimited(log))
	}
	return nil
}

// auditFile holds the file of the log. It can be opened again, after it was renamed.
type auditFile struct {
	path string
	log  *slog.Logger

	// mu guards the fields below, and the writing.
	mu     sync.Mutex
	file   io.WriteCloser
	failed time.Time // the time of the last line about a write that failed
}

// failedEvery is the least time between two lines about writes that fail.
const failedEvery = 10 * time.Second

// newAuditFile opens the file; nil if there is none.
func newAuditFile(
	lc fx.Lifecycle, cfg *config.Config, log *slog.Logger,
) (*auditFile, error) {
	if cfg.Audit == "" || cfg.Audit == config.AuditLog {
		return nil, nil
	}
	a := &auditFile{path: cfg.Audit, log: log}
	var err error
	if a.file, err = a.open(); err != nil {
		return nil, &config.Error{Option: "audit.file", Problem: err.Error()}
	}
	lc.Append(fx.Hook{OnStop: func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.file.Close()
	}})
	return a, nil
}

func (a *auditFile) open() (io.WriteCloser, error) {
	return os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// Write appends a line. The calls go on if it fails, and the gateway's log says so.
func (a *auditFile) Write(line []byte) (int, error) {
	a.mu.Lock()
	n, err := a.file.Write(line)
	now := time.Now()
	tell := err != nil && now.Sub(a.failed) > failedEvery
	if tell {
		a.failed = now
	}
	a.mu.Unlock()
	if tell {
		a.log.Error("the audit log cannot be written", "err", err)
	}
	return n, err
}

// reopen opens the file again. If that fails, the old one stays.
func (a *auditFile) reopen() {
	if a == nil {
		return
	}
	file, err := a.open()
	if err != nil {
		a.log.Error("the audit log cannot be opened: the old file stays", "err", err)
		return
	}
	a.mu.Lock()
	old := a.file
	a.file = file
	a.mu.Unlock()
	if err := old.Close(); err != nil {
		a.log.Error("the old audit log cannot be closed", "err", fmt.Errorf("close: %w", err))
	}
}
