package admission

import "syscall"

// yieldThread lets the kernel run another thread that is ready, if the processor has one. The
// threads of GOMAXPROCS may share one processor, where small calls would otherwise wait until the
// kernel has let heavy work go on for some milliseconds.
func yieldThread() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
