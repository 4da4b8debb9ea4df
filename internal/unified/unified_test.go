package unified_test

import (
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/internal/spectest"
	"github.com/mooringdb/mooring/internal/unified"
)

const suite = "unified-test-format"

// TestValidPass runs the format's own tests that must pass.
func TestValidPass(t *testing.T) {
	unified.Run(t, unified.Suite{
		Name: suite, Folder: suite + "/tests/valid-pass",
	})
}

// TestValidFail runs the format's own tests that must fail.
func TestValidFail(t *testing.T) {
	unified.Run(t, unified.Suite{Name: suite, Folder: suite + "/tests/valid-fail", WantFailure: true})
}

// TestInvalid loads the files that no version of the format allows.
func TestInvalid(t *testing.T) {
	schemas := unified.NewSchemas(spectest.Dir(t, suite))
	for _, path := range spectest.Files(t, suite+"/tests/invalid") {
		spectest.Case(t, suite, path, filepath.Base(path), func(t *testing.T) {
			if _, err := schemas.Load(path); err == nil {
				t.Error("the file is valid, and must not be")
			}
		})
	}
}
