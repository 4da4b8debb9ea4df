package login_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
)

// buildFerretDB builds the command of the pinned module. It needs a file with its version, which
// the module lacks, so it is built from a copy.
func buildFerretDB(t *testing.T) string {
	t.Helper()
	const module = "github.com/FerretDB/FerretDB"
	dir := t.TempDir()
	source, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	path, version, _ := strings.Cut(strings.TrimSpace(string(source)), " ")
	fork := filepath.Join(dir, "source")
	if err := os.CopyFS(fork, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fork, "build/version/version.txt"), []byte(version),
		0o600); err != nil {
		t.Fatal(err)
	}
	root, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	lab := filepath.Dir(strings.TrimSpace(string(root)))
	for _, suffix := range []string{"mod", "sum"} {
		text, err := os.ReadFile(filepath.Join(lab, "go."+suffix))
		if err != nil {
			t.Fatal(err)
		}
		if suffix == "mod" {
			text = append(text, "\nreplace "+module+" => "+fork+"\n"...)
		}
		if err := os.WriteFile(filepath.Join(dir, "lab."+suffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "ferretdb")
	build := exec.Command("go", "build", "-trimpath", "-modfile="+filepath.Join(dir, "lab.mod"),
		"-o", binary, module+"/cmd/ferretdb")
	build.Dir = lab
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build FerretDB: %v\n%s", err, out)
	}
	return binary
}

// startFerretDB starts it with a user, and returns its address.
func startFerretDB(t *testing.T, user, password string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	dir := t.TempDir()
	var log bytes.Buffer
	cmd := exec.Command(buildFerretDB(t), "--handler=sqlite", "--sqlite-url=file:"+dir+"/",
		"--state-dir="+dir, "--listen-addr="+addr,
		"--debug-addr=-", "--telemetry=disable", "--test-enable-new-auth",
		"--setup-database=admin", "--setup-username="+user, "--setup-password="+password)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for deadline := time.Now().Add(waitTime); time.Now().Before(deadline); {
		if nc, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			_ = nc.Close()
			return addr
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Fatalf("FerretDB does not listen: %s", log.String())
	return ""
}

// run runs commands of an admin database as a user.
func run(t *testing.T, addr, user, password, options string, commands ...bson.Raw) error {
	t.Helper()
	cfg, err := connstring.Parse(fmt.Sprintf("mongodb://%s@%s/?directConnection=true&serverSelectionTimeoutMS=10000%s",
		url.UserPassword(user, password), addr, options))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	for _, command := range commands {
		if _, err := c.RunCommand(ctx, "admin", command, client.RunCommandOptions{}); err != nil {
			return err
		}
	}
	_, err = c.Find(ctx, client.Namespace{Database: "shop", Collection: "orders"},
		client.FindOptions{})
	return err
}

// TestFerretDB logs in to a server that is not ours. The server lets users in by SCRAM-SHA-256 and
// SCRAM-SHA-1, and refuses others.
func TestFerretDB(t *testing.T) {
	if testing.Short() {
		t.Skip("builds FerretDB")
	}
	const password = "I\u00ADX of the user" // SASLprep drops the soft hyphen
	addr := startFerretDB(t, "app", password)
	create := bson.NewBuilder(nil).String("createUser", "old").String("pwd", "pencil").
		OpenArray("roles").Close().
		OpenArray("mechanisms").String("", "SCRAM-SHA-1").Close().Finish()
	if err := run(t, addr, "app", password, "", create); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, user, password, options string
		refused                       auth.Kind // unknown: it is not
	}{
		{"negotiated", "app", password, "", auth.KindUnknown},
		{"configured", "app", password, "&authMechanism=SCRAM-SHA-256", auth.KindUnknown},
		{"prepared", "app", "IX of the user", "", auth.KindUnknown},
		{"only SCRAM-SHA-1", "old", "pencil", "", auth.KindUnknown},
		{"SCRAM-SHA-1 configured", "old", "pencil", "&authMechanism=SCRAM-SHA-1", auth.KindUnknown},
		{"wrong password", "app", "I-X of the user", "", auth.KindRejected},
		{"unknown user", "nobody", password, "", auth.KindRejected},
		{"not the user's mechanism", "old", "pencil", "&authMechanism=SCRAM-SHA-256", auth.KindMechanism},
		{"another database", "app", password, "&authSource=shop", auth.KindRejected},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := run(t, addr, row.user, row.password, row.options)
			if row.refused != auth.KindUnknown {
				failed, ok := errors.AsType[*auth.Error](err)
				if !ok || failed.Kind != row.refused ||
					strings.Contains(err.Error(), row.password) {
					t.Errorf("find = %v, want a login that is refused", err)
				}
				return
			}
			if err != nil {
				t.Errorf("find = %v", err)
			}
		})
	}
}
