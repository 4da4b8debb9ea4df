package token_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/token"
	"github.com/mooringdb/mooring/core/auth/oidc"
)

func TestNoProvider(t *testing.T) {
	if p := token.Provider(config.Token{}); p != nil {
		t.Errorf("Provider of nothing = %v", p)
	}
}

// TestFile checks that the file is read for each token, so that it may change.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	p := token.Provider(config.Token{File: path})
	if _, err := p.Token(t.Context(), oidc.Request{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	for _, want := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Token(t.Context(), oidc.Request{}); err != nil || got.AccessToken != want {
			t.Errorf("%q, %v, want %q", got.AccessToken, err, want)
		}
	}
}

func TestCommand(t *testing.T) {
	const secret = "eyJ.secret.token"
	for _, tt := range []struct {
		name       string
		command    []string
		want, fail string
	}{
		{"a token", []string{"/bin/echo", " " + secret, ""}, secret, ""},
		{"no shell", []string{"/bin/echo", "$HOME;", "x y"}, "$HOME; x y", ""},
		{"a failure after a token", []string{"/bin/sh", "-c", "echo " + secret + "; exit 3"}, "", "run /bin/sh: exit status 3"},
		{"no such program", []string{"/no/such/program"}, "", "run /no/such/program: "},
		{"too much", []string{"/bin/sh", "-c", "while :; do echo " + secret + "; done"}, "", "more than 65536 bytes"},
		{"nothing", []string{"/bin/true"}, "", ""},
	} {
		got, err := token.Provider(config.Token{Command: tt.command}).
			Token(t.Context(), oidc.Request{})
		if got.AccessToken != tt.want || (err == nil) != (tt.fail == "") {
			t.Errorf("%s: %q, %v, want %q, %q", tt.name, got.AccessToken, err, tt.want, tt.fail)
		}
		if err != nil &&
			(!strings.Contains(err.Error(), tt.fail) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.fail)
		}
	}
}

// TestCommandThatHangs checks that the program is killed at the end of its time.
func TestCommandThatHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := token.Provider(config.Token{Command: []string{"/bin/sleep", "3600"}}).
		Token(ctx, oidc.Request{})
	if err == nil || ctx.Err() == nil {
		t.Errorf("Token = %v before its time was over", err)
	}
}
