package conn

import (
	"runtime"
	"runtime/debug"
	"sync"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	driverName = "mooring"
	modulePath = "github.com/mooringdb/mooring"

	maxAppName  = 128
	maxMetadata = 512 // of the client document, as the handshake specification says
)

// metadata is the document by which a server's logs tell its clients apart. Fields are given up, in the
// specification's order, until it is small enough.
func metadata(appName string) bson.Raw {
	m := fields{
		app: appName, version: version(),
		osType: osType(), arch: runtime.GOARCH, platform: runtime.Version(),
	}
	doc := m.document()
	if len(doc) > maxMetadata {
		m.arch = ""
		doc = m.document()
	}
	if over := len(doc) - maxMetadata; over > 0 {
		m.platform = cut(m.platform, len(m.platform)-over)
		doc = m.document()
	}
	return doc
}

type fields struct{ app, version, osType, arch, platform string }

func (f fields) document() bson.Raw {
	b := bson.NewBuilder(nil)
	if f.app != "" {
		b.OpenDocument("application").String("name", f.app).Close()
	}
	b.OpenDocument("driver").String("name", driverName).String("version", f.version).Close()
	b.OpenDocument("os").String("type", f.osType)
	if f.arch != "" {
		b.String("architecture", f.arch)
	}
	b.Close()
	if f.platform != "" {
		b.String("platform", f.platform)
	}
	return b.Finish()
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if n <= 0 {
		return ""
	}
	for n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:min(n, len(s))]
}

func osType() string {
	names := map[string]string{"linux": "Linux", "darwin": "Darwin", "windows": "Windows"}
	if name, ok := names[runtime.GOOS]; ok {
		return name
	}
	return runtime.GOOS
}

// version is this module's version in the running binary.
var version = sync.OnceValue(func() string {
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
})
