package cli

import (
	"fmt"
	"runtime"

	"github.com/mooringdb/mooring/cmd/gateway/internal/build"
)

// printVersion runs the command version.
func printVersion(c call) error {
	_, err := fmt.Fprintf(c.stdout, "mooring %s commit %s %s\n", build.Version(), build.Commit(),
		runtime.Version())
	return err
}
