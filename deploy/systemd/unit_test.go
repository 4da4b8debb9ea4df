// Package systemd_test checks the unit with systemd's own tools.
package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const unit = "mooring.service"

// TestCrashIsStartedAgain checks that no exit status keeps the service down. A Go program that
// crashes ends with 2, as one with a wrong command line does.
func TestCrashIsStartedAgain(t *testing.T) {
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	always := false
	for line := range strings.Lines(string(text)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "Restart":
			always = value == "always"
		case "RestartPreventExitStatus":
			t.Errorf("%s=%s: the service can stay down after a crash", name, value)
		}
	}
	if !always {
		t.Error("the unit has no Restart=always")
	}
}

// TestUnit has systemd read the unit, and rate how much of the machine the service can reach.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	// The binary need not be installed for this.
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), unit)
	if err := os.WriteFile(file,
		[]byte(strings.ReplaceAll(string(text), "/usr/local/bin/mooring", "/bin/true")),
		0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", file).CombinedOutput(); err != nil ||
		len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", file).
		CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security rates the unit above 2.0: %v\n%s", err, out)
	}
}
