// Package build tells which build of the gateway is running.
package build

import "runtime/debug"

// version is set by the linker, -ldflags "-X …/internal/build.version=v1.2.3", and by nothing else.
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
