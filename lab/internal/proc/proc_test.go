package proc_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/proc"
)

func start(t *testing.T, script string) *proc.Process {
	t.Helper()
	p, err := proc.Start(proc.Config{Path: "/bin/sh", Args: []string{"-c", script}})
	if err != nil {
		t.Skipf("no shell here: %v", err)
	}
	t.Cleanup(func() { _ = p.Stop(10 * time.Second) })
	return p
}

func TestProcess(t *testing.T) {
	p := start(t, `echo oops >&2; echo ready; exec sleep 60`)
	if line, err := p.Line(t.Context()); err != nil || line != "ready" {
		t.Fatalf("Line() = %q, %v, want ready", line, err)
	}
	p.Drain()
	if err := p.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("Signal(0) = %v, want a running process", err)
	}
	if err := p.Stop(10 * time.Second); err == nil {
		t.Error("Stop() = nil for a process that SIGTERM ended")
	}
	if !strings.Contains(p.Tail(), "oops") {
		t.Errorf("Tail() = %q, want what was written to standard error", p.Tail())
	}
}

func TestWaitGivesTheExitCode(t *testing.T) {
	p := start(t, `exit 7`)
	if code, err := p.Wait(t.Context()); code != 7 || err != nil {
		t.Errorf("Wait() = %d, %v, want 7", code, err)
	}
}

func TestLineEndsWithItsContext(t *testing.T) {
	p := start(t, `exec sleep 60`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Line(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Line() = %v, want a deadline error", err)
	}
}

func TestKernelAccounting(t *testing.T) {
	pid := os.Getpid()
	if _, err := proc.CPU(pid); err != nil {
		t.Skipf("no accounting here: %v", err)
	}
	before, _ := proc.CPU(pid)
	after := before
	for end := time.Now().Add(10 * time.Second); after == before && time.Now().Before(end); {
		after, _ = proc.CPU(pid) // asking is work enough
	}
	if after <= before {
		t.Errorf("CPU() = %v after ten seconds of work, %v before", after, before)
	}
	if err := proc.ResetPeakRSS(pid); err != nil {
		t.Skipf("the peak cannot be reset here: %v", err)
	}
	rss, err := proc.RSS(pid)
	if err != nil || rss <= 0 {
		t.Errorf("RSS() = %d, %v", rss, err)
	}
	const size = 64 << 20
	block, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(block) }()
	for i := 0; i < size; i += 4096 {
		block[i] = 1
	}
	peak, err := proc.PeakRSS(pid)
	if err != nil || peak < rss+size/2 {
		t.Errorf("PeakRSS() = %d, %v, want at least %d over %d", peak, err, size/2, rss)
	}
}
