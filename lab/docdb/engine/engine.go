// Package engine starts PostgreSQL with the DocumentDB extension, from Debian's packages, on an
// empty database of its own. It knows nothing of MongoDB's protocol, which lab/docdb speaks for it.
package engine

import (
	"bytes"
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed engine.sh
var script []byte

// startTime is how long the engine may take to accept connections.
const startTime = time.Minute

// Unpack unpacks the engine's packages into a directory, unless that was done before. It blocks
// while another process does it. Its error says why the packages cannot be had.
func Unpack(ctx context.Context, dir string) error {
	var said bytes.Buffer
	cmd := bash(ctx, "unpack", dir)
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return fmt.Errorf("unpack the engine: %w: %s", err, lines[len(lines)-1])
	}
	return nil
}

// bash returns a command that runs the script.
func bash(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "bash", append([]string{"-c", string(script), "engine.sh"},
		args...)...)
}

// Engine represents a running engine. Its data live as long as it runs.
type Engine struct {
	data  string
	cmd   *exec.Cmd
	input io.Closer
	ended chan struct{}
	close sync.Once
	log   lockedBuffer
}

// Start starts the engine that is unpacked in dir on an empty database of its own. The caller
// stops it.
func Start(ctx context.Context, dir string) (*Engine, error) {
	data, err := os.MkdirTemp("", "docdb-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(data, 0o755); err != nil { //nolint:gosec // the engine is another user
		return nil, err
	}
	// The context bounds the start only: the end of the input ends the engine.
	e := &Engine{
		data: data, cmd: bash(context.WithoutCancel(ctx), "run", dir, data),
		ended: make(chan struct{}),
	}
	e.cmd.Stdout, e.cmd.Stderr = &e.log, &e.log
	if e.input, err = e.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(e.ended)
		_ = e.cmd.Wait() // its log says more
	}()
	if err := e.await(ctx); err != nil {
		e.Stop()
		return nil, fmt.Errorf("start the engine: %w\n%s", err, e.Log())
	}
	return e, nil
}

// DSN returns the connection string of PostgreSQL.
func (e *Engine) DSN() string {
	return fmt.Sprintf("host=%s user=lab dbname=postgres", filepath.Join(e.data, "run"))
}

// await blocks until the engine accepts connections.
func (e *Engine) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, e.DSN())
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-e.ended:
			return errors.New("it has ended")
		case <-ctx.Done():
			return err
		}
	}
}

// Log returns the last lines that the engine has logged.
func (e *Engine) Log() string { return e.log.tail() }

// Stop stops the engine, and returns once its data are removed.
func (e *Engine) Stop() {
	e.close.Do(func() { _ = e.input.Close() })
	<-e.ended
	_ = os.RemoveAll(e.data) // if the script did not come so far
}

// Directory returns the directory of the unpacked packages, or skips the test with the reason why
// there are none.
func Directory(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("LAB_DOCDB")
	if dir == "" {
		t.Skip("LAB_DOCDB names no directory for PostgreSQL with DocumentDB")
	}
	if err := Unpack(t.Context(), dir); err != nil {
		t.Skip(err)
	}
	return dir
}

// lockedBuffer keeps what a process writes. Its methods may be called at any time.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// tail returns the last lines.
func (b *lockedBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := strings.SplitAfter(b.buf.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "")
}
