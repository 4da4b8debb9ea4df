package shell

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
)

// every is the time between two lines of progress where there is no terminal.
const every = 5 * time.Second

// progress shows how far a transfer has come: by a bar on a terminal, by lines elsewhere. It has
// one owner at a time.
type progress struct {
	w     io.Writer // nil: it shows nothing
	bar   *progressbar.ProgressBar
	verb  string
	total int64 // bytes; below 0: unknown
	begun time.Time
	last  time.Time
	first int64 // how many documents were done at first: an earlier run may have done some
}

// progress returns a progress with nothing done. total is how many bytes there are; below 0:
// unknown.
func (s *session) progress(verb string, total int64) *progress {
	now := time.Now()
	p := &progress{verb: verb, total: total, begun: now, last: now}
	if s.isSet("quiet") {
		return p
	}
	p.w = s.Stderr
	if _, ok := terminal(s.Stderr); ok {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(s.Stderr), progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(),
			progressbar.OptionClearOnFinish(), progressbar.OptionUseANSICodes(true),
			progressbar.OptionSetPredictTime(total >= 0))
	}
	return p
}

// set shows that so many bytes and documents are done.
func (p *progress) set(bytes, docs, rejected int64) {
	if p.w == nil {
		return
	}
	if p.first == 0 {
		p.first = docs
	}
	text := p.verb + " " + render.Count(docs, "document")
	if rejected > 0 {
		text += fmt.Sprintf(", %d rejected", rejected)
	}
	if p.bar != nil {
		p.bar.Describe(text)
		_ = p.bar.Set64(bytes) // a terminal that is gone is not a reason to stop
		return
	}
	now := time.Now()
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	if p.total > 0 {
		text += fmt.Sprintf(", %d%% of the file", 100*bytes/p.total)
	}
	rate := float64(docs-p.first) / now.Sub(p.begun).Seconds()
	fmt.Fprintf(p.w, "mooring: %s, %.0f a second\n", text, rate)
}

// close removes the bar.
func (p *progress) close() {
	if p.bar != nil {
		_ = p.bar.Finish() // as above
		p.bar = nil
	}
}
