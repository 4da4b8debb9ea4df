package clients_test

import (
	"archive/zip"
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestReadmes installs each package from its file into an empty folder, and runs there the lines
// that its README has.
func TestReadmes(t *testing.T) {
	t.Run("npm", func(t *testing.T) {
		dir := t.TempDir()
		installClient(t, dir)
		runReadme(t, dir, "typescript", "js", "main.js", nil, "node")
	})
	t.Run("pip", func(t *testing.T) {
		const python = "/usr/bin/python3"
		if missing := lacks(t, python, "venv", "ensurepip", "httpx"); missing != "" {
			t.Skipf("%s has no %s", python, missing)
		}
		dir := t.TempDir()
		runReadme(t, dir, "python", "python", "main.py",
			[]string{"PYTHONPATH=", "PYTHONUNBUFFERED=1"},
			installWheel(t, dir, python))
	})
}

// runReadme runs the first two programs of a client's README, the first until it shows a change.
func runReadme(t *testing.T, dir, client, language, name string, env []string, program string) {
	t.Helper()
	g := startScripted(t)
	text, err := os.ReadFile(filepath.Join(root(t), "clients", client, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").
		FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatalf("the README has no %s", language)
	}
	const insert = "/v1/databases/shop/collections/orders/documents:insertOne"
	if answer := g.Post(t, insert, `{"document": {"_id": 7, "total": 1}}`); answer.Status != 200 {
		t.Fatalf("insertOne: %s", answer.Body)
	}
	for i, block := range blocks {
		write(t, dir, name, strings.ReplaceAll(block[1], "http://127.0.0.1:8080", g.REST))
		if i > 0 {
			want(t, run(t, dir, env, program, name), "Grace")
			continue
		}
		out := runUntil(t, dir, env, "operationType", func() {
			g.Post(t, insert, `{"document": {"customer": "Eve"}}`)
		}, program, name)
		want(t, out, "Ada", "39.95", "operationType")
	}
}

// runUntil runs a program until it has written a word, and does something twenty times a second
// meanwhile.
func runUntil(
	t *testing.T, dir string, env []string, word string, do func(), name string, args ...string,
) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the program has it
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	var out strings.Builder
	again, limit := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for open := true; open; {
		select {
		case line, more := <-lines:
			if open = more; more {
				out.WriteString(line + "\n")
			}
			if strings.Contains(line, word) {
				_ = cmd.Process.Kill() // it may have ended
			}
		case <-again.C:
			do()
		case <-limit:
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // it was killed
	return out.String()
}

// installWheel returns the interpreter of an environment with the Python client's wheel.
func installWheel(t *testing.T, dir, python string) string {
	t.Helper()
	source := filepath.Join(root(t), "clients", "python")
	run(t, source, []string{"PYTHONPATH=build_backend", "PYTHONDONTWRITEBYTECODE=1"}, python, "-c",
		"import sys, mooring_build; mooring_build.build_wheel(sys.argv[1])", dir)
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("the wheels are %v, %v", wheels, err)
	}
	environment := filepath.Join(dir, "venv")
	run(t, dir, nil, python, "-m", "venv", "--system-site-packages", environment)
	installed := filepath.Join(environment, "bin", "python")
	run(t, dir, []string{"PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1"}, installed,
		"-m", "pip", "install", wheels[0])
	return installed
}

// TestGoInstall installs the gateway with the go command from a module proxy, as its README says.
// The proxy is a folder with this module; the others are from the module cache.
func TestGoInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	const version = "v0.0.1"
	proxy, bin := t.TempDir(), t.TempDir()
	writeModule(t, proxy, version)
	cache := strings.TrimSpace(run(t, root(t), nil, "go", "env", "GOMODCACHE"))
	run(t, t.TempDir(), []string{
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cache, "cache", "download"),
		"GONOSUMDB=*", "GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw -trimpath", "GOBIN=" + bin,
		"CGO_ENABLED=0", "GOTOOLCHAIN=local",
	}, "go", "install", "github.com/mooringdb/mooring/cmd/gateway@"+version)
	program := filepath.Join(bin, "mooring")
	if err := os.Rename(filepath.Join(bin, "gateway"), program); err != nil {
		t.Fatal(err)
	}
	want(t, run(t, bin, nil, program, "version"), "mooring "+version)
}

// writeModule writes this module as a proxy serves it: what git knows, but for the modules in it
// and links.
func writeModule(t *testing.T, proxy, version string) {
	t.Helper()
	const module = "github.com/mooringdb/mooring"
	dir := filepath.Join(proxy, module, "@v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, version+".mod", string(gomod))
	write(t, dir, version+".info", fmt.Sprintf(`{"Version": %q}`, version))
	write(t, dir, "list", version+"\n")
	archive, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	w := zip.NewWriter(archive)
	for _, name := range moduleFiles(t) {
		to, err := w.Create(module + "@" + version + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		from, err := os.Open(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(to, from)
		from.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// moduleFiles returns the names of the module's files.
func moduleFiles(t *testing.T) []string {
	t.Helper()
	all := strings.Split(run(t, root(t), nil, "git", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard"), "\x00")
	var others []string // the folders of other modules
	for _, name := range all {
		if folder, ok := strings.CutSuffix(name, "/go.mod"); ok {
			others = append(others, folder+"/")
		}
	}
	var files []string
	for _, name := range all {
		info, err := os.Lstat(filepath.Join(root(t), name))
		if err != nil || !info.Mode().IsRegular() || hasPrefix(name, others) {
			continue
		}
		files = append(files, name)
	}
	return files
}

func hasPrefix(name string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
