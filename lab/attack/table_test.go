package attack_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// result is what one run of an attack came to.
type result struct {
	peak          int64         // bytes
	alone, during time.Duration // p99 of the other client
	direct        time.Duration // p99 of the same calls without the gateway, during the attack
	share         float64       // of the gateway's processor, during the attack
	attacker      string
	calls         int // of the other client, during the attack
	refused       int // or failed
	why           string
}

func (r result) ratio() float64 { return float64(r.during) / float64(r.alone) }

// summary is what all runs of an attack came to: the run with the median ratio, the least and the
// highest ratio, the highest peak, and what was refused to the other client in all of them.
type summary struct {
	median      result
	least, most float64
	peak        int64
	calls       int
	refused     int
	why         string
}

// summarize returns the summary of at least one run.
func summarize(results []result) summary {
	sorted := slices.SortedFunc(slices.Values(results), func(a, b result) int {
		return cmp.Compare(a.ratio(), b.ratio())
	})
	highest := slices.MaxFunc(results, func(a, b result) int { return cmp.Compare(a.peak, b.peak) })
	s := summary{
		median: sorted[len(sorted)/2], least: sorted[0].ratio(),
		most: sorted[len(sorted)-1].ratio(), peak: highest.peak,
	}
	for _, r := range results {
		s.calls, s.refused, s.why = s.calls+r.calls, s.refused+r.refused, cmp.Or(r.why, s.why)
	}
	return s
}

// judge checks the bounds on memory and, of a whole attack, on p99.
func (s summary) judge(t *testing.T) {
	t.Helper()
	if s.peak > mostRSS {
		t.Errorf("the gateway used %d MiB at the peak, want at most %d", s.peak>>20, mostRSS>>20)
	}
	if ratio := s.median.ratio(); isFull() && ratio > mostRatio {
		t.Errorf("p99 was %.1f times that without an attack, want at most %d", ratio, mostRatio)
	}
}

// times returns the median ratio, and the least and the highest one.
func (s summary) times() string {
	text := fmt.Sprintf("%.1f", s.median.ratio())
	if s.least < s.most {
		text += fmt.Sprintf(" (%.1f to %.1f)", s.least, s.most)
	}
	return text
}

// heading begins the table in docs/security.md.
const heading = "| attack | without | peak | alone | beside | direct | times | CPU | " +
	"what becomes of the attacker |\n|---|---|---|---|---|---|---|---|---|\n"

// row returns the row of an attack in the table in docs/security.md.
func (s summary) row(a attack) string {
	described := descriptions[a.name]
	return fmt.Sprintf("| %s | %s | %d MiB | %s | %s | %s | %s | %.0f %% | %s |\n", described.title,
		cmp.Or(described.without, "-"), s.peak>>20, short(s.median.alone), short(s.median.during),
		short(s.median.direct), s.times(), 100*s.median.share, s.median.attacker)
}

// short returns a time in milliseconds, with two digits.
func short(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 9.95 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// tally returns how many answers have each status.
func tally[K cmp.Ordered](answers map[K]int) string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(answers)) {
		parts = append(parts, fmt.Sprintf("%d × %v", answers[status], status))
	}
	return strings.Join(parts, ", ")
}

// description says what a whole attack is, and what it cost a version without limits.
type description struct{ title, without string }

var descriptions = map[string]description{
	"connections":                        {title: "6,000 connections"},
	"headers of calls on 1 connection":   {"100,000 headers of calls, 1 connection", "1,250 MiB"},
	"headers of calls on 40 connections": {title: "100,000 headers of calls, 40 connections"},
	"gRPC responses not taken":           {"60 gRPC finds of 15.5 MB, not taken", "1,900 MiB"},
	"half gRPC messages":                 {"12 gRPC messages of 64 MiB less a byte", "1,100 MiB"},
	"half gRPC messages, in pace":        {title: "the same, on 12 connections, in pace"},
	"gRPC InsertMany of 1,000,000 {}":    {title: "5 gRPC InsertMany of 1,000,000 `{}`"},
	"bodies of 64 MiB that stop":         {title: "1,000 bodies of 64 MiB that stop"},
	"chunked bodies that stop":           {"10 chunked bodies that stop", "889 MiB"},
	"half bodies of 64 MiB":              {title: "12 bodies of 64 MiB less a byte"},
	"clients that go away":               {"140 commands that hang, clients gone", "23 s wait"},
	"clients that stay":                  {"140 commands that hang, clients stay", "all wait"},
	"REST streams not read":              {"60 REST streams of 15.5 MB, unread", "1,800 MiB"},
	"100 finds of 3 MiB":                 {"100 REST finds of 3 MiB at a time", "460 MiB"},
	"32 finds of control characters":     {"32 finds of control characters at a time", "1,377 MiB"},
	"insertMany of 1,000,000 {}":         {"20 insertMany of 1,000,000 `{}`", "669 MiB"},
	"insertMany of 100,000 {}":           {title: "10 insertMany of 100,000 `{}` at a time"},
	"import lines":                       {"60 import lines of 64 MiB", "3,200 MiB"},
	"streams read slowly":                {title: "60 REST streams of 15.5 MB, 10 KiB a second read"},
	"one ticket":                         {title: "500 streams of one ticket at a time"},
	"nested stages under a policy":       {"8 `$facet` under a policy at a time", "571 MiB"},
	"health watches":                     {"75,000 health watches", "1,064 MiB"},
	"rapid reset":                        {"400,000 streams that are reset", "5.7 s wait"},
	"tokens of strangers":                {title: "40 false tokens at a time"},
}

func TestSummary(t *testing.T) {
	const ms = time.Millisecond
	a := attack{name: "clients that stay"}
	runs := []result{
		{peak: 100 << 20, alone: 2 * ms, during: 20 * ms, direct: ms, share: 0.5, attacker: "most"},
		{peak: 300 << 20, alone: 3 * ms, during: 6 * ms, direct: ms, share: 0.2, attacker: "least"},
		{
			peak: 200 << 20, alone: 4 * ms, during: 12 * ms, direct: ms / 4, share: 0.25,
			attacker: "middle",
		},
	}
	const begin = "| 140 commands that hang, clients stay | all wait "
	for n, want := range []string{
		1: "| 100 MiB | 2.0 ms | 20 ms | 1.0 ms | 10.0 | 50 % | most |\n",
		2: "| 300 MiB | 2.0 ms | 20 ms | 1.0 ms | 10.0 (2.0 to 10.0) | 50 % | most |\n",
		3: "| 300 MiB | 4.0 ms | 12 ms | 0.2 ms | 3.0 (2.0 to 10.0) | 25 % | middle |\n",
	} {
		if n == 0 {
			continue
		}
		if got := summarize(runs[:n]).row(a); got != begin+want {
			t.Errorf("%d runs: %s, want %s", n, got, begin+want)
		}
	}
	if got := tally(map[int]int{429: 55, 200: 5}); got != "5 × 200, 55 × 429" {
		t.Errorf("tally() = %s", got)
	}
	for _, a := range all() {
		if descriptions[a.name].title == "" {
			t.Errorf("%s has no description", a.name)
		}
	}
}
