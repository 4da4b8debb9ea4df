package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/mooringdb/mooring/cmd/gateway/internal/cli"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// world is what the commands that work with data are tested in: a deployment, a gateway before it,
// and a folder.
type world struct {
	deployment *deployment.Deployment
	addresses  map[string]string // by kind
	dir        string
}

func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	d := deployment.ListenUnrecorded(t, deployment.ReplicaSet, "7.0.0")
	uri := d.URI(true, nil)
	g := start(t, append([]string{"--uri", uri}, args...)...)
	return &world{d, map[string]string{"gateway": "http://" + g.GRPC, "deployment": uri}, t.TempDir()}
}

// request is the id of a request in an error.
var request = regexp.MustCompile(` \(request [0-9a-f]+\)`)

// run runs a command line of a shell's words, and returns what it writes, and its exit code.
func (w *world) run(t *testing.T, line, stdin string, environ ...string) string {
	t.Helper()
	line = strings.ReplaceAll(line, "$DIR", w.dir)
	var stdout, stderr bytes.Buffer
	environ = append([]string{"XDG_CONFIG_HOME=" + w.dir, "MOORING_PROFILE=test"}, environ...)
	code := cli.Run(words(t, line), environ, strings.NewReader(stdin), &stdout, &stderr)
	said := stdout.String() + request.ReplaceAllString(stderr.String(), "")
	if code != 0 {
		said += fmt.Sprintf("exit code %d\n", code)
	}
	for _, address := range w.addresses {
		said = strings.ReplaceAll(said, address, "ADDRESS")
	}
	return strings.ReplaceAll(said, w.dir, "$DIR")
}

// use writes the profile of an address.
func (w *world) use(t *testing.T, address string) {
	t.Helper()
	path := filepath.Join(w.dir, "mooring", "profiles.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("test:\n  address: "+address+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

var word = regexp.MustCompile(`'[^']*'|\S+`)

// words splits a line as a shell does.
func words(t *testing.T, line string) []string {
	t.Helper()
	found := word.FindAllString(line, -1)
	for i, w := range found {
		found[i] = strings.Trim(w, "'")
	}
	return found
}

// TestData runs the stories of testdata/data, at a gateway and at the deployment itself: the
// commands cannot be told apart. Each step is a command line, and what it writes.
//
//	run [stdin=FILE]   a command line
//	file NAME          the content of a file of the folder
func TestData(t *testing.T) {
	stories, err := filepath.Glob("testdata/data/*")
	if err != nil || len(stories) == 0 {
		t.Fatal("there are no stories", err)
	}
	for _, path := range stories {
		for _, kind := range []string{"gateway", "deployment"} {
			t.Run(filepath.Base(path)+" at the "+kind, func(t *testing.T) {
				w := newWorld(t)
				w.use(t, w.addresses[kind])
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
					return w.step(t, d)
				})
			})
		}
	}
}

// TestWarningsOfTheConnectionString checks that commands say what they ignore in it, and that the
// completion of a command says nothing.
func TestWarningsOfTheConnectionString(t *testing.T) {
	w := newWorld(t)
	address := w.addresses["deployment"] + "&tls=True"
	said := w.run(t, "count shop.orders --address "+address, "")
	if !strings.HasPrefix(said, "0\nmooring: warning: Unsupported value for \"tls\"") {
		t.Errorf("count with tls=True = %q", said)
	}
	said = w.run(t, "complete count --address "+address+" shop.", "")
	if strings.Contains(said, "warning") {
		t.Errorf("complete with tls=True = %q", said)
	}
}

func (w *world) step(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "run":
		return w.run(t, d.Input, "")
	case "file":
		name := filepath.Join(w.dir, d.CmdArgs[0].Key)
		if err := os.WriteFile(name, []byte(d.Input+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return ""
	case "show":
		text, err := os.ReadFile(filepath.Join(w.dir, d.CmdArgs[0].Key))
		if err != nil {
			return err.Error() + "\n"
		}
		return string(text)
	}
	t.Fatalf("unknown step %q", d.Cmd)
	return ""
}
