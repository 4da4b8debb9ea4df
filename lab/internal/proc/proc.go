// Package proc starts the programs that lab is made of as processes of their own, stops them by
// their process id, and reads what the kernel accounts to them. It knows nothing of what they do.
package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config says what to start.
type Config struct {
	Path string
	Args []string
	Env  []string // nil: the caller's
	Dir  string   // empty: the caller's
	// Files are open in the program, from descriptor 3 on. They stay open in the caller.
	Files []*os.File
	// Standard error, and standard output after the lines that were read; nil: only the tail is
	// kept.
	Log io.Writer
}

// Process represents a started program. Its methods may be called from several goroutines, except
// Line.
type Process struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	pipe   *os.File
	tail   tail
	log    io.Writer
	done   chan struct{} // closed when the program has ended and err is set
	err    error
}

// Start starts a program, in a process group of its own, so that Ctrl-C reaches only the caller,
// which stops its processes in their order. On Linux the program gets SIGTERM when the caller dies
// without having stopped it.
func Start(c Config) (*Process, error) {
	p := &Process{done: make(chan struct{}), log: c.Log}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = c.Env
	cmd.ExtraFiles = c.Files
	cmd.Stderr = &p.tail
	if c.Log != nil {
		cmd.Stderr = io.MultiWriter(c.Log, &p.tail)
	}
	// A pipe of our own: StdoutPipe's would be closed by Wait under a reader.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	cmd.SysProcAttr = attributes()
	// A child of the program that keeps its standard error open is not waited for.
	cmd.WaitDelay = time.Second
	p.cmd, p.pipe, p.stdout = cmd, r, bufio.NewReader(r)
	started := make(chan error)
	go p.run(started)
	err = <-started
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	return p, nil
}

// run starts the program and waits for its end on one thread: the kernel takes the end of the
// thread that started a program for the death of its parent.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
		close(p.done)
	}
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Tail returns the end of the program's standard error.
func (p *Process) Tail() string { return p.tail.String() }

// Line reads the next line of standard output, without its end. It fails when ctx ends or the
// program does.
func (p *Process) Line(ctx context.Context) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.pipe.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := p.stdout.ReadString('\n')
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s printed no line: %w\n%s", p.cmd.Path, context.Cause(ctx),
			p.Tail())
	case err != nil:
		return "", fmt.Errorf("%s ended before it was ready: %w\n%s", p.cmd.Path, err, p.Tail())
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// Drain copies the rest of standard output to the log, in a goroutine that ends with the program
// or its Stop.
func (p *Process) Drain() {
	w := p.log
	if w == nil {
		w = io.Discard
	}
	go func() { _, _ = io.Copy(w, p.stdout) }()
}

// Signal sends one signal to the program.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the program as a crash does.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// Wait waits for the end and gives the exit code; a program that a signal ended has the code -1
// and an error.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return -1, fmt.Errorf("%s still runs: %w", p.cmd.Path, context.Cause(ctx))
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return p.cmd.ProcessState.ExitCode(), p.err
}

// Stop asks the program to end with SIGTERM and kills it when it has not after the grace. It can
// be repeated. The error says how a program ended that did not end well.
func (p *Process) Stop(grace time.Duration) error {
	defer p.pipe.Close()
	_ = p.Signal(syscall.SIGTERM)
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-p.done:
		return p.err
	case <-late.C:
		_ = p.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.cmd.Path, grace)
	}
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 16 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if extra := len(t.buf) - tailSize; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
