package cli

import (
	"fmt"
	"runtime/debug"
)

// version is set by the linker, -ldflags "-X …/internal/cli.version=v1.2.3", and by nothing else.
var version string

// Version returns the gateway's version: what the linker was told, else what Go recorded.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// printVersion is the command version.
func printVersion(c call) error {
	text := "mooring " + Version()
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
