// Package build tells which build of the gateway is running.
package build

import "runtime/debug"

// version and commit are set by the linker, -ldflags "-X …/internal/build.version=v1.2.3", and by
// nothing else.
var version, commit string

// unknown stands for what neither the linker nor Go recorded.
const unknown = "unknown"

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

// Commit returns the commit of the sources: what the linker was told, else what Go recorded, with
// -dirty if files had changed.
func Commit() string {
	if commit != "" {
		return commit
	}
	revision, dirty := unknown, ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "-dirty"
			}
		}
	}
	return revision + dirty
}
