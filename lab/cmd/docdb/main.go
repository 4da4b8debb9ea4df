// Command docdb runs PostgreSQL with DocumentDB on an empty database of its own, and a front that
// speaks MongoDB's protocol for it. It prints the connection string, and ends with its input or
// with a signal; its data end with it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/mooringdb/mooring/lab/docdb"
)

func main() {
	dir := flag.String("dir", os.Getenv("LAB_DOCDB"), "directory for the unpacked packages")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	err := run(ctx, *dir)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "docdb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	if dir == "" {
		return fmt.Errorf("--dir or LAB_DOCDB must name a directory")
	}
	if err := docdb.Unpack(ctx, dir); err != nil {
		return err
	}
	e, err := docdb.StartEngine(ctx, dir)
	if err != nil {
		return err
	}
	defer e.Stop()
	f, err := docdb.Listen(ctx, e.DSN(), docdb.Config{})
	if err != nil {
		return err
	}
	defer f.Close() //nolint:contextcheck // the front has a context of its own
	_, _ = fmt.Println(f.URI())
	<-ctx.Done()
	return nil
}
