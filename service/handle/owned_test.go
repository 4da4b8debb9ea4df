package handle_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/handle"
)

// TestOwned checks, after each of many random steps, that HasRoom and Evict look at the open
// handles of their own principal and at no others, however many there are.
func TestOwned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := handle.New(handle.Config{Idle: time.Minute, Max: 60, MaxPerPrincipal: 8})
		random := rand.New(rand.NewPCG(1, 2))
		names := []string{"ann", "ben", "carl", ""}
		things := map[byte]*thing{}
		for step := range 5000 {
			n := byte(random.IntN(80))
			th := things[n]
			if th == nil || th.IsRemoved() {
				th = newThing(n, names[int(n)%len(names)])
				th.evictable = n%3 == 0
				things[n] = th
			}
			table.Do(func(l *handle.Locked) { randomStep(t, random, l, th) })
			if random.IntN(10) == 0 {
				pass(time.Duration(random.IntN(20)) * time.Second)
			}
			checkOwned(t, table, names, step)
			if t.Failed() {
				return
			}
		}
		for _, th := range table.Stop() {
			th.End(t.Context())
		}
	})
}

// randomStep does one of the things that calls do with a handle.
func randomStep(t *testing.T, random *rand.Rand, l *handle.Locked, th *thing) {
	switch k := random.IntN(10); {
	case th.Working():
		w := th.Work()
		l.Settle(th, handle.Settled{Open: k < 8, Continues: k < 9})
		w.Finish()
	case k < 3:
		l.Settle(th, waiting)
	case k < 5 && l.Get(th.ID) != nil:
		l.Begin(t.Context(), th, false)
	case k < 6 && l.Get(th.ID) != nil:
		l.Remove(th, nil)
	case k < 8:
		_ = l.HasRoom(th.Owner, func(handle.Thing) bool { return k == 7 })
	default:
		l.Evict(th.Owner)
	}
}

// checkOwned compares the index with what the list of all handles has.
func checkOwned(t *testing.T, table *handle.Table, names []string, step int) {
	t.Helper()
	principals := 0
	for _, name := range names {
		var want []string
		for _, info := range table.List(handle.Query{Principal: &name, Limit: 1000}) {
			want = append(want, info.ID)
		}
		if len(want) > 0 {
			principals++
		}
		got, all := table.Owned(owner(name))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("step %d: %d handles of %q in the index, want %d", step, len(got), name,
				len(want))
		}
		if name == names[len(names)-1] && all != principals {
			t.Errorf("step %d: %d principals in the index, want %d", step, all, principals)
		}
	}
}
