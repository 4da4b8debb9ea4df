package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// conflicts has a command meet a write conflict once for each time that it is set.
type conflicts struct {
	mu   sync.Mutex
	left map[string]int
}

func (c *conflicts) set(left map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = left
}

// take returns what was not met.
func (c *conflicts) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.left
	c.left = nil
	return left
}

func (c *conflicts) answer(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left[cmd.Name] == 0 || !cmd.Body.Has("autocommit") {
		return next(cmd)
	}
	c.left[cmd.Name]--
	if cmd.Name == "commitTransaction" {
		next(cmd)
		return fakemongo.Drop()
	}
	return fakemongo.Error(112, "WriteConflict", "a conflict", "TransientTransactionError")
}

// TestTransferExamples runs the examples of transactions as a user would, where what they need is
// installed, on a scripted replica set. The loops of Node and Python meet a conflict in the first
// transaction, and all lose the answer of a commit.
func TestTransferExamples(t *testing.T) {
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	d := deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	var trouble conflicts
	d.Disturb(trouble.answer)
	g := suite.Start(t, d.URI(false, nil))
	const (
		conflict = "run again: WriteConflict"
		again    = "payment-1 was made before: DuplicateKey"
		refused  = "ExpectationFailed"
		poor     = "anna does not have the money"
		end      = "anna has 75, ben has 75"
	)
	for _, tt := range []struct {
		language string
		needs    []string
		file     string
		trouble  map[string]int
		want     []string
	}{
		{
			"curl",
			[]string{"sh", "curl"},
			"transfer.sh",
			map[string]int{"commitTransaction": 1},
			[]string{`"matchedCount":1`, refused, `{"_id":"anna","balance":75},{"_id":"ben","balance":75}`, `[{"_id":"payment-1"},{"_id":"payment-2"}]`},
		},
		{
			"python",
			[]string{"python3"},
			"transfer.py",
			map[string]int{"update": 1, "commitTransaction": 1},
			[]string{conflict, again, refused, poor, end},
		},
		{
			"node",
			[]string{"node"},
			"transfer.js",
			map[string]int{"update": 1, "commitTransaction": 1},
			[]string{conflict, again, refused, poor, end},
		},
	} {
		t.Run(tt.language, func(t *testing.T) {
			for _, needed := range tt.needs {
				if _, err := exec.LookPath(needed); err != nil {
					t.Skipf("%s is not installed", needed)
				}
			}
			trouble.set(tt.trouble)
			cmd := exec.CommandContext(t.Context(), tt.needs[0], tt.file)
			cmd.Dir = filepath.Join(root, "examples", tt.language)
			cmd.Env = append(os.Environ(), "MOORING_REST="+g.REST, "MOORING_DATABASE="+tt.language)
			out, err := cmd.CombinedOutput()
			t.Logf("%s\n%s", tt.file, out)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range tt.want {
				if !strings.Contains(string(out), part) {
					t.Errorf("the output does not say %q", part)
				}
			}
			for name, left := range trouble.take() {
				if left > 0 {
					t.Errorf("no %s met the trouble", name)
				}
			}
		})
	}
}
