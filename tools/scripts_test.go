package tools_test

import (
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
	cmd := exec.CommandContext(t.Context(), "./release.sh", filepath.Join(dir, "dist"), "linux/amd64")
	cmd.Env = append(os.Environ(), "GO="+tool, "VERSION=v1.2.3", "COMMIT=c", "SOURCE_DATE_EPOCH=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no module information") {
		t.Errorf("release.sh: %v\n%s\nwant the error of the tool", err, out)
	}
}

// workflow is what GitHub runs.
type workflow struct {
	Name string
	On   any
	Jobs map[string]struct {
		RunsOn string `yaml:"runs-on"`
		Steps  []struct {
			Uses, Run string
			With, Env map[string]any
		}
	}
}

var (
	target = regexp.MustCompile(`(?m)^([a-z-]+):`)
	call   = regexp.MustCompile("(?m)(?:^|^ {4}|`|&& |\" )make ([a-z-]+)")
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
	described := regexp.MustCompile(`(?m)^([a-z-]+):.*## `).FindAllStringSubmatch(string(makefile), -1)
	for _, m := range described {
		if !all[m[1]] {
			t.Errorf("make help-all does not list %s", m[1])
		}
		delete(daily, m[1])
	}
	if len(all) != len(described) || len(daily) > 0 {
		t.Errorf("make help-all lists %d targets of %d; make help has %v besides", len(all), len(described), daily)
	}
}

// TestWorkflows checks that the workflows can be read, that each step does something, and that the
// targets that they and CI call are in the Makefile.
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
		for name, job := range w.Jobs {
			if job.RunsOn == "" || len(job.Steps) == 0 {
				t.Errorf("%s: the job %s runs nowhere, or has no step", file, name)
			}
			for i, step := range job.Steps {
				if (step.Uses == "") == (step.Run == "") {
					t.Errorf("%s: step %d of %s has not one of uses and run", file, i, name)
				}
				called = append(called, check(file, step.Run)...)
			}
		}
	}
	// What CI runs, but for what is in ../shared and what only reports.
	for _, want := range []string{
		"collector", "test", "lint", "generate-check", "openapi-check", "layers", "helm-check",
		"mutate-short", "conformance", "kube-check", "release-check",
	} {
		if !slices.Contains(called, want) {
			t.Errorf("no workflow calls make %s", want)
		}
	}
	if ci, err := os.ReadFile("../.ci/run"); err == nil { // not in an archive of the sources
		if got := check(".ci/run", string(ci)); len(got) < 10 {
			t.Errorf(".ci/run calls %q only", got)
		}
	}
	for _, page := range []string{"../README.md", "../CONTRIBUTING.md"} {
		check(page, read(page))
	}
}
