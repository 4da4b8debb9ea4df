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
)

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
