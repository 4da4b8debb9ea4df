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

// TestSecrets checks that the unit shows how to give the gateway the key of TLS, which its user
// cannot read, and that each credential that a variable names is loaded.
func TestSecrets(t *testing.T) {
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	loaded, variables := map[string]bool{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "#")
		switch name, value, _ := strings.Cut(line, "="); name {
		case "LoadCredential":
			credential, _, _ := strings.Cut(value, ":")
			loaded[credential] = true
		case "Environment":
			variable, path, _ := strings.Cut(value, "=")
			if credential, ok := strings.CutPrefix(path, "%d/"); ok {
				variables[variable] = credential
			}
		}
	}
	for variable, credential := range variables {
		if !loaded[credential] {
			t.Errorf("%s names the credential %s, which is not loaded", variable, credential)
		}
	}
	if len(variables) != len(loaded) {
		t.Errorf("the variables are %q, the credentials %v", variables, loaded)
	}
	for _, variable := range []string{"MOORING_TLS_CERTIFICATE_FILE", "MOORING_TLS_KEY_FILE"} {
		if variables[variable] == "" {
			t.Errorf("%s names no credential", variable)
		}
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
