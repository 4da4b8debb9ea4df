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
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
	"github.com/mooringdb/mooring/lab/lines"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// least is how many lines the pages have at least: without lines the test would say nothing.
const least = 110

// elsewhere lists what cannot run here, by how a line begins. These lines count as marked.
var elsewhere = []struct{ begins, why string }{
	{"kubectl ", "a cluster of Kubernetes"},
	{"helm ", "a cluster of Kubernetes (tools/helm renders the chart)"},
	{"docker ", "Docker"},
	{"mooring check --uri 'mongodb://localhost:41753/?tls=true", "a server with TLS"},
}

// TestPages pastes the lines of README.md and of docs into a shell, those of each page with what
// make run starts, and compares what they print with what the pages say. At most one line in ten
// may need something else than the embedded database.
func TestPages(t *testing.T) {
	for _, name := range []string{"bash", "curl", "jq", "make", "openssl"} {
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
	t.Run("pages", func(t *testing.T) {
		for _, page := range append([]string{filepath.Join(root, "README.md")}, pages...) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			found := lines.Read(string(text))
			if !slices.ContainsFunc(found, func(l lines.Line) bool { return !l.Setup }) {
				continue
			}
			t.Run(filepath.Base(page), func(t *testing.T) {
				t.Parallel()
				sum.add(paste(t, root, found))
			})
		}
	})
	t.Logf("%d lines, %d of them marked or listed, %d passed", sum.all, sum.marked, sum.passed)
	if sum.marked*10 > sum.all || sum.all < least {
		t.Errorf("%d of %d lines are marked: at most one in ten may be, and %d lines are the least",
			sum.marked, sum.all, least)
	}
}

// tally counts lines. Its counts are read when no page is being pasted.
type tally struct {
	mu                  sync.Mutex
	all, marked, passed int
}

func (n *tally) add(all, marked, passed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all, n.marked, n.passed = n.all+all, n.marked+marked, n.passed+passed
}

// paste runs the lines of a page, and returns how many there are of each kind.
func paste(t *testing.T, root string, page []lines.Line) (all, marked, passed int) {
	s := start(t, root)
	for _, l := range page {
		if l.Setup {
			_, _ = s.run(l.Command) // a line that needs it will say
			continue
		}
		all++
		if why := needs(l); why != "" {
			marked++
			t.Logf("line %d needs %s", l.Number, why)
			continue
		}
		output, err := s.run(l.Command)
		shown := s.addresses.Replace(l.Shown)
		switch {
		case err != nil:
			t.Errorf("line %d: %v\n%s\n%s", l.Number, err, l.Command, output)
		case !lines.Matches(shown, output):
			t.Errorf("line %d:\n%s\nprints\n%s\nand not\n%s", l.Number, l.Command, output, shown)
		default:
			passed++
		}
	}
	return all, marked, passed
}

// needs returns what a line needs that is not here.
func needs(l lines.Line) string {
	for _, e := range elsewhere {
		if strings.HasPrefix(l.Command, e.begins) {
			return e.why
		}
	}
	return l.Needs
}

// stack is what make run starts, and a shell with the variables of its banner.
type stack struct {
	dir       string // of the shell
	shell     io.Writer
	output    *bufio.Reader
	addresses *strings.Replacer
}

func start(t *testing.T, root string) *stack {
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
	database := ""
	for {
		text, err := p.Line(ctx)
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Tail())
		}
		if parts := before.FindStringSubmatch(text); parts != nil {
			database = strings.ReplaceAll(parts[1], "%3A", ":")
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
			"https://gateway.example:8080", parts[1], "https://mooring.example:8080", parts[1],
			"https://mooring.example:27080", "http://"+parts[2],
			"127.0.0.1:27017", database, " :9090", " 127.0.0.1:0", " :27081", " 127.0.0.1:0",
			"/run/secrets/", s.dir+"/", "/etc/mooring/", s.dir+"/")
		gateway := "GATEWAY=" + suite.Gateway(t) + " ROOT=" + root + "\n" +
			"export XDG_CONFIG_HOME=" + s.dir + "; mkdir mooring; " +
			"echo 'default: {address: http://" + parts[2] + "}' >mooring/profiles.yaml\n"
		if output, err := s.run(gateway + prelude + text + "\nKEY=none"); err != nil {
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
	return &stack{
		dir: cmd.Dir, shell: in, output: bufio.NewReader(out), addresses: strings.NewReplacer(),
	}
}

var (
	banner = regexp.MustCompile(`^export MOORING_REST=(\S+) MOORING_GRPC=(\S+) `)
	before = regexp.MustCompile(`before the embedded database mongodb://([^/]+)/`)
)

// prelude is what the pages say that their commands stand for, and the files that they name. A
// stream that has no end is ended after a moment, in which another client writes. A gateway is
// stopped once it listens; `mooring check` of a deployment that is an example is `mooring config
// check`, which opens no socket; and make prints what it would run.
const prelude = `
unset MAKEFLAGS MFLAGS MAKELEVEL
export MOORING_DRAIN_LINGER=0s
umask 077
mooring() {
	case "$1 $*" in
	serve*)
		rm -f addresses
		"$GATEWAY" "$@" --rest-address 127.0.0.1:0 --grpc-address 127.0.0.1:0 \
			--addresses-file addresses 2>log &
		local gateway=$!
		until [ -e addresses ]; do kill -0 $gateway 2>/dev/null || break; sleep 0.02; done
		kill -INT $gateway; wait $gateway || { cat log; false; };;
	check*.example*) shift; "$GATEWAY" config check "$@";;
	*) "$GATEWAY" "$@";;
	esac
}
bin/mooring() { mooring "$@"; }
make() { command make -C "$ROOT" -n "$@"; }
cp "$ROOT"/examples/policies/* .
printf 'mongodb://127.0.0.1:27017/' > uri
printf 'uriFile: %s/uri\nlog:\n  level: debug\n' "$PWD" > mooring.yaml
printf secret | tee password token client.keytab >/dev/null
mkdir mongodb && cp password mongodb
mooring key api new --principal ann | sed -n 's/^line *//p' | tee keys > api-keys
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost \
	-addext subjectAltName=DNS:localhost -keyout tls.key -out tls.crt 2>/dev/null
cp tls.crt ca.pem && cat tls.crt tls.key > client.pem
grpcurl() { go run github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4 "$@"; }
curl() {
	case "$*" in
	*:watch*)
		(sleep 0.5; command curl -s -H 'Content-Type: application/json' \
			-d '{"document": {"of": "another"}}' \
			"$MOORING_REST/v1/databases/shop/collections/orders/documents:insertOne" >/dev/null) &
		timeout 2 curl "$@"
		[ $? = 124 ];;
	*:live*)
		(sleep 0.5; for call in 'insertOne {"document": {"status": "open", "customer": "another"}}' \
			'deleteOne {"filter": {"customer": "another"}}'; do
			command curl -s -H 'Content-Type: application/json' -d "${call#* }" \
				"$MOORING_REST/v1/databases/shop/collections/orders/documents:${call%% *}" >/dev/null
			sleep 0.3
		done) &
		timeout 3 curl "$@"
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
	page := "Text with `curl`.\n\n    $ curl -s $API \\\n      -d '{\n        }'\n    " +
		"{\"a\":1,\n     \"b\":2}\n" +
		"\n    $ make run\n\ntext\n\n    export API=1 B=2\n\ntext\n\n    # needs MongoDB\n    $ " +
		"curl x\n    $ A=$(curl y |\n" +
		"      cat)\n\ntext\n\n```sh\ncurl z # needs MongoDB 8.0\n```\n\n```json\ncurl " +
		"no\n```\n\n1. list\n\n       $ grpcurl -plaintext a\n" +
		"\ntext\n\n    # mooring serve\n    A=/b \\\n      mooring check\n"
	want := []lines.Line{
		{Number: 3, Command: "curl -s $API \\\n  -d '{\n    }'", Shown: "{\"a\":1,\n \"b\":2}"},
		{Number: 9, Command: "make run"},
		{Number: 13, Command: "export API=1 B=2", Setup: true},
		{Number: 18, Command: "curl x", Needs: "MongoDB"},
		{Number: 19, Command: "A=$(curl y |\n  cat)"},
		{Number: 25, Command: "curl z # needs MongoDB 8.0", Needs: "MongoDB 8.0"},
		{Number: 34, Command: "grpcurl -plaintext a"},
		{Number: 39, Command: "A=/b \\\n  mooring check"},
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
		{"key  mooring_q1Jd3KZ0_5sW0…\nline  ann q1Jd3KZ0 MT….Kk…", "key mooring_abcdefgh_-_x\n" +
			"line ann abcdefgh A-.B_", true},
		{"line  ann q1Jd3KZ0 MT….Kk…", "line ben abcdefgh A-.B_", false},
		{`{"at":"2026-11-20T15:49:17.309Z"}`, `{"at":"2026-11-23T01:02:03Z"}`, true},
	} {
		if got := lines.Matches(c.shown, c.output); got != c.want {
			t.Errorf("Matches(%q, %q) = %v", c.shown, c.output, got)
		}
	}
}
