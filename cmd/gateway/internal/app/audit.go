package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/metrics"
	"github.com/mooringdb/mooring/service/audit"
)

// auditing provides the log of writes and refusals, and its file.
var auditing = fx.Module("audit", fx.Provide(newAuditFile, newAudit))

// newAudit returns the log; nil if there is none. It is closed after the listeners, whose calls it
// has, and before its file.
func newAudit(
	lc fx.Lifecycle, cfg *config.Config, log *slog.Logger, file *auditFile, m *metrics.Metrics,
) *audit.Log {
	to := audit.Config{Logger: log, Meter: m}
	switch {
	case file != nil:
		to.Handler = slog.NewJSONHandler(file, nil)
	case cfg.Audit == config.AuditLog:
		to.Handler = logging.Unlimited(log).Handler()
	default:
		return nil
	}
	l := audit.New(to)
	lc.Append(fx.Hook{OnStop: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, auditFlushTime)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			log.Error("audit lines lost: the gateway stopped before they were written", "err", err)
		}
		return nil
	}})
	return l
}

// auditFlushTime is the time for the last lines of the audit log, when the gateway stops.
const auditFlushTime = 2 * time.Second

// auditFile holds the file of the log. It can be opened again, after it was renamed. Only the
// goroutine of the log writes.
type auditFile struct {
	path string
	log  *slog.Logger

	failed time.Time // the time of the last line about a write that failed
	torn   bool      // the file ends with a part of a line

	// mu guards file. Nothing blocks while it is held.
	mu   sync.Mutex
	file io.WriteCloser
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
	lc.Append(fx.Hook{OnStop: func(context.Context) error { return a.current().Close() }})
	return a, nil
}

func (a *auditFile) open() (io.WriteCloser, error) {
	return os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// current returns the file.
func (a *auditFile) current() io.WriteCloser {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.file
}

// Write appends a line. The calls go on if it fails, and the gateway's log says so.
func (a *auditFile) Write(line []byte) (int, error) {
	to := a.current()
	n, err := a.write(to, line)
	if now := a.current(); now != to && errors.Is(err, os.ErrClosed) { // it was opened again
		a.torn = false
		n, err = a.write(now, line)
	}
	if now := time.Now(); err != nil && now.Sub(a.failed) > failedEvery {
		a.failed = now
		a.log.Error("the audit log cannot be written", "err", err)
	}
	return n, err
}

// write writes a line. It first ends the part of a line that a full disk has left.
func (a *auditFile) write(to io.Writer, line []byte) (int, error) {
	if a.torn {
		if _, err := to.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		a.torn = false
	}
	n, err := to.Write(line)
	a.torn = 0 < n && n < len(line)
	return n, err
}

// reopen opens the file again. If that fails, the old one stays.
func (a *auditFile) reopen() {
	if a == nil {
		return
	}
	file, err := a.open()
	if err != nil {
		a.log.Error("the audit log cannot be opened: keeping the old file", "err", err)
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
