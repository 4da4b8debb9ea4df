package memory_test

import (
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/memory"
)

const mib = 1 << 20

// plan returns a plan with a budget and a limit in MiB.
func plan(budget, limit int64, percent int) memory.Plan {
	return memory.Plan{Budget: budget * mib, Limit: limit * mib, Percent: percent}
}

func TestNew(t *testing.T) {
	for _, test := range []struct {
		name   string
		budget int64
		given  memory.Given
		want   memory.Plan
	}{
		{"nothing", 0, memory.Given{}, plan(512, 640, 400)},
		{"a budget", 192 * mib, memory.Given{}, plan(192, 240, 400)},
		{"GOMEMLIMIT", 0, memory.Given{HasLimit: true, Limit: 250 * mib}, plan(200, 0, 400)},
		{
			"GOMEMLIMIT and GOGC", 0,
			memory.Given{HasLimit: true, Limit: 250 * mib, HasPercent: true},
			plan(200, 0, 0),
		},
		{
			"GOMEMLIMIT in a container", 0,
			memory.Given{HasLimit: true, Limit: 250 * mib, Container: mib},
			plan(200, 0, 400),
		},
		{"GOMEMLIMIT=off", 0, memory.Given{HasLimit: true}, plan(512, 0, 400)},
		{"a container", 0, memory.Given{Container: 500 * mib}, plan(360, 450, 400)},
		{
			"a budget in a container", 192 * mib,
			memory.Given{Container: 500 * mib},
			plan(192, 240, 400),
		},
		{
			"a large budget in a container", 1000 * mib,
			memory.Given{Container: 500 * mib},
			plan(1000, 450, 400),
		},
	} {
		if got := memory.New(test.budget, test.given); got != test.want {
			t.Errorf("%s: New = %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestContainer(t *testing.T) {
	const group = "/sys/fs/cgroup/memory.max"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"none", nil, 0},
		{"no limit", map[string]string{group: "max\n"}, 0},
		{"version 2", map[string]string{group: "536870912\n"}, 512 * mib},
		{"version 1", map[string]string{
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
		}, 512 * mib},
		{"version 1 without a limit", map[string]string{
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0},
		{"a group of its own", map[string]string{
			"/proc/self/cgroup": "0::/system.slice/mooring.service\n", group: "max\n",
			"/sys/fs/cgroup/system.slice/mooring.service/memory.max": "1048576\n",
		}, mib},
		{"the smallest", map[string]string{
			"/proc/self/cgroup": "0::/a\n", group: "1048576", "/sys/fs/cgroup/a/memory.max": "2097152",
		}, mib},
	} {
		read := func(name string) ([]byte, error) {
			text, ok := test.files[name]
			if !ok {
				return nil, os.ErrNotExist
			}
			return []byte(text), nil
		}
		if got := memory.Container(read); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// TestApply changes the collector of the test's process, and restores it.
func TestApply(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(percent)
	}()
	memory.Plan{Budget: 1}.Apply()
	if got := debug.SetGCPercent(100); got != 100 || debug.SetMemoryLimit(-1) != limit {
		t.Errorf("a plan that sets nothing has set %d %%", got)
	}
	memory.Plan{Limit: math.MaxInt64 - 1, Percent: 123}.Apply()
	if got := debug.SetGCPercent(100); got != 123 || debug.SetMemoryLimit(-1) != math.MaxInt64-1 {
		t.Errorf("the collector has %d %%, limit %d", got, debug.SetMemoryLimit(-1))
	}
}

func TestRead(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	if got := memory.Read(); got.HasPercent || got.Limit != 0 {
		t.Errorf("Read() = %+v", got)
	}
	t.Setenv("GOGC", "50")
	if got := memory.Read(); !got.HasPercent {
		t.Errorf("Read() = %+v, want GOGC", got)
	}
	limit := debug.SetMemoryLimit(1 << 40)
	defer debug.SetMemoryLimit(limit)
	t.Setenv("GOMEMLIMIT", "1TiB")
	if got := memory.Read(); got.Limit != 1<<40 {
		t.Errorf("Read() = %+v, want the limit", got)
	}
}
