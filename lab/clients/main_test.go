package clients_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/registry"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) {
	code := suite.Run(m)
	for _, dir := range []string{tools.dir, deno.dir, workerd.dir, pyright.dir} {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// newDeployment makes a scripted replica set, which has transactions and change streams.
func newDeployment(t *testing.T) *deployment.Deployment {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	return deployment.ListenUnrecorded(t, deployment.ReplicaSet, "8.0.0")
}

// startScripted starts a gateway before a scripted replica set.
func startScripted(t *testing.T) *gatewaytest.Gateway {
	t.Helper()
	return suite.Start(t, newDeployment(t).URI(false, nil))
}

// server is what the clients' tests run on.
type server struct {
	*gatewaytest.Gateway
	database   string
	replicaSet bool // it has transactions, change streams and $expr
}

// env returns the variables that tell a client's tests where the server is.
func (s server) env(more ...string) []string {
	env := append(more, "MOORING_REST="+s.REST, "MOORING_DATABASE="+s.database)
	if s.replicaSet {
		env = append(env, "MOORING_REPLICA_SET=1")
	}
	return env
}

// onEachServer runs tests before a scripted replica set, and before the server of
// MOORING_TEST_URI, or else the embedded database. A server of MOORING_TEST_URI may have no
// transactions and no change streams, so tests of these do not run on it.
// The gateways have these options.
func onEachServer(t *testing.T, test func(t *testing.T, on server), options ...string) {
	t.Helper()
	t.Run("scripted replica set", func(t *testing.T) {
		test(t,
			server{suite.Start(t, newDeployment(t).URI(false, nil), options...), "clients", true})
	})
	name := "embedded database"
	if !suite.IsEmbedded() {
		name = "live server"
	}
	t.Run(name, func(t *testing.T) {
		test(t,
			server{suite.Start(t, suite.URI(t), options...), suite.Database(t), suite.IsEmbedded()})
	})
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a program, which must succeed whatever it says.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := output(t, dir, env, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// output runs a program and returns what it writes. It skips the test if the program is not
// installed.
func output(
	t *testing.T, dir string, env []string, name string, args ...string,
) (string, error) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// want checks that an output has each of these parts.
func want(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("the output does not say %q:\n%s", part, out)
		}
	}
}

// installTools returns a directory with what tools/npm/package.json names, which is installed once.
func installTools(t *testing.T) string {
	t.Helper()
	return tools.install(t, filepath.Join(root(t), "tools", "npm"))
}

// installDeno returns the path of Deno, which is installed once. It skips the test on systems other
// than Linux on amd64.
func installDeno(t *testing.T) string {
	t.Helper()
	dir := deno.install(t, filepath.Join("testdata", "deno"))
	path := filepath.Join(dir, "node_modules", "@deno", "linux-x64-glibc", "deno")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no Deno for this system: %v", err)
	}
	return path
}

// installWorkerd returns the path of workerd, which is installed once. It skips the test on systems
// other than Linux on amd64.
func installWorkerd(t *testing.T) string {
	t.Helper()
	dir := workerd.install(t, filepath.Join("testdata", "edge"))
	path := filepath.Join(dir, "node_modules", "@cloudflare", "workerd-linux-64", "bin", "workerd")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no workerd for this system: %v", err)
	}
	return path
}

// installPyright returns the path of pyright, which is installed once.
func installPyright(t *testing.T) string {
	t.Helper()
	dir := pyright.install(t, filepath.Join("testdata", "pyright"))
	return filepath.Join(dir, "node_modules", ".bin", "pyright")
}

var tools, deno, workerd, pyright packages

// packages is a copy of a directory with a package.json, in which npm has installed what that
// names.
type packages struct {
	once        sync.Once
	dir         string
	installed   bool
	unreachable bool // the registry
}

// install returns the copy, which it makes once. It skips the test if npm cannot install.
func (p *packages) install(t *testing.T, source string) string {
	t.Helper()
	p.once.Do(func() {
		//nolint:usetesting // it outlives the test that makes it
		dir, err := os.MkdirTemp("", "mooring-npm-")
		if err != nil {
			t.Fatal(err)
		}
		p.dir = dir
		if err := os.CopyFS(dir, files(source)); err != nil {
			t.Fatal(err)
		}
		defer func() { p.unreachable = t.Skipped() }()
		registry.Fetch(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-progress")
		p.installed = true
	})
	if p.unreachable {
		t.Skipf("npm: a registry cannot be reached after three tries: %s is not installed", source)
	}
	if !p.installed {
		t.Fatalf("npm has not installed %s", source)
	}
	return p.dir
}

// files returns what is under a directory, without what npm installs.
func files(dir string) fs.FS { return withoutModules{os.DirFS(dir)} }

type withoutModules struct{ fs.FS }

func (f withoutModules) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == "node_modules" || e.Name() == "build"
	}), err
}
