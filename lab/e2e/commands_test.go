package e2e

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/proc"
)

// TestRun does what `make run` says that one can do: it pastes the printed curl lines.
func TestRun(t *testing.T) {
	p, err := proc.Start(proc.Config{Path: suite.Command(t, "run"), Args: []string{
		"--gateway", suite.Gateway(t), "--embedded", suite.Embedded(t),
		"--port", "0", "--grpc-port", "0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(time.Minute) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var commands []string
	for !strings.Contains(strings.Join(commands, "\n"), "CountDocuments") {
		text, err := p.Line(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(text, "curl ") || strings.Contains(text, "grpcurl") {
			commands = append(commands, text)
		}
	}
	curls := 0
	for _, command := range commands {
		if !strings.HasPrefix(command, "curl ") {
			continue // grpcurl would be built first
		}
		curls++
		if _, err := exec.LookPath("curl"); err != nil {
			t.Skip("curl is not installed")
		}
		endless := strings.Contains(command, "documents:live")
		if endless {
			command = strings.Replace(command, "curl ", "curl --max-time 2 ", 1)
		}
		out, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput()
		if endless && strings.Contains(string(out), `{"ready":{}}`) {
			err = nil // curl says that its time was over
		}
		if err != nil {
			t.Errorf("%s\n%s\n%v", command, out, err)
			continue
		}
		t.Logf("%s\n%.400s", command, out)
	}
	if curls < 5 || len(commands) == curls {
		t.Errorf("%d curl lines and %d of grpcurl", curls, len(commands)-curls)
	}
	if err := p.Stop(time.Minute); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}

// TestBench runs the benchmark for a moment: it must measure what it says, and end with its ratios.
func TestBench(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel here does not tell a process's time in /proc")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, suite.Command(t, "bench"),
		"--gateway", suite.Gateway(t), "--rounds", "1", "--turn", "100ms")
	// It ends the processes that it has started, which hold its output, too.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("\n%s", out)
	found := regexp.MustCompile(`(?m)^ratio (\S+) \d+\.\d+$`).FindAllSubmatch(out, -1)
	var names []string
	for _, f := range found {
		names = append(names, string(f[1]))
	}
	for _, want := range []string{
		"rest-find-one-cpu", "rest-find-100-allocs", "rest-find-100-cpu-vs-floor",
		"grpc-find-one-cpu", "grpc-find-100-allocs", "grpc-stream-cpu-vs-floor",
		"rest-insert-100-cpu-vs-floor", "rest-find-one-policy-cpu",
		"grpc-find-one-policy-allocs",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no ratio %s among %v", want, names)
		}
	}
}
