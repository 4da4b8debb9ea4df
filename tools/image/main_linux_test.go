package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// untar returns the files of an archive by their names.
func untar(t *testing.T, archive []byte) map[string]file {
	t.Helper()
	files := map[string]file{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := files[h.Name]; ok || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s is there twice, or does not belong to root", h.Name)
		}
		files[h.Name] = file{h.Name, h.Mode, data}
	}
}

// layout is an OCI archive as a reader sees it.
type layout struct {
	*testing.T
	files map[string]file
}

// blob returns the bytes of a descriptor, whose digest and size must be true.
func (l layout) blob(d descriptor) []byte {
	l.Helper()
	data := l.files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)].data
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); got != d.Digest ||
		len(data) != d.Size {
		l.Fatalf("%s has %d bytes of %s, want %d of %s", d.MediaType, len(data), got, d.Size,
			d.Digest)
	}
	return data
}

func (l layout) read(text []byte, to any) {
	l.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		l.Fatal(err)
	}
}

// image returns the configuration and the files of an image.
func (l layout) image(d descriptor) (config, map[string]file) {
	l.Helper()
	var m manifest
	var c config
	l.read(l.blob(d), &m)
	l.read(l.blob(m.Config), &c)
	r, err := gzip.NewReader(bytes.NewReader(l.blob(m.Layers[0])))
	if err != nil {
		l.Fatal(err)
	}
	layer, err := io.ReadAll(r)
	if err != nil {
		l.Fatal(err)
	}
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); len(m.Layers) != 1 ||
		c.RootFS.DiffIDs[0] != got || c.Architecture != d.Platform.Architecture {
		l.Errorf("the configuration says %v of %s, want %s of %v", c.RootFS, c.Architecture, got,
			d.Platform)
	}
	return c, untar(l.T, layer)
}

// TestImage makes an image of the gateway for two architectures, reads it as a registry's client
// does, and runs the file system of this machine's as the image's user, in a root of its own.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	dir := t.TempDir()
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	binary := filepath.Join(dir, "mooring")
	cmd := exec.CommandContext(t.Context(), "tools/build.sh", binary)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "VERSION=v1.2.3", "COMMIT=c0ffee")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	foreign := filepath.Join(dir, "other")
	write(t, foreign, "another architecture's")
	certificates := filepath.Join(dir, "ca.crt")
	write(t, certificates, "-----BEGIN CERTIFICATE-----")
	args := []string{
		"-version", "v1.2.3", "-commit", "c0ffee", "-epoch", "1700000000",
		"-certificates", certificates, "linux/" + runtime.GOARCH + "=" + binary, "linux/" + other + "=" + foreign,
	}
	archive := make([][]byte, 2)
	for i := range archive {
		path := filepath.Join(dir, fmt.Sprint(i, ".tar"))
		if err := run(append([]string{"-o", path}, args...)); err != nil {
			t.Fatal(err)
		}
		var err error
		if archive[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archive[0], archive[1]) {
		t.Error("the same files gave other bytes")
	}

	l := layout{t, untar(t, archive[0])}
	if got := string(l.files["oci-layout"].data); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout has %s", got)
	}
	var top, images index
	l.read(l.files["index.json"].data, &top)
	l.read(l.blob(top.Manifests[0]), &images)
	if len(top.Manifests) != 1 || len(images.Manifests) != 2 {
		t.Fatalf("the index has %v of %v", images.Manifests, top.Manifests)
	}
	_, files := l.image(images.Manifests[1])
	if got := string(files["mooring"].data); got != "another architecture's" {
		t.Errorf("the image for %s has another binary", other)
	}
	c, files := l.image(images.Manifests[0])
	compareWithDockerfile(t, c)
	if f := files["etc/ssl/certs/ca-certificates.crt"]; f.mode != 0o644 ||
		!bytes.HasPrefix(f.data, []byte("-----BEGIN")) {
		t.Errorf("the certificates have the mode %o and %d bytes", f.mode, len(f.data))
	}
	t.Run("runs", func(t *testing.T) { runImage(t, c, files) })
}

// runImage unpacks an image and runs the gateway's version in it.
func runImage(t *testing.T, c config, files map[string]file) {
	root := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("needs root: the image runs in a root directory of its own")
	}
	for name, f := range files {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as in the image
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.data, os.FileMode(f.mode)); err != nil { //nolint:gosec // as in the image
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil { //nolint:gosec // another user is to enter it
		t.Fatal(err)
	}
	var user, group uint32
	if _, err := fmt.Sscanf(c.Config.User, "%d:%d", &user, &group); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), c.Config.Entrypoint[0], "version")
	cmd.Path, cmd.Dir, cmd.Env = c.Config.Entrypoint[0], "/", c.Config.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: group},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "mooring v1.2.3 commit c0ffee") {
		t.Errorf("version: %v\n%s", err, out)
	}
}

// compareWithDockerfile checks that both ways to make the image agree.
func compareWithDockerfile(t *testing.T, c config) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(string(text), "FROM scratch\n")
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^(ENV|EXPOSE|USER|ENTRYPOINT|CMD) .*$`).
		FindAllString(last, -1) {
		lines = append(lines, strings.NewReplacer(`["`, "", `"]`, "").Replace(m))
	}
	want := []string{
		"ENV " + strings.Join(c.Config.Env, " "),
		"EXPOSE 27080 8080 27081",
		"USER " + c.Config.User,
		"ENTRYPOINT " + strings.Join(c.Config.Entrypoint, " "),
		"CMD " + strings.Join(c.Config.Cmd, " "),
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("deploy/Dockerfile has\n%q\nand the image\n%q", lines, want)
	}
	for _, port := range []string{"27080/tcp", "8080/tcp", "27081/tcp"} {
		if _, ok := c.Config.ExposedPorts[port]; !ok {
			t.Errorf("the image does not name the port %s", port)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, row := range []struct{ args, want string }{
		{"-o x", "-o and a binary are needed, such as linux/amd64=mooring"},
		{"linux/amd64=x", "-o and a binary are needed, such as linux/amd64=mooring"},
		{"-o x linux=x", `"linux=x" is not os/arch=file`},
		{"-o x linux/amd64=/no/such", "open /no/such: no such file or directory"},
	} {
		if err := run(strings.Fields(row.args)); err == nil || err.Error() != row.want {
			t.Errorf("image %s = %v, want %s", row.args, err, row.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
