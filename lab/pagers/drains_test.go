package pagers_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// drainTimeout is drain.timeout of the replicas. A body that takes longer, as on a starved machine,
// is cut when it is over.
const drainTimeout = 20 * time.Second

// drain describes how one replica ended.
type drain struct {
	over time.Time // drain.linger and drain.timeout; nothing is cut before
	cut  int       // what the replica says that it has cut then
	log  []string  // lines about requests that failed
}

var callsCut = regexp.MustCompile(`msg=drained .*calls_cut=(\d+)`)

// drainOf reads the end of a replica's log.
func drainOf(over time.Time, log string) drain {
	d := drain{over: over}
	for line := range strings.Lines(log) {
		if found := callsCut.FindStringSubmatch(line); found != nil {
			d.cut, _ = strconv.Atoi(found[1])
		}
	}
	d.log = failures(log)
	return d
}

// mostLines bounds what is shown of one replica.
const mostLines = 10

// failures returns the lines about requests that failed and were not just refused.
func failures(log string) (lines []string) {
	for line := range strings.Lines(log) {
		if len(lines) < mostLines && (strings.Contains(line, `msg="request failed"`) ||
			strings.Contains(line, `msg="request ended by the shutdown"`)) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// unexplained returns how many of the cut bodies no drain has cut. A drain explains as many as its
// replica has cut, of those that came after its time was over and before that of the next drain.
func unexplained(cuts []time.Time, drains []drain) int {
	of := make([]int, len(drains))
	rest := 0
	for _, cut := range cuts {
		i := len(drains) - 1
		for i >= 0 && cut.Before(drains[i].over) {
			i--
		}
		if i < 0 || of[i] == drains[i].cut {
			rest++
		} else {
			of[i]++
		}
	}
	return rest
}

// TestUnexplained: only what a replica has cut itself, after its drain timeout, is explained.
func TestUnexplained(t *testing.T) {
	at := func(seconds ...int) (all []time.Time) {
		for _, s := range seconds {
			all = append(all, time.Unix(int64(s), 0))
		}
		return all
	}
	of := func(second, cut int) drain { return drain{over: time.Unix(int64(second), 0), cut: cut} }
	for name, c := range map[string]struct {
		cuts   []time.Time
		drains []drain
		want   int
	}{
		"no drain":               {at(5), nil, 1},
		"before its time":        {at(9), []drain{of(10, 1)}, 1},
		"cut by it":              {at(10, 11), []drain{of(10, 2)}, 0},
		"more than it has cut":   {at(10, 11, 12), []drain{of(10, 2)}, 1},
		"it has cut none":        {at(11), []drain{of(10, 0)}, 1},
		"the one before has cut": {at(21), []drain{of(10, 1), of(20, 0)}, 1},
		"each has cut":           {at(11, 21), []drain{of(10, 1), of(20, 1)}, 0},
	} {
		if got := unexplained(c.cuts, c.drains); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestDrainOf: the log of a replica says how much it has cut, and why requests failed.
func TestDrainOf(t *testing.T) {
	d := drainOf(time.Time{}, `level=INFO msg="request refused" code=ResourceExhausted
level=WARN msg="request failed" code=Unavailable
level=INFO msg="request ended by the shutdown" reason=ShuttingDown
level=INFO msg=drained cursors_left=0 calls_cut=12
`)
	if d.cut != 12 || len(d.log) != 2 {
		t.Errorf("%+v", d)
	}
	if n := len(failures(strings.Repeat("msg=\"request failed\"\n", 50))); n != mostLines {
		t.Errorf("%d lines", n)
	}
}
