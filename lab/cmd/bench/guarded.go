package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/load"
)

// principal is whose API key the requests have.
const principal = "shop"

// startGuarded starts the gateway with an API key and a policy of 20 rules, of which the last one
// permits the requests.
func (b *bench) startGuarded(ctx context.Context, binary, uri string) error {
	out, err := exec.CommandContext(ctx, binary, "key", "api", "new", "--principal",
		principal).Output()
	if err != nil {
		return fmt.Errorf("key api new: %w", err)
	}
	key, line, ok := keyAndLine(string(out))
	if !ok {
		return fmt.Errorf("key api new: no key in %q", out)
	}
	b.key = key
	var files [2]string
	for i, text := range []string{line, twentyRules()} {
		files[i] = filepath.Join(b.directory, fmt.Sprintf("guard-%d", i))
		if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
			return err
		}
	}
	b.guarded, err = b.startGateway(ctx, "mooring, policy", gateway.Config{
		Binary: binary, URI: uri,
		Args: []string{"--auth-api-keys-file", files[0], "--policy-file", files[1]},
	})
	return err
}

// twentyRules returns a policy. Nineteen of its rules have a condition on claims and permit what is
// not asked for.
func twentyRules() string {
	var text strings.Builder
	for i := range 19 {
		fmt.Fprintf(&text, "permit (principal in Group::\"key:g%d\", action in "+
			"Action::\"read\", resource in Database::\"d%d\") "+
			"when { principal.claims has x && principal.claims.x == %d };\n", i, i, i)
	}
	fmt.Fprintf(&text, "permit (principal == Principal::\"key:%s\", action in "+
		"Action::\"read\", resource in Database::\"%s\");\n", principal, load.Database)
	return text.String()
}

// guardedCases returns the findOne with an API key and a policy, and without.
func (b *bench) guardedCases() []scenario {
	job := findOne
	job.Key = b.key // also to the gateway that does not ask for it
	return b.added("find-one-policy", b.guarded, job)
}

// keyAndLine reads what `mooring key api new` prints: the key, and its line for the file of keys.
func keyAndLine(text string) (key, line string, ok bool) {
	first, second, _ := strings.Cut(text, "\n")
	key, isKey := strings.CutPrefix(first, "key ")
	line, isLine := strings.CutPrefix(second, "line ")
	return strings.TrimSpace(key), strings.TrimSpace(line), isKey && isLine
}
