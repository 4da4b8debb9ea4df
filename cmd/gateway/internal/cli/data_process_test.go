package cli_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
)

// process returns a command line as a process.
func (w *world) process(t *testing.T, line string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], words(t, strings.ReplaceAll(line, "$DIR", w.dir))...)
	cmd.Env = []string{
		asGateway + "=1", "XDG_CONFIG_HOME=" + w.dir, "MOORING_PROFILE=test",
		"GOCOVERDIR=" + t.TempDir(), // with -cover a process without it warns
	}
	return cmd
}

// TestClosedPipe checks that a command whose reader is gone, as that of `| head` is, ends without
// an error.
func TestClosedPipe(t *testing.T) {
	w := newWorld(t)
	w.deployment.SetDocuments("shop.orders", fakemongo.Numbered(1, 5000, 1000)...)
	for kind, address := range w.addresses {
		t.Run(kind, func(t *testing.T) {
			w.use(t, address)
			cmd := w.process(t, "find shop.orders")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			first, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil || !strings.HasPrefix(first, `{"_id":1,`) {
				t.Errorf("the first line is %q, %v", first, err)
			}
			stdout.Close()
			if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
				t.Errorf("find into a closed pipe: %v, %q; want no error", err, &stderr)
			}
		})
	}
}

// TestInterrupt checks that SIGINT ends a command that waits, in order; and that it is how a watch
// ends, also one that has not begun.
func TestInterrupt(t *testing.T) {
	w := newWorld(t)
	reached := make(chan struct{}, 10)
	w.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "find" || cmd.Name == "aggregate" {
			reached <- struct{}{}
			return fakemongo.Hang()
		}
		return next(cmd)
	})
	for kind, address := range w.addresses {
		for _, row := range []struct {
			line, want string
			code       int
		}{
			{"find shop.orders", "mooring: interrupted\n", 130},
			{"watch shop.orders", "", 0},
		} {
			t.Run(kind+", "+row.line, func(t *testing.T) {
				w.use(t, address)
				cmd := w.process(t, row.line)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				<-reached
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
				ended := time.AfterFunc(30*time.Second, func() {
					_ = cmd.Process.Signal(syscall.SIGKILL)
				})
				defer ended.Stop()
				_ = cmd.Wait() // the code says how it has ended
				if code := cmd.ProcessState.ExitCode(); code != row.code ||
					stderr.String() != row.want {
					t.Errorf("after SIGINT: exit code %d, %q; want %d, %q", code, &stderr, row.code,
						row.want)
				}
			})
		}
	}
}

// TestKeys checks that the key comes from the environment, or from the file that a profile names,
// and that a gateway refuses no key and a wrong one.
func TestKeys(t *testing.T) {
	_, made, _ := run(nil, "key", "api", "new", "--principal", "ann")
	_, other, _ := run(nil, "key", "api", "new", "--principal", "ann")
	key, line, _ := strings.Cut(made, "\n")
	key = strings.Fields(key)[1]
	wrong := strings.Fields(other)[1]
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keys := write("keys", strings.TrimPrefix(line, "line")+"\n")
	w := newWorld(t, "--auth-api-keys-file", keys)
	w.use(t, w.addresses["gateway"]+"\n  keyFile: "+write("key", key+"\n"))
	for _, row := range []struct {
		name, line string
		environ    []string
		want       string
	}{
		{"the profile's", "count a.b", nil, "0\n"},
		{"the environment's first", "count a.b", []string{"MOORING_API_KEY=" + wrong}, "mooring: Unauthenticated: "},
		{"the environment's", "count a.b --address " + w.addresses["gateway"], []string{"MOORING_API_KEY=" + key}, "0\n"},
		{"none: that of a profile is for its address", "count a.b --address " + w.addresses["gateway"], nil, "mooring: Unauthenticated: "},
	} {
		said := w.run(t, row.line, "", row.environ...)
		if !strings.HasPrefix(said, row.want) || strings.Contains(said, key) ||
			strings.Contains(said, wrong) {
			t.Errorf("%s: %q, want %q", row.name, said, row.want)
		}
	}
}

// TestWatch checks that watch prints changes, goes on when the gateway is killed and another one
// has its place, ends with SIGINT, and begins with --continue where it has ended.
func TestWatch(t *testing.T) {
	w := newWorld(t)
	g := start(t, "--uri", w.addresses["deployment"])
	w.use(t, "http://"+g.GRPC)
	begin := func() (cmd *exec.Cmd, next func(want string)) {
		cmd = w.process(t, "watch shop.orders [] --continue $DIR/token")
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		lines := bufio.NewScanner(stdout)
		return cmd, func(want string) {
			t.Helper()
			if !lines.Scan() || !strings.Contains(lines.Text(), want) {
				t.Fatalf("watch prints %q, want %s", lines.Text(), want)
			}
		}
	}
	insert := func(id string) {
		t.Helper()
		said := w.run(t, "insert shop.orders {\"_id\":"+id+"} --address "+w.addresses["deployment"],
			"")
		if said != "{\"insertedId\":"+id+"}\n" {
			t.Fatal(said)
		}
	}
	opened := make(chan struct{}, 100)
	w.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		reply := next(cmd)
		if cmd.Name == "aggregate" {
			opened <- struct{}{}
		}
		return reply
	})
	cmd, next := begin()
	<-opened
	insert("1")
	next(`"documentKey":{"_id":1}`)
	g.send(t, syscall.SIGKILL)
	g.wait(t)
	insert("2")
	start(t, "--uri", w.addresses["deployment"], "--grpc-address", g.GRPC)
	next(`"documentKey":{"_id":2}`)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("watch ends with %v", err)
	}
	insert("3")
	_, next = begin()
	next(`"documentKey":{"_id":3}`)
}
