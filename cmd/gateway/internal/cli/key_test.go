package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/service/caller"
)

// TestAPIKey checks that the key that is printed counts by the line that is printed with it.
func TestAPIKey(t *testing.T) {
	for _, row := range []struct{ args, want string }{
		{"key api new --principal shop", "key:shop"},
		{"key api new --expires=1h --principal=shop", "key:shop"},
	} {
		code, stdout, stderr := run(nil, strings.Fields(row.args)...)
		lines := strings.Split(stdout, "\n")
		if code != 0 || stderr != "" || len(lines) != 3 ||
			!strings.HasPrefix(lines[0], "key   mooring_") ||
			!strings.HasPrefix(lines[1], "line  shop ") {
			t.Fatalf("%s = %d, %q, %q", row.args, code, stdout, stderr)
		}
		keys, err := caller.ParseKeys([]byte(strings.TrimPrefix(lines[1], "line  ")))
		if err != nil {
			t.Fatal(err)
		}
		a := caller.New(caller.Config{Keys: keys})
		id, err := a.Authenticate(t.Context(),
			&caller.Presented{APIKey: []string{strings.TrimPrefix(lines[0], "key   ")}})
		if err != nil || id.Principal != row.want {
			t.Errorf("%s: %v, %v", row.args, id, err)
		}
		if err == nil &&
			strings.Contains(row.args, "expires") != (time.Until(id.Expires) > 59*time.Minute) {
			t.Errorf("%s: expires %s", row.args, id.Expires)
		}
	}
	for args, want := range map[string]string{
		"key api new": "--principal is missing",
		"key api new --principal a --expires -1s": "negative",
		"key api new --principal #a":              "begins with #",
		"key api":                                 "usage: mooring key api new",
		"key api new --principal a b":             "usage: mooring key api new",
		"key":                                     "usage: mooring key new",
		"key old":                                 "the commands are key new, key api new",
	} {
		code, stdout, stderr := run(nil, strings.Fields(args)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s = %d, %q, %q; want %q", args, code, stdout, stderr, want)
		}
	}
}
