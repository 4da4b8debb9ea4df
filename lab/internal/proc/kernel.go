package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ErrNoProcFS is returned where the kernel has no /proc to read.
var ErrNoProcFS = errors.New("no /proc here")

// RSS returns the resident memory of the process, in bytes.
func RSS(pid int) (int64, error) { return statusField(pid, "VmRSS") }

// PeakRSS returns the largest resident memory since the start or the last ResetPeakRSS, in bytes.
func PeakRSS(pid int) (int64, error) { return statusField(pid, "VmHWM") }

// ResetPeakRSS makes PeakRSS begin again from what is resident now.
func ResetPeakRSS(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

func statusField(pid int, name string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoProcFS, err)
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest),
			"kB")), 10, 64)
		return kb << 10, err
	}
	return 0, fmt.Errorf("%w: /proc/%d/status has no %s", ErrNoProcFS, pid, name)
}
