package audit

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// The bounds of the refusals that strangers can cause, and of those for a client's own rate.
const (
	// tallyInterval is how long refusals are counted before a line says how many.
	tallyInterval = time.Minute
	// linesEach and linesTotal are the lines that the refusals of one source, and of all, have in
	// an interval.
	linesEach, linesTotal = 10, 100
	// maxSources is the number of sources that are counted apart in an interval.
	maxSources = 1000
	// maxShown is the number of sources in the line, those with the most refusals.
	maxShown = 20
	// maxSummary is about the size of the line.
	maxSummary = 4 << 10
)

// source says who has caused a refusal: a principal, or else an address. Addresses of IPv6 count
// as networks, since a client has a whole one.
type source struct {
	principal string
	network   netip.Prefix
}

// sourceOf returns the source of a refused call.
func sourceOf(e *Entry) source {
	if e.Principal != "" {
		return source{principal: e.Principal}
	}
	bits := e.Client.BitLen()
	if e.Client.Is6() {
		bits = 64
	}
	network, err := e.Client.Prefix(bits)
	if err != nil { // the address is not known
		return source{}
	}
	return source{network: network}
}

func (s source) String() string {
	switch {
	case s.principal != "":
		return s.principal
	case !s.network.IsValid():
		return unknown
	case s.network.IsSingleIP():
		return s.network.Addr().String()
	}
	return s.network.String()
}

// tally counts the refusals of an interval, and decides which have lines of their own. Its zero
// value is an interval that has not begun.
type tally struct {
	lines    int
	sources  map[source]*count
	outcomes map[string]int // of those without a line
	others   int            // of sources beyond maxSources, without a line
}

// count holds the refusals of one source.
type count struct{ lines, counted int }

// admit reports whether a refusal has a line of its own, and whether it is the first of an
// interval, which the caller must end.
func (t *tally) admit(from source, outcome string) (admitted, begins bool) {
	if t.sources == nil {
		t.sources, t.outcomes = map[source]*count{}, map[string]int{}
		begins = true
	}
	c := t.sources[from]
	if c == nil && len(t.sources) < maxSources {
		c = &count{}
		t.sources[from] = c
	}
	if c != nil && c.lines < linesEach && t.lines < linesTotal {
		c.lines++
		t.lines++
		return true, begins
	}
	t.outcomes[outcome]++
	if c == nil {
		t.others++
	} else {
		c.counted++
	}
	return false, begins
}

// end ends the interval. It returns what was counted; nil: all refusals had lines.
func (t *tally) end() *summary {
	defer func() { *t = tally{} }()
	s := &summary{outcomes: t.outcomes, others: t.others}
	for _, n := range t.outcomes {
		s.counted += n
	}
	if s.counted == 0 {
		return nil
	}
	for from, c := range t.sources {
		if c.counted > 0 {
			s.clients = append(s.clients, shown{from.String(), c.counted})
		}
	}
	slices.SortFunc(s.clients, func(a, b shown) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Client, b.Client))
	})
	for _, c := range s.clients[min(maxShown, len(s.clients)):] {
		s.others += c.Refused
	}
	s.clients = s.clients[:min(maxShown, len(s.clients))]
	return s
}

// summary holds the refusals that had no line of their own.
type summary struct {
	counted  int
	outcomes map[string]int
	clients  []shown
	others   int // of other clients
}

// shown describes a client in the line.
type shown struct {
	Client  string `json:"client"`
	Refused int    `json:"refused"`
}

func (s *summary) record(at time.Time) slog.Record {
	r := slog.NewRecord(at, slog.LevelInfo, "audit: refusals without lines", 0)
	r.AddAttrs(slog.Int("refused", s.counted), asJSON("outcomes", s.outcomes),
		asJSON("clients", s.clients), slog.Int("others", s.others),
		slog.String("within", tallyInterval.String()))
	return r
}

// asJSON returns an attribute that is the same text in both formats of the log.
func asJSON(key string, value any) slog.Attr {
	text, err := json.Marshal(value)
	if err != nil { // maps and structs of texts and numbers have none
		text = []byte("null")
	}
	return slog.Any(key, json.RawMessage(text))
}
