//go:build !linux

package proc

import "time"

// CPU returns ErrNoProcFS: this system does not tell the processor time of another process.
func CPU(int) (time.Duration, error) { return 0, ErrNoProcFS }
