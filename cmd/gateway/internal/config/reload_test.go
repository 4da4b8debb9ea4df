package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
)

// TestAdopt writes a file, reads it, writes another one and tells which options change.
func TestAdopt(t *testing.T) {
	const key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, before, after string
		flags               []string
		want                []config.Change
		check               func(c *config.Config) bool
	}{
		{name: "nothing", before: "log: {level: warn}", after: "log: {level: warn} # as before"},
		{
			name: "a limit", before: "requests: {rate: 5}", after: "requests: {rate: 6}",
			want:  []config.Change{{Option: "requests.rate", From: "5", To: "6"}},
			check: func(c *config.Config) bool { return c.Requests.Rate == 6 },
		},
		{
			name: "to the default", before: "requests: {timeout: 5s}", after: "",
			want:  []config.Change{{Option: "requests.timeout", From: "5s", To: "0s"}},
			check: func(c *config.Config) bool { return c.RequestTimeout == 0 },
		},
		{
			name: "a limit that follows from another option", before: "requests: {maxInFlight: 7}", after: "",
			want:  []config.Change{{Option: "requests.maxInFlight", From: "7", To: "auto"}},
			check: func(c *config.Config) bool { return c.Requests.MaxInFlight == 100 },
		},
		{
			name: "what needs a restart", before: "drain: {timeout: 5s}", after: "drain: {timeout: 6s}\ntracing: {comment: true}",
			want: []config.Change{
				{Option: "drain.timeout", From: "5s", To: "6s", Restart: true},
				{Option: "tracing.comment", From: "false", To: "true"},
			},
			check: func(c *config.Config) bool { return c.DrainTimeout == 5*time.Second && c.Tracing.Comment },
		},
		{
			name: "a flag rules", before: "log: {level: warn}", after: "log: {level: debug}",
			flags: []string{"--log-level=error"},
		},
		{
			name: "the first key", before: "", after: "handle: {keys: " + key + "}\nidempotency: {key: " + key + "}",
			want: []config.Change{{Option: "handle.keys", Restart: true}, {Option: "idempotency.key", Restart: true}},
		},
		{
			name:   "the idempotency key",
			before: "idempotency: {key: " + key + "}", after: "idempotency: {key: [" + key + ", 2100-01-01T12:00:00Z " + key + "]}",
			want:  []config.Change{{Option: "idempotency.key"}},
			check: func(c *config.Config) bool { return c.Idempotency.Len() == 2 },
		},
		{
			name: "the same key from a file", before: "idempotency: {key: " + key + "}", after: "idempotency: {keyFile: " + keys + "}",
			want: []config.Change{{Option: "idempotency.key", Restart: true}},
		},
		{
			name: "the same key from a file no more", before: "idempotency: {keyFile: " + keys + "}", after: "idempotency: {key: " + key + "}",
			want: []config.Change{{Option: "idempotency.key", Restart: true}},
		},
		{
			name: "another connection string", before: "mongodb: {options: {appName: a}}", after: "mongodb: {options: {appName: b}}",
			want: []config.Change{{Option: "mongodb.options", Restart: true}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "c.yaml")
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(tt.before)
			c, err := load(t, append([]string{"--uri", uri, "--config", file}, tt.flags...), nil)
			if err != nil {
				t.Fatal(err)
			}
			write("drain: nonsense") // the file has changed since the caller has read it
			next, err := c.Again(tt.after)
			if err != nil {
				t.Fatal(err)
			}
			adopted, changes := c.Adopt(next)
			if !slices.Equal(changes, tt.want) {
				t.Errorf("changes: %+v, want %+v", changes, tt.want)
			}
			if tt.check != nil && !tt.check(adopted) {
				t.Error("the value is not the new one")
			}
			if adopted.FileSum != watch.Sum(tt.after) || adopted.File != file {
				t.Errorf("the file is %q", adopted.File)
			}
			var restarts []config.Change
			for _, change := range tt.want {
				if change.Restart {
					restarts = append(restarts, change)
				}
			}
			if _, again := adopted.Adopt(next); !slices.Equal(again, restarts) {
				t.Errorf("once more: %+v, want what needs a restart", again)
			}
			if _, err := c.Again("requests: {rate: many}"); err == nil {
				t.Error("a file that cannot be used is used")
			}
		})
	}
}
