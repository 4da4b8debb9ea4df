package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy")
	for _, row := range []struct{ text, want string }{
		{"permit (principal, action, resource);", ""},
		{"permit (", path + " cannot be used: it is not Cedar"},
		{`@filter("") permit (principal, action, resource);`, "line 1: @filter"},
	} {
		if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := load(t, []string{"--uri", "mongodb://localhost", "--policy-file", path}, nil)
		if row.want == "" && (err != nil || c.Policy.Rules.Len() != 1 || c.Policy.JavaScript) {
			t.Errorf("%s: %v", row.text, err)
		}
		if row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: error %v, want %s", row.text, err, row.want)
		}
	}
	if _, err := load(t, []string{"--uri", "mongodb://localhost", "--policy-file", path + "x"}, nil); err == nil {
		t.Error("a missing file is no error")
	}
	for address, warned := range map[string]bool{"127.0.0.1:0": false, ":8080": true} {
		c, err := load(t, []string{"--uri", "mongodb://localhost", "--rest-address", address, "--grpc-address", "none", "--allow-plaintext", "--allow-unauthenticated"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(c.Warnings, func(w string) bool { return strings.Contains(w, "policy.file") }); got != warned {
			t.Errorf("%s: warnings %q", address, c.Warnings)
		}
	}
}
