package clients_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPython installs clients/python elsewhere and runs its tests there: with the python3 of the
// path, and with Debian's, which may have pymongo's package bson.
func TestPython(t *testing.T) {
	g := startScripted(t)
	source := filepath.Join(t.TempDir(), "python") // a build leaves files beside its sources
	if err := os.CopyFS(source, files(filepath.Join(root(t), "clients", "python"))); err != nil {
		t.Fatal(err)
	}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		t.Run(filepath.Base(filepath.Dir(python))+" "+filepath.Base(python), func(t *testing.T) {
			site := filepath.Join(t.TempDir(), "site")
			if missing := lacks(t, python, "pip", "setuptools", "wheel"); missing != "" {
				t.Logf("%s has no %s: the package is not installed but used where it is", python, missing)
				site = source
			} else {
				run(t, source, nil, python, "-m", "pip", "install", "--quiet", "--no-build-isolation",
					"--no-deps", "--no-index", "--target", site, source)
			}
			env := []string{
				"PYTHONPATH=" + site, "MOORING_REST=" + g.REST, "MOORING_DATABASE=python",
				"MOORING_CHANGES=1",
			}
			out := run(t, filepath.Join(source, "tests"), env, python, "-m", "unittest", "-v", "test_client")
			want(t, out, "test_changes (", "OK")
			t.Log(out)
		})
	}
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
