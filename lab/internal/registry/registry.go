// Package registry runs package managers that need a registry of packages. It skips a test whose
// registry cannot be reached, and only for that: any other failure is one.
package registry

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// offline lists what npm and go say if they cannot reach a registry.
var offline = []string{
	"ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "dial tcp",
}

// pause is the time between two tries.
const pause = 5 * time.Second

// Fetch runs a package manager in a directory, with more environment variables, three times if it
// cannot reach its registry. Then it skips the test, as it does if the program is not installed. It
// returns the program's output.
func Fetch(t testing.TB, dir string, env []string, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	const tries = 3
	for try := 1; ; try++ {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return string(out)
		}
		cause := Unreachable(string(out))
		if cause == "" {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		if try == tries {
			t.Skipf("%s: a registry cannot be reached after three tries: %s", name, cause)
		}
		select {
		case <-time.After(pause):
		case <-t.Context().Done():
		}
	}
}

// Unreachable returns what in a package manager's output says that a registry cannot be reached;
// empty: nothing.
func Unreachable(out string) string {
	for _, cause := range offline {
		if strings.Contains(out, cause) {
			return cause
		}
	}
	return ""
}
