// Package memory decides how much memory the gateway uses: the budget of its calls, and the pace of
// the garbage collector. New decides, on values; Read reads what it decides on, and Apply sets the
// pace. A Trimmer returns memory after a burst. The package counts nothing: service/admission does.
package memory

import (
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Given holds what the environment of the process says.
type Given struct {
	// HasLimit says that GOMEMLIMIT is set, and Limit is its bytes; 0: there is no limit.
	HasLimit bool
	Limit    int64
	// HasPercent says that GOGC is set.
	HasPercent bool
	// Container is the memory limit of the container; 0: there is none.
	Container int64
}

// Plan says how much memory the gateway uses.
type Plan struct {
	// Budget is what all calls together may hold.
	Budget int64
	// Limit is the soft limit of the Go runtime, which collects more often near it; 0: it is not
	// set, since the operator has set it.
	Limit int64
	// Percent is the target of the collector far below the limit, as GOGC has it; 0: it is not set,
	// since the operator has set it.
	Percent int
}

const (
	// defaultBudget is the budget if there is no limit.
	defaultBudget = 512 << 20
	// percent lets the heap grow to five times what is in use, as long as there is room: a gateway
	// with little in use then collects seldom. Near the limit the runtime collects more often.
	percent = 400
)

// New decides, for a budget that the operator has chosen, or 0 for none. The runtime's limit is
// five quarters of the budget: what is beyond the budget is for connections, goroutines and what
// small calls hold.
func New(budget int64, g Given) Plan {
	p := Plan{Budget: budget}
	if !g.HasPercent {
		p.Percent = percent
	}
	limit := g.Limit
	if limit == 0 && g.Container > 0 {
		limit = g.Container / 10 * 9 // the rest is for what the runtime does not count
	}
	switch {
	case budget > 0 && limit > 0:
		limit = min(limit, budget/4*5)
	case budget > 0:
		limit = budget / 4 * 5
	case limit > 0:
		p.Budget = limit / 5 * 4
	default:
		p.Budget, limit = defaultBudget, defaultBudget/4*5
	}
	if !g.HasLimit {
		p.Limit = limit
	}
	return p
}

// Apply sets the pace of the collector.
func (p Plan) Apply() {
	if p.Limit > 0 {
		debug.SetMemoryLimit(p.Limit)
	}
	if p.Percent > 0 {
		debug.SetGCPercent(p.Percent)
	}
}

// Read reads what the environment says.
func Read() Given {
	g := Given{HasPercent: os.Getenv("GOGC") != "", Container: container(os.ReadFile)}
	g.HasLimit = os.Getenv("GOMEMLIMIT") != ""
	if limit := debug.SetMemoryLimit(-1); g.HasLimit && limit < math.MaxInt64 {
		g.Limit = limit
	}
	return g
}

// container returns the limit of the process's control group, 0 if there is none. It knows version
// 2, and version 1 as containers have it.
func container(read func(name string) ([]byte, error)) int64 {
	names := []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}
	if own, err := read("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(own)) {
			if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && group != "/" {
				names = append(names, path.Join("/sys/fs/cgroup", group, "memory.max"))
			}
		}
	}
	least := int64(0)
	for _, name := range names {
		text, err := read(name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		// Version 1 says that there is no limit with a number near the largest.
		if err == nil && n > 0 && n < 1<<60 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}
