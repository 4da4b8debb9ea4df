package metadata

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

const modulePath = "github.com/mooringdb/mooring"

// ThisHost returns the machine that the program runs on. Each call reads the environment
// variables again.
func ThisHost() Host {
	h := staticHost()
	h.Environment = Detect(os.Getenv, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
	return h
}

// staticHost returns what cannot change while the program runs.
var staticHost = sync.OnceValue(func() Host {
	h := Host{
		OSType: osTypes[runtime.GOOS], Architecture: machine(runtime.GOOS, runtime.GOARCH),
		DriverVersion: version(), Platform: runtime.Version(),
	}
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if data, err := os.ReadFile(file); err == nil {
			h.OSName, h.OSVersion = release(string(data))
			break
		}
	}
	return h
})

// osTypes are what uname -s says, or the family.
var osTypes = map[string]string{
	"linux": "Linux", "android": "Linux", "darwin": "Darwin", "ios": "Darwin", "windows": "Windows",
	"freebsd": "BSD", "netbsd": "BSD", "openbsd": "BSD", "dragonfly": "BSD",
	"aix": "Unix", "solaris": "Unix", "illumos": "Unix",
}

// machine returns the output of uname -m where Go uses another name.
func machine(goos, goarch string) string {
	switch {
	case goarch == "amd64":
		return "x86_64"
	case goarch == "arm64" && goos == "linux":
		return "aarch64"
	}
	return goarch
}

// release reads the name and the version from os-release(5).
func release(text string) (name, version string) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.ToValidUTF8(strings.Trim(value, `"'`), "\uFFFD")
		switch key {
		case "PRETTY_NAME":
			name = value
		case "VERSION_ID":
			version = value
		}
	}
	return name, version
}

// version returns this module's version in the running binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == modulePath {
			return m.Version
		}
	}
	if info.Main.Path == modulePath && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
