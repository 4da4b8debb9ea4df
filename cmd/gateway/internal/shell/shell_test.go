package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/profile"
)

// TestAddresses checks which addresses lead to a gateway, and what a missing file of authorities
// does.
func TestAddresses(t *testing.T) {
	for _, row := range []struct {
		address, authorities string
		want                 bool
	}{
		{"http://localhost", "", true},
		{"https://localhost:8443/", "", true},
		{"https://localhost:8443", t.TempDir() + "/ca.pem", false},
		{"localhost:8080", "", false},
		{"ftp://localhost", "", false},
		{"http://", "", false},
		{"http://localhost/v1", "", false},
	} {
		s := &session{}
		cc, err := s.overNetwork(profile.Profile{Address: row.address, CAFile: row.authorities})
		if (err == nil) != row.want || (cc != nil) != row.want {
			t.Errorf("%s: a connection: %t, %v", row.address, cc != nil, err)
		}
		for _, end := range s.closers {
			end()
		}
	}
}

// TestQuiet checks that --quiet, and nothing else, keeps a transfer from showing how far it is.
func TestQuiet(t *testing.T) {
	for _, quiet := range []bool{true, false} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.Bool("quiet", quiet, "")
		s := &session{Invocation: Invocation{Flags: flags, Stderr: io.Discard}}
		if p := s.progress("read", -1); (p.w == nil) != quiet {
			t.Errorf("quiet is %t, and it shows something: %t", quiet, p.w != nil)
		}
	}
}

// TestBrokenPipe checks that a command whose reader is gone ends without an error, and one whose
// connection to the deployment is gone with one.
func TestBrokenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	broken := &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"the output":                   {nil, false},
		"the connection to MongoDB":    {broken, true},
		"the connection, after a call": {client.Explain(fmt.Errorf("the server: %w", broken)), true},
	} {
		c := &Command{run: func(_ context.Context, s *session) error {
			if row.err != nil {
				return row.err
			}
			_, err := io.WriteString(s.Stdout, "a")
			return err
		}}
		got := c.Run(Invocation{
			Flags: pflag.NewFlagSet("", pflag.ContinueOnError), Stdout: w, Stderr: io.Discard,
		})
		if (got != nil) != row.want {
			t.Errorf("%s is broken: Run = %v, want an error: %t", name, got, row.want)
		}
		if row.want && errors.Is(got, ErrInterrupted) {
			t.Errorf("%s is broken: Run = %v", name, got)
		}
	}
}
