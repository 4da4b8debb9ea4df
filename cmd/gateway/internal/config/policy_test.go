package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/service/caller"
)

func TestPolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy")
	for _, row := range []struct{ text, want string }{
		{"permit (principal, action, resource);", ""},
		{"permit (", path + " cannot be used: the policy is not valid Cedar"},
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
		t.Error("a missing file is not an error")
	}
	for address, warned := range map[string]bool{"127.0.0.1:0": false, ":8080": true} {
		c, err := load(t, []string{"--uri", "mongodb://localhost", "--rest-address", address, "--grpc-address", "none", "--allow-plaintext", "--allow-unauthenticated"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(c.Warnings, func(w string) bool {
			return strings.Contains(w, "policy.file")
		}); got != warned {
			t.Errorf("%s: warnings %q", address, c.Warnings)
		}
	}
}

// TestOperators checks who may call DeploymentService without a policy.
func TestOperators(t *testing.T) {
	const keys = "--auth-api-keys-file"
	policy, key := filepath.Join(t.TempDir(), "policy"), filepath.Join(t.TempDir(), "keys")
	_, line, err := caller.NewKey("ann", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	permit := "permit (principal, action, resource);"
	for path, text := range map[string]string{policy: permit, key: line} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		args    []string
		want    []string
		problem string
	}{
		{nil, nil, ""},
		{[]string{keys, key}, []string{}, ""},
		{[]string{keys, key, "--auth-operators", " key:ann,jwt:bob , "}, []string{"key:ann", "jwt:bob"}, ""},
		{
			[]string{keys, key, "--auth-operators", "cert:CN=a,O=b\\, c,jwt:d\ncert:CN=e"},
			[]string{"cert:CN=a,O=b\\, c", "jwt:d", "cert:CN=e"},
			"",
		},
		{[]string{keys, key, "--auth-operators", "cert:CN=a,"}, []string{"cert:CN=a"}, ""},
		{
			[]string{keys, key, "--auth-operators", "cert:CN=a , ,key:ann\r\ncert:CN=e,O=f,\n"},
			[]string{"cert:CN=a", "key:ann", "cert:CN=e,O=f"},
			"",
		},
		{
			[]string{keys, key, "--auth-operators", `cert:CN=a\,key:b,cert:CN=c\,,cert:CN=d\\,key:e`},
			[]string{`cert:CN=a\,key:b`, `cert:CN=c\,`, `cert:CN=d\\`, "key:e"},
			"",
		},
		{[]string{keys, key, "--auth-operators", "cert:CN=a,,O=b"}, nil, `"O=b" must be key:NAME`},
		{[]string{keys, key, "--policy-file", policy}, nil, ""},
		{[]string{keys, key, "--auth-operators", "ann"}, nil, `"ann" must be key:NAME`},
		{[]string{keys, key, "--auth-operators", "key:ann,bob"}, nil, `"bob" must be key:NAME`},
		{[]string{keys, key, "--auth-operators", "key:"}, nil, `"key:" must be key:NAME`},
		{[]string{keys, key, "--auth-operators", "cert:a\nb"}, nil, `"b" must be key:NAME`},
		{[]string{"--auth-operators", "key:ann"}, nil, "needs authentication"},
		{
			[]string{keys, key, "--auth-operators", "key:ann", "--policy-file", policy},
			nil,
			"cannot be used with policy.file: permit operate there",
		},
	} {
		c, err := load(t, append([]string{"--uri", "mongodb://localhost"}, row.args...), nil)
		switch {
		case row.problem != "":
			if err == nil || !strings.Contains(err.Error(), row.problem) {
				t.Errorf("%q: error %v, want %s", row.args, err, row.problem)
			}
		case err != nil:
			t.Errorf("%q: %v", row.args, err)
		default:
			if got := c.Operators(); !slices.Equal(got, row.want) ||
				(got == nil) != (row.want == nil) {
				t.Errorf("%q: operators %q, want %q", row.args, got, row.want)
			}
		}
	}
}
