package recipes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// uri returns that of a scripted replica set.
func uri(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	return deployment.ListenUnrecorded(t, deployment.ReplicaSet, "8.0.0").URI(false, nil)
}

// page returns the text of a page of docs/.
func page(t *testing.T, name string) string {
	t.Helper()
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// between returns the part of a page from one text to the next other one, the first included.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, from)
	part, _, found := strings.Cut(rest, to)
	if !ok || !found {
		t.Fatalf("the page has nothing from %q to %q", from, to)
	}
	return from + part
}
