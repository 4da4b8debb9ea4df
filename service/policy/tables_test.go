package policy_test

import (
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/service/policy/table"
)

// TestTables runs the tables of the ready policies, and those of this directory.
func TestTables(t *testing.T) {
	ready, err := filepath.Glob("../../examples/policies/*.yaml")
	if err != nil || len(ready) < 2 {
		t.Fatalf("ready policies: %v, %v", ready, err)
	}
	own, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(ready, own...) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			rows, p, err := table.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, failure := range rows.Run(p) {
				t.Error(failure)
			}
		})
	}
}
