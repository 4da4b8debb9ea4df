package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the processor time that the process has used so far, user and system, all its
// threads, ended ones included. It reads the process's own clock (clock_getcpuclockid(3)), which
// counts nanoseconds, where /proc/PID/stat counts ticks of 10 ms.
func CPU(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("processor time of %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
