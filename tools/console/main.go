// Command console puts what web/ was built into beside the package that serves it, or compares the
// two. tools/console.sh runs it after the build.
//
//	go run ./tools/console pack      # web/build into service/console/dist
//	go run ./tools/console compare   # fails if they differ
//
// The files in dist are compressed, and the file sources has a hash of web/, so that a change of
// the sources alone is noticed where nothing can be built.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	web     = "web"
	dist    = "service/console/dist"
	suffix  = ".gz"
	sources = "sources"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	built, err := read(filepath.Join(web, "build"))
	if err != nil {
		return err
	}
	sum, err := hash(web)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "pack":
		return pack(dist, built, sum)
	case len(args) == 1 && args[0] == "compare":
		return compare(dist, built, sum)
	default:
		return errors.New("pack or compare?")
	}
}

// read returns the files of a folder by their paths below it.
func read(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	return files, err
}

// hash returns the hash of the sources: of the names, the sizes and the bytes of all files.
func hash(dir string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || path == filepath.Join(dir, "build")):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", filepath.ToSlash(name), len(text))
		h.Write(text)
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// pack replaces the files of dist.
func pack(dist string, built map[string][]byte, sum string) error {
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	for name, text := range built {
		path := filepath.Join(dist, filepath.FromSlash(name)+suffix)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, compress(text), 0o644); err != nil {
			return err
		}
		fmt.Printf("%7d %7d %s\n", len(text), len(compress(text)), name)
	}
	return os.WriteFile(filepath.Join(dist, sources), []byte(sum+"\n"), 0o644)
}

func compress(text []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("bug: " + err.Error())
	}
	return out.Bytes()
}

// compare returns an error unless dist has these files, byte for byte once they are inflated, and
// this hash.
func compare(dist string, built map[string][]byte, sum string) error {
	packed, err := read(dist)
	if err != nil {
		return err
	}
	if was := strings.TrimSpace(string(packed[sources])); was != sum {
		return fmt.Errorf("%s was built from other sources: run make console and commit", dist)
	}
	delete(packed, sources)
	for _, name := range slices.Sorted(maps.Keys(packed)) {
		text, err := inflate(packed[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		want, ok := built[strings.TrimSuffix(name, suffix)]
		if !ok || !bytes.Equal(text, want) {
			return fmt.Errorf("%s/%s is not what web/ gives: run make console and commit",
				dist, name)
		}
	}
	if len(packed) != len(built) {
		return fmt.Errorf("%s has %d files, and web/ gives %d: run make console and commit",
			dist, len(packed), len(built))
	}
	fmt.Printf("%s: %d files are what web/ gives\n", dist, len(built))
	return nil
}

func inflate(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
