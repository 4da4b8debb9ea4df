// Package token obtains the gateway's access tokens for MONGODB-OIDC as the configuration says:
// from a file, or from a program. It caches nothing, since the mechanism does.
package token

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/core/auth/oidc"
)

const (
	maxOutput = 64 << 10        // output of a program; tokens are a twentieth of it
	waitDelay = 5 * time.Second // for the children of a killed program to close its output
)

// Provider returns the configured provider, nil if there is none.
func Provider(cfg config.Token) oidc.Provider {
	switch {
	case cfg.File != "":
		return oidc.TokenFile(cfg.File)
	case len(cfg.Command) > 0:
		return command(cfg.Command)
	}
	return nil
}

// command holds a program and its arguments. The program's standard output is the token; its
// standard error is the gateway's.
type command []string

// Token runs the program. It is killed if ctx ends.
func (c command) Token(ctx context.Context, _ oidc.Request) (oidc.Token, error) {
	var out output
	run := exec.CommandContext(ctx, c[0], c[1:]...)
	run.Stdout, run.Stderr, run.WaitDelay = &out, os.Stderr, waitDelay
	err := run.Run()
	if out.tooLong {
		err = fmt.Errorf("it wrote more than %d bytes", maxOutput)
	}
	if err != nil {
		return oidc.Token{}, fmt.Errorf("run %s: %w", c[0], err)
	}
	return oidc.Token{AccessToken: strings.TrimSpace(string(out.text))}, nil
}

// output keeps what a program writes, up to maxOutput.
type output struct {
	text    []byte
	tooLong bool
}

// Write fails once there is too much output, which ends the program.
func (o *output) Write(b []byte) (int, error) {
	if o.tooLong = o.tooLong || len(o.text)+len(b) > maxOutput; o.tooLong {
		return 0, errors.New("too long")
	}
	o.text = append(o.text, b...)
	return len(b), nil
}
