// Command image writes the gateway's image as an OCI archive for several architectures, without a
// daemon: the binaries that make release has built, and the CA certificates. The same files and
// time give the same bytes. deploy/Dockerfile makes the same image with Docker.
//
//	image -o mooring.oci.tar -version v0.1.0 -commit … -epoch 1700000000 linux/amd64=FILE …
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	output := flags.String("o", "", "the archive")
	flags.StringVar(&o.version, "version", "devel", "of the gateway")
	flags.StringVar(&o.commit, "commit", "unknown", "of the gateway")
	flags.StringVar(&o.certificates, "certificates", "/etc/ssl/certs/ca-certificates.crt",
		"authorities that the image trusts")
	epoch := flags.Int64("epoch", 0, "time of all files, in seconds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.time = time.Unix(*epoch, 0).UTC()
	if *output == "" || flags.NArg() == 0 {
		return errors.New("-o and a binary are needed, such as linux/amd64=mooring")
	}
	archive, err := build(o, flags.Args())
	if err != nil {
		return err
	}
	return os.WriteFile(*output, archive, 0o644) //nolint:gosec // a release is public
}

type options struct {
	version, commit, certificates string
	time                          time.Time
}

// What the image consists of, in the words of the OCI image specification.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
	manifest struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Config        descriptor        `json:"config"`
		Layers        []descriptor      `json:"layers"`
		Annotations   map[string]string `json:"annotations"`
	}
	config struct {
		platform
		Created string    `json:"created"`
		Config  execution `json:"config"`
		RootFS  rootFS    `json:"rootfs"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	execution struct {
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Env          []string            `json:"Env"`
		Entrypoint   []string            `json:"Entrypoint"`
		Cmd          []string            `json:"Cmd"`
		Labels       map[string]string   `json:"Labels"`
	}
)

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// gateway is how the image runs. A test compares it with deploy/Dockerfile.
var gateway = execution{
	User:         "65532:65532",
	ExposedPorts: map[string]struct{}{"27080/tcp": {}, "8080/tcp": {}, "27081/tcp": {}},
	Env:          []string{"MOORING_GRPC_ADDRESS=:27080", "MOORING_REST_ADDRESS=:8080"},
	Entrypoint:   []string{"/mooring"},
	Cmd:          []string{"serve"},
}

// build returns the archive of the images of some binaries, each of which is os/arch=file.
func build(o options, binaries []string) ([]byte, error) {
	b := builder{options: o}
	images := index{SchemaVersion: 2, MediaType: indexType}
	for _, binary := range binaries {
		target, file, ok := strings.Cut(binary, "=")
		system, arch, known := strings.Cut(target, "/")
		if !ok || !known {
			return nil, fmt.Errorf("%q is not os/arch=file", binary)
		}
		d, err := b.image(platform{arch, system}, file)
		if err != nil {
			return nil, err
		}
		images.Manifests = append(images.Manifests, d)
	}
	all, err := b.addJSON(indexType, images)
	if err != nil {
		return nil, err
	}
	all.Annotations = map[string]string{"org.opencontainers.image.ref.name": o.version}
	top, err := json.Marshal(index{2, indexType, []descriptor{all}})
	if err != nil {
		return nil, err
	}
	b.files = append([]file{
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", 0o644, top},
	}, b.files...)
	return pack(b.files, o.time)
}

// builder collects the files of an archive.
type builder struct {
	options
	files []file
}

type file struct {
	name string
	mode int64
	data []byte
}

func (b *builder) add(mediaType string, blob []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(blob))
	b.files = append(b.files, file{"blobs/sha256/" + sum, 0o644, blob})
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(blob)}
}

func (b *builder) addJSON(mediaType string, v any) (descriptor, error) {
	text, err := json.Marshal(v)
	return b.add(mediaType, text), err
}

// image adds the image of a binary, which has one layer.
func (b *builder) image(p platform, path string) (descriptor, error) {
	binary, err := os.ReadFile(path)
	if err != nil {
		return descriptor{}, err
	}
	certificates, err := os.ReadFile(b.certificates)
	if err != nil {
		return descriptor{}, err
	}
	layer, err := pack([]file{
		{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates},
		{"mooring", 0o755, binary},
	}, b.time)
	if err != nil {
		return descriptor{}, err
	}
	packed, err := compress(layer)
	if err != nil {
		return descriptor{}, err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":    "mooring",
		"org.opencontainers.image.version":  b.version,
		"org.opencontainers.image.revision": b.commit,
		"org.opencontainers.image.source":   "https://github.com/mooringdb/mooring",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	run := gateway
	run.Labels = labels
	c, err := b.addJSON(configType, config{
		platform: p, Created: b.time.Format(time.RFC3339), Config: run,
		RootFS: rootFS{"layers", []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return descriptor{}, err
	}
	d, err := b.addJSON(manifestType, manifest{
		2, manifestType, c, []descriptor{b.add(layerType, packed)}, labels,
	})
	d.Platform = &p
	return d, err
}

// pack returns a tar archive of files, which belong to root, and of the folders that they are in.
func pack(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	seen := map[string]bool{}
	for _, f := range files {
		for i, r := range f.name {
			if folder := f.name[:i] + "/"; r == '/' && !seen[folder] {
				seen[folder] = true
				h := &tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755, ModTime: at}
				if err := w.WriteHeader(h); err != nil {
					return nil, err
				}
			}
		}
		if seen[f.name] { // two images of the same bytes share it
			continue
		}
		seen[f.name] = true
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}
