// Package profile reads the file of profiles: which gateways and deployments the command line
// works with, and by which keys. It makes no connection.
package profile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// DefaultName is the profile that is used if none is named.
const DefaultName = "default"

// The environment variables.
const (
	nameVariable = "MOORING_PROFILE"
	keyVariable  = "MOORING_API_KEY"
)

// Profile says where commands go, and as whom.
type Profile struct {
	// Address is the URL of a gateway's gRPC port, or the connection string of a deployment.
	Address string `yaml:"address"`
	// KeyFile has the API key, or another token, in its first line.
	KeyFile string `yaml:"keyFile"`
	// CAFile has the authorities of the gateway's certificate; empty: the system's.
	CAFile string `yaml:"caFile"`

	// Key is what KeyFile or the environment has.
	Key string `yaml:"-"`
}

// Format keeps the key and the password of a connection string out of every verb.
func (Profile) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "profile.Profile(***)") }

// Given holds what the command line says.
type Given struct {
	// Name is that of a profile; empty: MOORING_PROFILE, or DefaultName.
	Name string
	// Address is used instead of a profile, if it is not empty.
	Address string
	// CAFile replaces that of the profile, if it is not empty.
	CAFile string
}

// Choose returns the profile to use, with its key. If none is named and there is none with
// DefaultName, its address is fallback. An address on the command line excludes profiles: the key
// of one is for its own address.
func Choose(given Given, environ []string, fallback string) (Profile, error) {
	var p Profile
	if given.Address == "" {
		name, path := cmp.Or(given.Name, variable(environ, nameVariable)), Path(environ)
		all, err := read(path)
		if err != nil {
			return p, err
		}
		var ok bool
		if p, ok = all[cmp.Or(name, DefaultName)]; !ok && name != "" {
			return p, fmt.Errorf("there is no profile %q in %s%s", name, path, list(all))
		}
	}
	p.Address = cmp.Or(given.Address, p.Address, fallback)
	p.CAFile = cmp.Or(given.CAFile, p.CAFile)
	if p.Key = variable(environ, keyVariable); p.Key == "" && p.KeyFile != "" {
		text, err := os.ReadFile(p.KeyFile)
		if err != nil {
			return p, fmt.Errorf("the key: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if p.Key = strings.TrimSpace(line); p.Key == "" {
			return p, fmt.Errorf("the key: %s begins with an empty line", p.KeyFile)
		}
	}
	return p, nil
}

// Path returns the path of the file: mooring/profiles.yaml in XDG_CONFIG_HOME or ~/.config. It is
// empty if there is no home.
func Path(environ []string) string {
	folder := variable(environ, "XDG_CONFIG_HOME")
	if folder == "" {
		home := variable(environ, "HOME")
		if home == "" {
			return ""
		}
		folder = filepath.Join(home, ".config")
	}
	return filepath.Join(folder, "mooring", "profiles.yaml")
}

// Names returns the names of the profiles, sorted.
func Names(environ []string) ([]string, error) {
	all, err := read(Path(environ))
	return slices.Sorted(maps.Keys(all)), err
}

// read returns the profiles of a file, none if it does not exist. The files that they name are
// relative to it; ~/ is the home.
func read(path string) (map[string]Profile, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the profiles: %w", err)
	}
	all := map[string]Profile{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil && !errors.Is(err, io.EOF) {
		words := strings.Join(strings.Fields(err.Error()), " ")
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(words, "yaml: "))
	}
	for name, p := range all {
		if p.Address == "" {
			return nil, fmt.Errorf("%s: the profile %q has no address", path, name)
		}
		p.KeyFile, p.CAFile = beside(path, p.KeyFile), beside(path, p.CAFile)
		all[name] = p
	}
	return all, nil
}

// beside returns the path of a file that the file of profiles names.
func beside(path, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	if rest, ok := strings.CutPrefix(file, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return filepath.Join(filepath.Dir(path), file)
}

func list(all map[string]Profile) string {
	if len(all) == 0 {
		return ""
	}
	return ", which has " + strings.Join(slices.Sorted(maps.Keys(all)), ", ")
}

func variable(environ []string, name string) string {
	for _, v := range slices.Backward(environ) {
		if text, ok := strings.CutPrefix(v, name+"="); ok {
			return text
		}
	}
	return ""
}
