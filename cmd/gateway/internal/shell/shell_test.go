package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

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

// cable is an end of a connection that loses what is written to it once the bool is true.
type cable struct {
	net.Conn
	lost *atomic.Bool
}

func (c cable) Write(b []byte) (int, error) {
	if c.lost.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestSilentConnection checks that a call ends when its connection is lost without a sign.
func TestSilentConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Bool
		server := grpc.NewServer(grpc.UnknownServiceHandler(
			func(_ any, stream grpc.ServerStream) error {
				lost.Store(true)
				<-stream.Context().Done()
				return nil
			}))
		s := &session{options: []grpc.DialOption{serve(t, server, &lost)}}
		cc, err := s.overNetwork(profile.Profile{Address: "http://10.0.0.1:27080"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = cc.Invoke(ctx, "/a/b", &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a call whose connection is lost = %v, want Unavailable", err)
		}
		s.close()
	})
}

// serve returns an option for connections to a server. What is written to them is lost once lost is
// true.
func serve(t *testing.T, server *grpc.Server, lost *atomic.Bool) grpc.DialOption {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := listener.DialContext(ctx)
		return cable{conn, lost}, err
	})
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
