// Package metadata makes the client document of a connection's first hello, which tells clients
// apart in a server's logs (MongoDB Handshake, "client"). Functions pass in the facts about the
// machine; only ThisHost reads them from the system. The package sends nothing.
package metadata

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	driverName = "mooring"

	// MaxSize is the size limit of the whole document, in bytes: servers refuse a larger one.
	MaxSize = 512
	// MaxAppName is the size limit of the application's name, in bytes.
	MaxAppName = 128

	delimiter = "|"
)

// Client holds what the document says.
type Client struct {
	// AppName is the application's name, at most MaxAppName bytes; there is no default.
	AppName string
	// Libraries wrap the driver. Their names follow the driver's, innermost first.
	Libraries []Library
	Host      Host
}

// Library names a library that wraps the driver (the specification's DriverInfoOptions). Version
// and Platform may be empty.
type Library struct{ Name, Version, Platform string }

// Host describes where the driver runs. All fields but OSType may be empty.
type Host struct {
	OSType, OSName, OSVersion, Architecture string
	// DriverVersion is this module's version; Platform names the compiler.
	DriverVersion, Platform string
	Environment             Environment
}

// Document returns the client document, never larger than MaxSize: what does not fit is omitted
// or cut off, in the specification's order. It fails if AppName is too long, or if a library has
// no name or contains the delimiter.
func (c Client) Document() (bson.Raw, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	f := c.fields()
	for _, shrink := range shrinks {
		doc := f.document()
		over := len(doc) - MaxSize
		if over <= 0 {
			return doc, nil
		}
		shrink(&f, over)
	}
	return f.document(), nil
}

// shrinks make the document smaller, in order, until it fits. The specification has the first
// four; the last two are for long texts of libraries.
var shrinks = []func(f *fields, over int){
	func(f *fields, _ int) { f.env = Environment{Name: f.env.Name} },
	func(f *fields, _ int) { f.osName, f.osVersion, f.arch = "", "", "" },
	func(f *fields, _ int) { f.env = Environment{} },
	func(f *fields, over int) { f.platform = cut(f.platform, over) },
	func(f *fields, over int) { f.versions = cut(f.versions, over) },
	func(f *fields, over int) { f.names = cut(f.names, over) },
}

func (c Client) check() error {
	if n := len(c.AppName); n > MaxAppName {
		return fmt.Errorf("application name of %d bytes is longer than %d", n, MaxAppName)
	}
	if !utf8.ValidString(c.AppName) {
		return errors.New("application name is not UTF-8")
	}
	for _, lib := range c.Libraries {
		if lib.Name == "" {
			return errors.New("a library that wraps the driver has no name")
		}
		all := lib.Name + lib.Version + lib.Platform
		if strings.Contains(all, delimiter) || !utf8.ValidString(all) {
			return fmt.Errorf("library %q that wraps the driver: its texts must be UTF-8 "+
				"without %q", lib.Name, delimiter)
		}
	}
	return nil
}

// fields holds the parts of the document. names and versions are those of the libraries, each
// with the delimiter before it.
type fields struct {
	app                       string
	version, names, versions  string
	osType, osName, osVersion string
	arch, platform            string
	env                       Environment
}

func (c Client) fields() fields {
	f := fields{
		app: c.AppName, version: c.Host.DriverVersion,
		osType: c.Host.OSType, osName: c.Host.OSName, osVersion: c.Host.OSVersion,
		arch:     c.Host.Architecture,
		platform: c.Host.Platform, env: c.Host.Environment,
	}
	for _, lib := range c.Libraries {
		f.names += delimiter + lib.Name
		f.versions += after(lib.Version)
		f.platform += after(lib.Platform)
	}
	if f.osType == "" {
		f.osType = "unknown"
	}
	return f
}

func after(text string) string {
	if text == "" {
		return ""
	}
	return delimiter + text
}

func (f *fields) document() bson.Raw {
	b := bson.NewBuilder(nil)
	if f.app != "" {
		b.OpenDocument("application").String("name", f.app).Close()
	}
	b.OpenDocument("driver").
		String("name", driverName+f.names).String("version", f.version+f.versions).Close()
	b.OpenDocument("os").String("type", f.osType)
	appendString(b, "name", f.osName)
	appendString(b, "architecture", f.arch)
	appendString(b, "version", f.osVersion)
	b.Close()
	appendString(b, "platform", f.platform)
	f.env.append(b)
	return b.Finish()
}

func appendString(b *bson.Builder, key, value string) {
	if value != "" {
		b.String(key, value)
	}
}

// cut removes at least n bytes from the end of s, without splitting a character.
func cut(s string, n int) string {
	end := len(s) - n
	if end <= 0 {
		return ""
	}
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
