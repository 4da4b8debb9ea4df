package tools_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// failingTool stands for the go command: it builds an empty binary and packs an empty chart, and
// the bill of materials fails.
const failingTool = `#!/bin/sh
case "$*" in
build*) while [ "$1" != -o ]; do shift; done; : >"$2" ;;
*" helm package "*)
	while [ "$1" != --destination ]; do shift; done
	mkdir -p "$2/mooring" && tar -C "$2" -czf "$2/mooring-1.2.3.tgz" mooring ;;
*cyclonedx-gomod*) echo "no module information" >&2; exit 1 ;;
esac
`

// TestReleaseTellsErrors checks that tools/release.sh says why there is no bill of materials, and
// fails.
func TestReleaseTellsErrors(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "go")
	if err := os.WriteFile(tool, []byte(failingTool), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "./release.sh", filepath.Join(dir, "dist"),
		"linux/amd64")
	cmd.Env = append(os.Environ(), "GO="+tool, "VERSION=v1.2.3", "COMMIT=c", "SOURCE_DATE_EPOCH=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no module information") {
		t.Errorf("release.sh: %v\n%s\nwant the error of the tool", err, out)
	}
}

// TestSignature runs the lines with which a release is signed and verified, and checks that another
// file or another key is refused.
func TestSignature(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	dir := t.TempDir()
	sh := func(line string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", line)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(line string) {
		t.Helper()
		if out, err := sh(line); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	documented := func(path, begin string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`(?m)^ +(` + begin + `[^\\\n]*(?:\\\n[^\\\n]*)*)$`).
			FindSubmatch(text)
		if line == nil {
			t.Fatalf("%s has no line that begins with %s", path, begin)
		}
		return string(line[1])
	}
	sign := documented("../CONTRIBUTING.md", "ssh-keygen -Y sign")
	verify := documented("../docs/operations.md", "ssh-keygen -Y verify")
	must("ssh-keygen -q -t ed25519 -N '' -f KEY && ssh-keygen -q -t ed25519 -N '' -f other")
	must(`mkdir dist && echo a >dist/mooring && (cd dist && sha256sum mooring >checksums.txt)`)
	must(`echo "release@mooring $(cat KEY.pub)" >dist/allowed_signers`)
	must(sign)
	must("cd dist && " + verify + " && sha256sum -c checksums.txt")
	for _, change := range []string{
		"echo b >>dist/checksums.txt",
		`(cd dist && sha256sum mooring >checksums.txt && rm checksums.txt.sig) && ` +
			strings.Replace(sign, "KEY", "other", 1),
	} {
		must(change)
		if out, err := sh("cd dist && " + verify); err == nil {
			t.Errorf("after %s the signature is good:\n%s", change, out)
		}
	}
}

// workflow is what GitHub runs.
type workflow struct {
	Name        string
	On          any
	Permissions map[string]string
	Jobs        map[string]struct {
		RunsOn string `yaml:"runs-on"`
		Steps  []struct {
			Uses, Run string
			With, Env map[string]any
		}
	}
}

var (
	target = regexp.MustCompile(`(?m)^([a-z-]+):`)
	pinned = regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40}$`)
	call   = regexp.MustCompile("(?m)(?:^|^ {4}|`|&& |\" |\\) )make ([a-z-]+)")
)

// TestHelp checks that help lists the twelve targets for every day, and help-all every target with
// a description.
func TestHelp(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^  ([a-z-]+) +\S`)
	help := func(target string) map[string]bool {
		t.Helper()
		out, err := exec.Command("make", "--no-print-directory", "-C", "..", target).Output()
		if err != nil {
			t.Fatalf("make %s: %v", target, err)
		}
		found := map[string]bool{}
		for _, m := range listed.FindAllStringSubmatch(string(out), -1) {
			found[m[1]] = true
		}
		return found
	}
	daily, all := help("help"), help("help-all")
	if len(daily) != 12 {
		t.Errorf("make help lists %d targets, want 12: %v", len(daily), daily)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	described := regexp.MustCompile(`(?m)^([a-z-]+):.*## `).
		FindAllStringSubmatch(string(makefile), -1)
	for _, m := range described {
		if !all[m[1]] {
			t.Errorf("make help-all does not list %s", m[1])
		}
		delete(daily, m[1])
	}
	if len(all) != len(described) || len(daily) > 0 {
		t.Errorf("make help-all lists %d targets of %d; make help has %v besides", len(all),
			len(described), daily)
	}
}

// TestWorkflows checks that the workflows can be read, that each step does something, with actions
// that cannot change and without pasting into a shell, that a job may write only where it says so,
// and that the targets that they and CI call are in the Makefile.
func TestWorkflows(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(read("../Makefile"), -1) {
		targets[m[1]] = true
	}
	check := func(where, commands string) (called []string) {
		for _, m := range call.FindAllStringSubmatch(commands, -1) {
			called = append(called, m[1])
			if !targets[m[1]] {
				t.Errorf("%s calls make %s, which the Makefile does not have", where, m[1])
			}
		}
		return called
	}
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) != 2 {
		t.Fatalf("the workflows are %q, %v", files, err)
	}
	var called []string
	for _, file := range files {
		decoder := yaml.NewDecoder(strings.NewReader(read(file)))
		var w workflow
		if err := decoder.Decode(&w); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if w.Name == "" || w.On == nil || len(w.Jobs) == 0 {
			t.Errorf("%s has no name, no event or no job: %+v", file, w)
		}
		if w.Permissions == nil ||
			slices.Contains(slices.Collect(maps.Values(w.Permissions)), "write") {
			t.Errorf("%s gives all its jobs the permissions %v", file, w.Permissions)
		}
		for name, job := range w.Jobs {
			if job.RunsOn == "" || len(job.Steps) == 0 {
				t.Errorf("%s: the job %s runs nowhere, or has no step", file, name)
			}
			for i, step := range job.Steps {
				if (step.Uses == "") == (step.Run == "") {
					t.Errorf("%s: step %d of %s has not one of uses and run", file, i, name)
				}
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s: %s uses %s, which is not pinned by the hash of a commit", file,
						name, step.Uses)
				}
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s: %s pastes an expression into a shell: %s", file, name, step.Run)
				}
				called = append(called, check(file, step.Run)...)
				if step.Run == ".ci/run" {
					called = append(called, check(".ci/run", read("../.ci/run"))...)
				}
			}
		}
	}
	// What CI runs, but for what is in ../shared.
	for _, want := range []string{
		"collector", "test", "test-server", "lint", "generate-check", "openapi-check", "breaking",
		"layers", "helm-check", "mutate-short", "chaos", "fuzz", "vulnerabilities", "conformance",
		"kube-check", "release-check",
	} {
		if !slices.Contains(called, want) {
			t.Errorf("no workflow calls make %s", want)
		}
	}
	for _, page := range []string{"../README.md", "../CONTRIBUTING.md"} {
		check(page, read(page))
	}
}
