package krb5_test

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/auth"
)

// kdc is a key distribution center of MIT Kerberos for the realm TEST.LOCAL, in a directory and at
// a port of its own. It trusts, and is trusted by, no other. It ends with the test.
type kdc struct {
	t   *testing.T
	dir string
	env map[string]string
}

const (
	realm    = "TEST.LOCAL"
	other    = "OTHER.LOCAL"
	host     = "db.example.com"
	password = "pencil-with-a-long-name"
)

// lookPath finds a program, also where Debian puts those of administrators.
func lookPath(t *testing.T, name string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	t.Skipf("%s is not installed (Debian: krb5-kdc, krb5-admin-server, krb5-user, sasl2-bin, "+
		"libsasl2-modules-gssapi-mit)", name)
	return ""
}

func startKDC(t *testing.T) *kdc {
	t.Helper()
	for _, program := range []string{
		"krb5kdc", "kdb5_util", "kadmin.local", "kinit", "sasl-sample-server",
	} {
		lookPath(t, program)
	}
	k := &kdc{t: t, dir: t.TempDir()}
	port := freePort(t)
	if err := os.Mkdir(k.path("conf.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	conf := "includedir " + k.path("conf.d") + `
[libdefaults]
 default_realm = %s
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
[realms]
 TEST.LOCAL = {
  kdc = 127.0.0.1:%d
 }
 OTHER.LOCAL = {
  kdc = 127.0.0.1:%[2]d
 }
`
	k.write("krb5.conf", fmt.Sprintf(conf, realm, port))
	// then users have a realm for the server
	k.write("server.conf", fmt.Sprintf(conf, "SERVER.LOCAL", port))
	k.write("kdc.conf", fmt.Sprintf(`[kdcdefaults]
 kdc_listen = 127.0.0.1:%d
 kdc_tcp_listen = 127.0.0.1:%[1]d
[realms]
 %s = {
  database_name = %[3]s/principal
  key_stash_file = %[3]s/stash
  acl_file = %[3]s/acl
  default_principal_flags = +preauth
 }
 OTHER.LOCAL = {
  database_name = %[3]s/other-principal
  key_stash_file = %[3]s/other-stash
  acl_file = %[3]s/acl
 }
`, port, realm, k.dir))
	k.env = map[string]string{
		"KRB5_CONFIG": k.path("krb5.conf"), "KRB5_KDC_PROFILE": k.path("kdc.conf"), "KRB5RCACHETYPE": "none",
		"KRB5_KTNAME": k.path("service.keytab"),
	}
	for _, r := range []string{realm, other} {
		k.run("", "kdb5_util", "create", "-s", "-P", "master", "-r", r)
		k.run("", "kadmin.local", "-r", r, "-q", "addprinc -pw trust krbtgt/"+other+"@"+realm)
	}
	k.run("", "kadmin.local", "-r", other, "-q", "addprinc -randkey mongodb/"+host)
	k.run("", "kadmin.local", "-r", other, "-q",
		"ktadd -k "+k.path("other.keytab")+" mongodb/"+host)
	k.run("", "kadmin.local", "-q", "addprinc -pw "+password+" user")
	k.run("", "kadmin.local", "-q", "addprinc -randkey mongodb/"+host)
	k.run("", "kadmin.local", "-q", "ktadd -k "+k.path("service.keytab")+" mongodb/"+host)
	k.listen()
	return k
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

func (k *kdc) path(name string) string { return filepath.Join(k.dir, name) }

func (k *kdc) write(name, text string) {
	k.t.Helper()
	if err := os.WriteFile(k.path(name), []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kdc) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(k.t.Context(), lookPath(k.t, program), args...)
	cmd.Env = os.Environ()
	for name, value := range k.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

func (k *kdc) run(input, program string, args ...string) {
	k.t.Helper()
	cmd := k.command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		k.t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
}

// listen starts the server, and waits until it says that it has.
func (k *kdc) listen() {
	k.t.Helper()
	cmd := k.command("krb5kdc", "-n", "-r", realm, "-r", other)
	out, err := cmd.StderrPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd.Stdout = cmd.Stderr
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "starting...") {
		k.t.Log(lines.Text())
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out)
	}()
	k.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait()
	})
}

// getenv is the environment of a client: krb5.conf, and what else the test gives.
func (k *kdc) getenv(pairs ...string) func(string) string {
	env := map[string]string{
		"KRB5_CONFIG": k.env["KRB5_CONFIG"], "KRB5CCNAME": "FILE:" + k.path("none"),
	}
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return env[name] }
}

// acceptor is Cyrus SASL over MIT Kerberos, which is what MongoDB's servers use, for one
// conversation. It speaks the line protocol of sasl-sample-server.
type acceptor struct {
	in    io.Writer
	out   *bufio.Scanner
	begun bool
	words []string // what the program said besides messages
}

func (k *kdc) acceptor(args ...string) *acceptor {
	k.t.Helper()
	server := []string{
		"-oL", lookPath(k.t, "sasl-sample-server"), "-s", "mongodb", "-d", host, "-m", "GSSAPI",
	}
	cmd := k.command("stdbuf", append(server, args...)...)
	cmd.Env = append(cmd.Env, "KRB5_CONFIG="+k.path("server.conf"))
	in, err := cmd.StdinPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &acceptor{in: in, out: bufio.NewScanner(out)}
}

// Step takes the client's message. The server is done once it has found out who the user is.
func (a *acceptor) Step(message []byte) (response []byte, done bool, err error) {
	if !a.begun {
		a.begun = true
		message = append([]byte("GSSAPI\x00"), message...)
		if _, err := a.receive(); err != nil { // the list of mechanisms
			return nil, false, err
		}
	}
	fmt.Fprintf(a.in, "C: %s\n", base64.StdEncoding.EncodeToString(message))
	response, err = a.receive()
	switch {
	case errors.Is(err, io.EOF) && a.user() != "":
		return nil, true, nil
	case errors.Is(err, io.EOF):
		return nil, false, fmt.Errorf("the server refused the client: %q", a.words)
	}
	return response, false, err
}

// receive returns the server's next message. At its end, or once it has told the user's name, the
// error is io.EOF.
func (a *acceptor) receive() ([]byte, error) {
	for a.out.Scan() {
		if text, ok := strings.CutPrefix(a.out.Text(), "S: "); ok {
			return base64.StdEncoding.DecodeString(text)
		}
		a.words = append(a.words, a.out.Text())
		if a.user() != "" {
			break
		}
	}
	return nil, io.EOF
}

// user returns the name of the user, as the server understood it.
func (a *acceptor) user() string {
	for _, line := range a.words {
		if text, ok := strings.CutPrefix(line, "Username: "); ok {
			return text
		}
	}
	return ""
}

// accept plays a conversation, and returns the user that the server found.
func (k *kdc) accept(c auth.Conversation, args ...string) (user string, err error) {
	k.t.Helper()
	a := k.acceptor(args...)
	message, err := c.First()
	for satisfied := false; err == nil; {
		payload, done, err := a.Step(message)
		if err != nil {
			return "", err
		}
		if done != satisfied {
			return "", fmt.Errorf("the server is done: %t, the client: %t", done, satisfied)
		}
		if done {
			return a.user(), nil
		}
		if message, satisfied, err = c.Next(payload); err != nil {
			return "", err
		}
	}
	return "", err
}
