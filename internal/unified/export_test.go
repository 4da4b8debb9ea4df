package unified

import (
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// RunTest runs one test, with the newest servers, and returns what is not as expected.
func RunTest(t *testing.T, f *File, test Test, topology deployment.Topology) error {
	env := environment{topology, deployment.Versions[0], deployment.NoLogin}
	return Suite{}.inBubble(t, f, test, env, false)
}

// Missing is what a test needs that is not there.
func (f *File) Missing(test Test) string { return f.missing(test, false) }

// Environments are those that a test is run on.
func (f *File) Environments(test Test) (names []string, unmet string) {
	all, unmet := f.environments(test)
	for _, e := range all {
		names = append(names, e.String())
	}
	return names, unmet
}
