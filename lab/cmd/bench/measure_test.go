package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestSamples(t *testing.T) {
	// A machine that is busy in the second round: both sides are slower there.
	ours, theirs := samples{10, 31, 12}, samples{9, 29, 10}
	if got, want := ours.minus(theirs), (samples{1, 2, 2}); !slices.Equal(got, want) {
		t.Errorf("minus = %v, want %v", got, want)
	}
	if got := ours.median(); got != 12 {
		t.Errorf("median = %v, want 12", got)
	}
	if got := (samples{4, 1, 3, 2}).median(); got != 2.5 {
		t.Errorf("median of an even number = %v, want 2.5", got)
	}
}

func TestCases(t *testing.T) {
	names := func(only string) (all []string) {
		b := &bench{callers: []int{1, 16}, only: regexp.MustCompile(only)}
		for _, s := range b.scenarios() {
			all = append(all, s.name)
		}
		return all
	}
	if got, want := len(names("")), 2*(2*len(requests)+4); got != want {
		t.Errorf("%d cases, want %d", got, want)
	}
	want := []string{"rest-find-one-policy", "grpc-find-one-policy"}
	if got := names("policy$"); !slices.Equal(got, want) {
		t.Errorf("cases %v, want %v", got, want)
	}
	want = []string{"rest-stream-callers-1", "rest-stream"}
	if got := names("rest-stream"); !slices.Equal(got, want) {
		t.Errorf("cases %v, want %v", got, want)
	}
}

// TestCollector checks that a run whose gateway sends no spans fails.
func TestCollector(t *testing.T) {
	s := httptest.NewServer(&collector{})
	defer s.Close()
	b := &bench{collector: s.URL}
	if err := b.checkCollector(t.Context()); err == nil {
		t.Error("a run without spans is good")
	}
	resp, err := http.Post(s.URL+"/v1/traces", "application/x-protobuf", strings.NewReader("spans"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := b.checkCollector(t.Context()); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("after a POST: %v, %s", err, resp.Status)
	}
}

// TestAuditLog checks that a run whose gateway writes no audit log fails.
func TestAuditLog(t *testing.T) {
	b := &bench{auditLog: filepath.Join(t.TempDir(), "audit.log")}
	for _, text := range []string{"", "a line\n"} { // no file yet, then an empty one
		if err := b.checkAudit(); err == nil {
			t.Errorf("a run without audit lines is good (before %q)", text)
		}
		if err := os.WriteFile(b.auditLog, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.checkAudit(); err != nil {
		t.Error(err)
	}
}

// TestPages compares the pages that show results with the results in testdata. To rewrite them:
// make performance-pages
func TestPages(t *testing.T) {
	const root = "../../.."
	rows, err := readResults("testdata/performance.json")
	if err != nil {
		t.Fatal(err)
	}
	files, err := pages(root, rows)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || string(got) != want {
			t.Errorf("%s does not show the results; make performance-pages rewrites it (%v)", path,
				err)
		}
	}
	for _, p := range protocols {
		for _, r := range requests {
			if _, ok := table(rows).trio(p.prefix + r.name); !ok {
				t.Errorf("no results of %s%s", p.prefix, r.name)
			}
		}
	}
}

// TestResults checks that rows are read as they were written.
func TestResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	rows := []row{
		{Case: "a", Side: ours, CPU: 1.5, Allocations: 2, P50: 3, P99: 4, Peak: 5},
		{Case: "b", Side: "audit", More: &more{1, 2}},
	}
	if err := writeResults(path, rows); err != nil {
		t.Fatal(err)
	}
	if got, err := readResults(path); err != nil || !reflect.DeepEqual(got, rows) {
		t.Errorf("readResults() = %+v, %v, want %+v", got, err, rows)
	}
}
