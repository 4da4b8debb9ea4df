package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/front"
)

const (
	index = "index.html"
	// hashed is the folder of the files whose names change with what they contain.
	hashed = "assets/"
	// suffix ends the names of the compressed files in dist. There are no others, but for sources.
	suffix = ".gz"
	// sources has the hash of what dist was built from.
	sources = "sources"
)

// The values of Cache-Control.
const (
	forever = "public, max-age=31536000, immutable"
	asking  = "no-cache"
)

// mediaTypes has the types of files by the ends of their names.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
	".json": "application/json",
}

// file holds one file of the console.
type file struct {
	gzip      []byte
	plain     func() []byte // inflates gzip once; few clients need it
	tag       string        // of plain
	mediaType string
	cache     string
}

// load reads dist.
func load(from fs.FS) (map[string]*file, error) {
	below, err := fs.Sub(from, "dist")
	if err != nil {
		return nil, err
	}
	files := map[string]*file{}
	err = fs.WalkDir(below, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == sources {
			return err
		}
		packed, err := fs.ReadFile(below, name)
		if err != nil {
			return err
		}
		plain, ok := strings.CutSuffix(name, suffix)
		if files[plain] = newFile(plain, packed); !ok || files[plain].mediaType == "" {
			return fmt.Errorf("the console has a file that it cannot serve: %s", name)
		}
		return nil
	})
	if err == nil && files[index] == nil {
		err = errors.New("the console has no " + index)
	}
	return files, err
}

func newFile(name string, packed []byte) *file {
	sum := sha256.Sum256(packed)
	f := &file{
		gzip: packed, tag: hex.EncodeToString(sum[:8]),
		mediaType: mediaTypes[path.Ext(name)], cache: asking,
		plain: sync.OnceValue(func() []byte { return inflate(packed) }),
	}
	if strings.HasPrefix(name, hashed) {
		f.cache = forever
	}
	return f
}

// inflate returns the text of a file that is built in.
func inflate(packed []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		var text []byte
		if text, err = io.ReadAll(r); err == nil {
			return text
		}
	}
	panic("bug: a file of the console cannot be inflated: " + err.Error())
}

// deflate returns a text as the files of dist have it.
func deflate(text []byte) []byte { return coding.Gzip.Append(nil, text) }

// write writes a whole response.
func write(x *front.Exchange, code int, text []byte) {
	x.Response.Header().Set("Content-Length", strconv.Itoa(len(text)))
	x.Response.WriteHeader(code)
	if x.Request().Method != http.MethodHead {
		x.Response.Write(text)
	}
}
