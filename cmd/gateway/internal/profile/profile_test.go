package profile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/profile"
)

func TestChoose(t *testing.T) {
	home := t.TempDir()
	path := profile.Path([]string{"HOME=" + home})
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(filepath.Dir(path), "prod.key")
	if err := os.WriteFile(key, []byte("  secret \nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const good = `
default: {address: "http://localhost:1"}
prod: {address: "https://prod:1", keyFile: prod.key, caFile: /ca.pem}
nokey: {address: "https://prod:1", keyFile: none.key}
`
	for _, row := range []struct {
		name    string
		file    string
		given   profile.Given
		environ string
		want    string // address, key and authorities, or the error
	}{
		{"no file", "", profile.Given{}, "", "fallback  "},
		{"no file, and a name", "", profile.Given{Name: "prod"}, "", `there is no profile "prod" in FILE`},
		{"the default", good, profile.Given{}, "", "http://localhost:1  "},
		{"by name", good, profile.Given{Name: "prod"}, "", "https://prod:1 secret /ca.pem"},
		{"by the environment", good, profile.Given{}, "MOORING_PROFILE=prod", "https://prod:1 secret /ca.pem"},
		{"by name first", good, profile.Given{Name: "default"}, "MOORING_PROFILE=prod", "http://localhost:1  "},
		{"another key", good, profile.Given{Name: "prod"}, "MOORING_API_KEY=other", "https://prod:1 other /ca.pem"},
		{"other authorities", good, profile.Given{Name: "prod", CAFile: "x"}, "", "https://prod:1 secret x"},
		{"an address, which gets no key of a profile", good, profile.Given{Address: "http://x"}, "MOORING_PROFILE=prod", "http://x  "},
		{"an unknown name", good, profile.Given{Name: "p"}, "", `there is no profile "p" in FILE, which has default, nokey, prod`},
		{"a key file that is not there", good, profile.Given{Name: "nokey"}, "", `the key: open DIR/none.key: no such file or directory`},
		{"an unknown field", "a: {address: x, key: secret}", profile.Given{}, "", "FILE: unmarshal errors: line 1: field key not found in type profile.Profile"},
		{"no address", "a: {}", profile.Given{}, "", `FILE: the profile "a" has no address`},
		{"no YAML", "a: [", profile.Given{}, "", "FILE: line 1: did not find expected node content"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if row.file != "" {
				if err := os.WriteFile(path, []byte(row.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p, err := profile.Choose(row.given, []string{"HOME=" + home, row.environ}, "fallback")
			got := p.Address + " " + p.Key + " " + p.CAFile
			if err != nil {
				got = strings.NewReplacer(path, "FILE", filepath.Dir(path), "DIR").
					Replace(err.Error())
			}
			if got != row.want {
				t.Errorf("Choose = %q, want %q", got, row.want)
			}
			if text := fmt.Sprintf("%v %+v %#v", p, p, p); strings.Contains(text, "secret") {
				t.Errorf("a profile shows its key: %s", text)
			}
		})
	}
}
