package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrNoProcFS is returned where the kernel has no /proc to read.
var ErrNoProcFS = errors.New("no /proc here")

// clockTick is the unit of the times in /proc/PID/stat. USER_HZ is 100 on every architecture that
// Linux's Go runs on.
const clockTick = 10 * time.Millisecond

// CPU returns the processor time that the process has used so far, user and system, all its
// threads, ended ones included.
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoProcFS, err)
	}
	// The command's name, in parentheses, may itself hold spaces and parentheses.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const utime, stime = 11, 12 // fields 14 and 15 of proc_pid_stat(5); the first here is field 3
	if len(fields) <= stime {
		return 0, fmt.Errorf("%w: /proc/%d/stat has %d fields", ErrNoProcFS, pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[utime : stime+1] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

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
