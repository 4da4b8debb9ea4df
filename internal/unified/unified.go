// Package unified runs tests of MongoDB's unified test format (unified-test-format.md of the
// specifications) against core/client, on deployments of package deployment. A test says which
// clients there are, what they do, what comes of it, and which events and log messages they emit.
//
// An operation, an argument, an option or an event that the runner does not know makes the test
// fail. A test that needs what the driver does not have yet is skipped with that reason. Operations
// are tables by name, so that a later feature of the driver adds its own. Package match decides
// what values match.
package unified

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/spectest"
)

// Suite holds a folder of test files.
type Suite struct {
	Name   string // the specification's folder, for the record
	Folder string // where the files are, below the specifications' folder
	// Skip are the cases that are not run, by the file's base name and the case's description, and
	// why. An empty description stands for all cases of the file. A row without a case fails the
	// test, and so does a case that is skipped, for whatever reason, and would pass.
	Skip map[[2]string]string
	// Later are the cases after whose last event others may come, and why: they end before all that
	// they have begun is over.
	Later map[[2]string]string
	// Engine runs the commands on data, in databases that it may lose; nil: the scripted
	// deployment does. Time stands still while it runs a command.
	Engine deployment.Engine
	// WantFailure says that no case may pass (the format's own "valid-fail").
	WantFailure bool
}

// Run runs all cases of a suite: each on every topology that it is for, in a bubble of its own with
// fake time.
func Run(t *testing.T, suite Suite) {
	schemas := NewSchemas(spectest.Dir(t, "unified-test-format"))
	stale := maps.Clone(suite.Skip)
	for _, path := range spectest.Files(t, suite.Folder) {
		delete(stale, [2]string{filepath.Base(path), ""})
		f, err := schemas.Load(path)
		if err != nil {
			spectest.Case(t, suite.Name, path, filepath.Base(path), func(t *testing.T) {
				if !suite.WantFailure {
					t.Fatal(err)
				}
			})
			continue
		}
		for _, test := range f.Tests {
			delete(stale, [2]string{filepath.Base(path), test.Description})
			spectest.Case(t, suite.Name, path, filepath.Base(path)+": "+test.Description,
				func(t *testing.T) {
					suite.run(t, f, test)
				})
		}
	}
	for row := range stale {
		t.Errorf("there is no case %q to skip", row)
	}
}

func (s Suite) run(t *testing.T, f *File, test Test) {
	if test.SkipReason != "" {
		spectest.Skip(t, "the test says: "+test.SkipReason)
	}
	environments, unmet := f.environments(test)
	if len(environments) == 0 {
		spectest.Skip(t, unmet)
	}
	reason := s.reason(f, test)
	if reason == "" {
		if missing := f.missing(test, s.WantFailure); missing != "" {
			reason = "needs " + missing
		}
	}
	if reason != "" {
		if !s.WantFailure && s.passes(t, f, test, environments) {
			t.Errorf("the case passes, but is skipped: %s", reason)
		}
		spectest.Skip(t, reason)
	}
	for _, env := range environments {
		t.Run(env.String(), func(t *testing.T) {
			_, later := s.Later[[2]string{filepath.Base(f.Path), test.Description}]
			err := s.inBubble(t, f, test, env, later)
			switch {
			case s.WantFailure && err == nil:
				t.Error("the test passed, and must not")
			case !s.WantFailure && err != nil:
				t.Error(err)
			}
		})
	}
}

// reason returns why the suite skips a case; "": it does not.
func (s Suite) reason(f *File, test Test) string {
	name := filepath.Base(f.Path)
	return cmp.Or(s.Skip[[2]string{name, test.Description}], s.Skip[[2]string{name, ""}])
}

// passes reports whether a case that is skipped passes on all environments that it is for.
func (s Suite) passes(t *testing.T, f *File, test Test, environments []environment) bool {
	for _, env := range environments {
		if s.inBubble(t, f, test, env, false) != nil {
			return false
		}
	}
	return true
}

func (s Suite) inBubble(
	t *testing.T, f *File, test Test, env environment, later bool,
) (err error) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, env.topology, env.version)
		d.RequireLogin(env.login)
		if s.Engine != nil {
			d.UseEngine(s.Engine)
		}
		r := newRun(d, f)
		r.later = later
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		defer cancel()
		err = errors.Join(r.test(ctx, test), r.close(ctx))
	})
	return err
}
