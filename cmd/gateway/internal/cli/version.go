package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/mooringdb/mooring/cmd/gateway/internal/build"
)

// printVersion runs the command version.
func printVersion(c call) error {
	text := "mooring " + build.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		text += " " + info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				text += " " + s.Value
			}
		}
	}
	_, err := fmt.Fprintln(c.stdout, text)
	return err
}
