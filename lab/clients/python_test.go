package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPython installs clients/python with pip into a virtual environment, without a network, and
// runs its tests there on each server: with the python3 of the path, and with Debian's, which may
// have pymongo's package bson. The environment has the httpx of its interpreter.
func TestPython(t *testing.T) {
	source := filepath.Join(t.TempDir(), "python") // Python leaves files beside its sources
	if err := os.CopyFS(source, files(filepath.Join(root(t), "clients", "python"))); err != nil {
		t.Fatal(err)
	}
	interpreters := map[string]string{}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if _, err := exec.LookPath(python); err != nil {
			t.Logf("%s is not installed", python)
		} else if missing := lacks(t, python, "venv", "ensurepip", "httpx"); missing != "" {
			t.Logf("%s has no %s: apt-get install python3-venv python3-httpx", python, missing)
		} else {
			interpreters[python] = installPython(t, python, source)
		}
	}
	if len(interpreters) == 0 {
		t.Skip("no Python can make a virtual environment with httpx")
	}
	onEachServer(t, func(t *testing.T, on server) {
		for name, python := range interpreters {
			t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) {
				out := run(t, filepath.Join(source, "tests"), on.env("PYTHONPATH="), python, "-m",
					"unittest", "-v", "test_client")
				want(t, out, "(test_client.Gateway.", "(test_client.AsyncGateway.", "OK")
				for _, name := range []string{"test_changes", "test_no_update_is_lost"} {
					if skipped := regexp.MustCompile(`(?m)^` + name + ` .* skipped `).
						MatchString(out); skipped == on.replicaSet {
						t.Errorf("%s was skipped: %v", name, skipped)
					}
				}
				t.Log(out)
			})
		}
	})
}

// TestPythonSources checks that the client for threads is what the one for asyncio gives.
func TestPythonSources(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	source := filepath.Join(root(t), "clients", "python")
	run(t, source, nil, "python3", "-B", "generate.py", "--check")
}

// installPython returns the interpreter of a virtual environment with the package, installed from
// its source archive if python is Debian's, else from the directory. At last it installs it in
// place, as for work on the client: the directory's own files are used.
func installPython(t *testing.T, python, source string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "venv")
	run(t, source, nil, python, "-m", "venv", "--system-site-packages", dir)
	installed := filepath.Join(dir, "bin", "python")
	what := source
	if python == "/usr/bin/python3" {
		run(t, source, []string{"PYTHONPATH=build_backend"}, python, "-c",
			"import sys, mooring_build; mooring_build.build_sdist(sys.argv[1])", dir)
		what = filepath.Join(dir, "mooring_client-0.0.0.tar.gz")
	}
	pip := func(args ...string) {
		env := []string{"PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1"}
		run(t, source, env, installed, append([]string{"-m", "pip", "install"}, args...)...)
	}
	where := func() string {
		return run(t, t.TempDir(), []string{"PYTHONPATH="}, installed, "-c",
			"import mooring_client; print(mooring_client.__file__)")
	}
	pip(what)
	if got := where(); !strings.HasPrefix(got, dir) {
		t.Errorf("pip install %s: the package is at %s, want it below %s", what, got, dir)
	}
	pip("-e", source)
	if got := where(); !strings.HasPrefix(got, source) {
		t.Errorf("pip install -e: the package is at %s, want it below %s", got, source)
	}
	return installed
}

// lacks returns the first of these modules that a Python has not.
func lacks(t *testing.T, python string, modules ...string) string {
	t.Helper()
	for _, module := range modules {
		out := run(t, t.TempDir(), nil, python, "-c",
			"import importlib.util, sys; print(bool(importlib.util.find_spec('"+module+"')))")
		if out != "True\n" {
			return module
		}
	}
	return ""
}
