package lines_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
	"github.com/mooringdb/mooring/lab/lines"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// least is how many lines the pages have at least: without lines the test would say nothing.
const least = 60

// TestPages pastes the lines of README.md and of docs into a shell, those of each page with what
// make run starts, and compares what they print with what the pages say. At most one line in ten
// may need something else than the embedded database.
func TestPages(t *testing.T) {
	for _, name := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(name + " is not installed")
		}
	}
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var sum tally
	for _, page := range append([]string{filepath.Join(root, "README.md")}, pages...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := lines.Read(string(text))
		if !slices.ContainsFunc(found, func(l lines.Line) bool { return !l.Setup }) {
			continue
		}
		t.Run(filepath.Base(page), func(t *testing.T) { sum.paste(t, found) })
	}
	t.Logf("%d lines, %d of them marked, %d passed", sum.all, sum.marked, sum.passed)
	if sum.marked*10 > sum.all || sum.all < least {
		t.Errorf("%d of %d lines are marked: at most one in ten may be, and %d lines are the least",
			sum.marked, sum.all, least)
	}
}

// tally counts lines.
type tally struct{ all, marked, passed int }

// paste runs the lines of a page.
func (n *tally) paste(t *testing.T, page []lines.Line) {
	s := start(t)
	for _, l := range page {
		if l.Setup {
			_, _ = s.run(l.Command) // a line that needs it will say
			continue
		}
		n.all++
		if l.Needs != "" {
			n.marked++
			t.Logf("line %d needs %s", l.Number, l.Needs)
			continue
		}
		output, err := s.run(l.Command)
		switch {
		case err != nil:
			t.Errorf("line %d: %v\n%s\n%s", l.Number, err, l.Command, output)
		case !lines.Matches(l.Shown, output):
			t.Errorf("line %d:\n%s\nprints\n%s\nand not\n%s", l.Number, l.Command, output, l.Shown)
		default:
			n.passed++
		}
	}
}

// stack is what make run starts, and a shell with the variables of its banner.
type stack struct {
	shell     io.Writer
	output    *bufio.Reader
	addresses *strings.Replacer
}

func start(t *testing.T) *stack {
	t.Helper()
	admin := gatewaytest.FreeAddresses(t, 1)[0]
	p, err := proc.Start(proc.Config{Path: suite.Command(t, "run"), Args: []string{
		"--gateway", suite.Gateway(t), "--embedded", suite.Embedded(t),
		"--port", "0", "--grpc-port", "0", "--", "--admin-address=" + admin,
		"--data-api-sources=mongodb-atlas",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(time.Minute) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		text, err := p.Line(ctx)
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Tail())
		}
		parts := banner.FindStringSubmatch(text)
		if parts == nil {
			continue
		}
		p.Drain()
		rest := strings.TrimPrefix(parts[1], "http://")
		s := shell(t)
		s.addresses = strings.NewReplacer("127.0.0.1:8080", rest, "localhost:8080", rest,
			"127.0.0.1:27080", parts[2], "localhost:9090", admin,
			"https://gateway.example:8080", parts[1])
		if output, err := s.run(prelude + text + "\nKEY=none"); err != nil {
			t.Fatal(output, err)
		}
		return s
	}
}

// shell starts a shell in a directory of its own.
func shell(t *testing.T) *stack {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Dir = t.TempDir()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		cancel()
		_ = cmd.Wait()
	})
	return &stack{shell: in, output: bufio.NewReader(out), addresses: strings.NewReplacer()}
}

var banner = regexp.MustCompile(`^export MOORING_REST=(\S+) MOORING_GRPC=(\S+) `)

// prelude is what the pages say that their commands stand for. A stream that has no end is ended
// after a moment, in which another client writes.
const prelude = `
grpcurl() { go run github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4 "$@"; }
curl() {
	case "$*" in
	*:watch*)
		(sleep 0.5; command curl -s -H 'Content-Type: application/json' \
			-d '{"document": {"of": "another"}}' \
			"$MOORING_REST/v1/databases/shop/collections/orders/documents:insertOne" >/dev/null) &
		timeout 2 curl "$@"
		[ $? = 124 ];;
	*) command curl "$@";;
	esac
}
`

// run has the shell run a command, and returns what it prints.
func (s *stack) run(command string) (string, error) {
	const end = "@@end of the command "
	_, err := fmt.Fprintf(s.shell, "{ %s\n} </dev/null 2>&1\nprintf '\\n%s%%d\\n' $?\n",
		s.addresses.Replace(command), end)
	var output strings.Builder
	for err == nil {
		var text string
		text, err = s.output.ReadString('\n')
		if status, ended := strings.CutPrefix(text, end); ended {
			if status != "0\n" {
				err = errors.New("exit status " + strings.TrimSpace(status))
			}
			return strings.TrimSuffix(output.String(), "\n"), err
		}
		output.WriteString(text)
	}
	return output.String(), err
}

// TestRead reads a page with every form of a line.
func TestRead(t *testing.T) {
	page := "Text with `curl`.\n\n    $ curl -s $API \\\n      -d '{\n        }'\n    {\"a\":1,\n     \"b\":2}\n" +
		"\n    $ make run\n\ntext\n\n    export API=1 B=2\n\ntext\n\n    # needs MongoDB\n    $ curl x\n    $ A=$(curl y |\n" +
		"      cat)\n\ntext\n\n```sh\ncurl z # needs MongoDB 8.0\n```\n\n```json\ncurl no\n```\n\n1. list\n\n       $ grpcurl -plaintext a\n"
	want := []lines.Line{
		{Number: 3, Command: "curl -s $API \\\n  -d '{\n    }'", Shown: "{\"a\":1,\n \"b\":2}"},
		{Number: 13, Command: "export API=1 B=2", Setup: true},
		{Number: 18, Command: "curl x", Needs: "MongoDB"},
		{Number: 19, Command: "A=$(curl y |\n  cat)"},
		{Number: 25, Command: "curl z # needs MongoDB 8.0", Needs: "MongoDB 8.0"},
		{Number: 34, Command: "grpcurl -plaintext a"},
	}
	if got := lines.Read(page); !slices.Equal(got, want) {
		t.Errorf("Read() =\n%+v, want\n%+v", got, want)
	}
}

// TestMatches compares output with what pages show.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		shown, output string
		want          bool
	}{
		{"", `{"a":1}`, true},
		{"", `{"error":{"code":1}}`, false},
		{"{\"a\":1,\n \"b\":2}", `{"a":1,"b":2}`, true},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":1}`, `{"x":{"a":1}}`, false},
		{`{"a":"Ad9…","b":1}`, `{"a":"Ad9xyz","b":1}`, true},
		{`{"a":"…","b":1}`, `{"a":"Ad9xyz","b":2}`, false},
		{`{"at":"2026-11-20T15:49:17.309Z"}`, `{"at":"2026-11-23T01:02:03Z"}`, true},
	} {
		if got := lines.Matches(c.shown, c.output); got != c.want {
			t.Errorf("Matches(%q, %q) = %v", c.shown, c.output, got)
		}
	}
}
