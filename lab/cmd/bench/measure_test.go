package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
		b := &bench{only: regexp.MustCompile(only)}
		for _, s := range b.scenarios() {
			all = append(all, s.name)
		}
		return all
	}
	if got := len(names("")); got != 11 {
		t.Errorf("%d cases, want 11", got)
	}
	want := []string{"rest-find-one-policy", "grpc-find-one-policy"}
	if got := names("policy$"); !slices.Equal(got, want) {
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
