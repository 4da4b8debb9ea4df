//go:build unix

package fetch_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mooringdb/mooring/core/auth/internal/fetch"
)

// A pipe that no process writes to blocks nothing, and a device does not fill the memory.
func TestFileThatIsNone(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero"} {
		if b, err := fetch.File(path); b != nil || err == nil ||
			!strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("File(%s) = %d bytes, %v", path, len(b), err)
		}
	}
}
