package registry_test

import (
	"testing"

	"github.com/mooringdb/mooring/lab/internal/registry"
)

func TestUnreachable(t *testing.T) {
	for out, want := range map[string]string{
		"npm error code ENOTFOUND\nnpm error network": "ENOTFOUND",
		"Get \"https://x\": dial tcp: lookup x":       "dial tcp",
		"npm error 404 Not Found":                     "",
		"":                                            "",
	} {
		if got := registry.Unreachable(out); got != want {
			t.Errorf("Unreachable(%q) = %q, want %q", out, got, want)
		}
	}
}
