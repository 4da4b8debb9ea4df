// Package recorded holds what real servers sent: requests and replies as they went over the wire,
// recorded by lab/cmd/record. Tests replay them through the parsers of core. It does no I/O.
package recorded

import (
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
	"testing"
)

//go:embed testdata/*.txt
var files embed.FS

// Exchange holds one request with its reply, both whole messages.
type Exchange struct {
	Server         string // the file's name without its ending
	Name           string
	Request, Reply []byte
	// JSON is the document of the reply as canonical Extended JSON, written by the official Go
	// driver.
	JSON string
}

// Exchanges returns all exchanges, in the order of the files and of their lines.
func Exchanges(t testing.TB) []Exchange {
	t.Helper()
	entries, err := files.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var all []Exchange
	for _, e := range entries {
		text, err := files.ReadFile(path.Join("testdata", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found, err := parse(strings.TrimSuffix(e.Name(), ".txt"), string(text))
		if err != nil {
			t.Fatalf("%s: %v", e.Name(), err)
		}
		all = append(all, found...)
	}
	return all
}

// parse reads one file: exchanges of a title and three fields, empty lines and comments between
// them.
func parse(server, text string) ([]Exchange, error) {
	var all []Exchange
	for number, line := range strings.Split(text, "\n") {
		field, value, _ := strings.Cut(line, " ")
		if line == "" || field == "#" {
			continue
		}
		if field == "==" {
			all = append(all, Exchange{Server: server, Name: value})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("line %d: %q before the first exchange", number+1, field)
		}
		e := &all[len(all)-1]
		var err error
		switch field {
		case "request":
			e.Request, err = hex.DecodeString(value)
		case "reply":
			e.Reply, err = hex.DecodeString(value)
		case "json":
			e.JSON = value
		default:
			err = fmt.Errorf("unknown field %q", field)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
	}
	return all, nil
}
