// Command docdb runs PostgreSQL with DocumentDB on an empty database of its own, and a front that
// speaks MongoDB's protocol for it. Its data end with it.
//
// With a command as arguments, it runs the command with MOORING_TEST_URI set to the front's
// connection string, and exits as the command does. Without, it prints the connection string, and
// ends with its input or with a signal.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/docdb/engine"
)

func main() {
	dir := flag.String("dir", os.Getenv("LAB_DOCDB"), "directory for the unpacked packages")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, stop, *dir, flag.Args())
	stop()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(max(exit.ExitCode(), 1))
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "docdb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stop func(), dir string, command []string) error {
	if dir == "" {
		return errors.New("--dir or LAB_DOCDB must name a directory")
	}
	if err := engine.Unpack(ctx, dir); err != nil {
		return err
	}
	e, err := engine.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer e.Stop()
	f, err := docdb.Listen(ctx, e.DSN(), docdb.Config{})
	if err != nil {
		return err
	}
	defer f.Close() //nolint:contextcheck // the front has a context of its own
	if len(command) > 0 {
		return execute(ctx, f.URI(), command)
	}
	_, _ = fmt.Println(f.URI())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	<-ctx.Done()
	return nil
}

// execute runs a command on the server of a connection string. Once ctx ends, it asks the command
// to end, and waits for that.
func execute(ctx context.Context, uri string, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "MOORING_TEST_URI="+uri)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd.Run()
}
