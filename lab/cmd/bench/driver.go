package main

import (
	"context"
	"io"
	"path/filepath"

	"github.com/mooringdb/mooring/lab/internal/driverbench"
)

// runDriver measures the drivers on a server of its own process.
func runDriver(ctx context.Context, w io.Writer, rounds int) error {
	b, err := newProcesses()
	if err != nil {
		return err
	}
	defer b.stop()
	uri, _, err := b.start(ctx, "canned", filepath.Join(b.directory, "canned.sock"))
	if err != nil {
		return err
	}
	return driverbench.Run(ctx, w, uri, rounds)
}
