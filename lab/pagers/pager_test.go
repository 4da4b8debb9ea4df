package pagers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// patience is how long a pager repeats one call.
	patience = 2 * time.Minute
	// thought is the longest time between two pages.
	thought = 200 * time.Millisecond
	// again is the time after which a call is repeated if no answer says another.
	again = 50 * time.Millisecond
)

// pager reads a collection again and again, and does what the `retry` of errors says.
type pager struct {
	api        api
	collection *collection
	tally      *tally

	results int // that were read to their end
	pages   int
}

// tally holds what pagers have counted together.
type tally struct {
	mu        sync.Mutex
	pages     int
	documents int
	bytes     int64
	results   int
	conflicts int            // status 409
	busy      int            // status 429
	cuts      []time.Time    // of bodies
	restarts  int            // results that were begun again
	failed    map[string]int // calls, by error
	lost      []error        // results
}

// run reads until ctx ends. The result that is then open is read no further.
func (p *pager) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.read(ctx)
		f, ok := errors.AsType[*failure](err)
		p.tally.mu.Lock()
		switch {
		case ok && f.retry == "restart":
			p.tally.restarts++
		case errors.Is(err, errCut): // counted
		case err != nil:
			p.tally.lost = append(p.tally.lost,
				fmt.Errorf("%T: %s: %w", p.api, p.collection.name, err))
		}
		p.tally.mu.Unlock()
	}
}

// read reads one result. It must have all documents as they are, in order.
func (p *pager) read(ctx context.Context) error {
	call := func() (page, error) { return p.api.first(context.WithoutCancel(ctx), p.collection) }
	for want := 0; ; {
		got, err := p.call(call)
		if err != nil {
			return fmt.Errorf("behind %d documents: %w", want, err)
		}
		for _, doc := range got.documents {
			if want == len(p.collection.bson) || !bytes.Equal(doc, p.api.want(p.collection, want)) {
				return fmt.Errorf("%.40q came where document %d was due", doc, want)
			}
			want++
		}
		switch {
		case got.token == "" && want < len(p.collection.bson):
			return fmt.Errorf("a result ended behind %d documents", want)
		case got.token == "":
			p.results++
			p.tally.mu.Lock()
			p.tally.results++
			p.tally.mu.Unlock()
			return nil
		case ctx.Err() != nil:
			return nil
		}
		pause(rand.N(thought))
		call = func() (page, error) { return p.api.next(context.WithoutCancel(ctx), got.token) }
	}
}

// call makes a call, and repeats it while the answer is lost or says so.
func (p *pager) call(do func() (page, error)) (page, error) {
	for late := time.Now().Add(patience); ; {
		got, err := do()
		p.tally.count(got, err)
		if err == nil {
			p.pages++
			return got, nil
		}
		f, ok := errors.AsType[*failure](err)
		if ok && f.retry != "same-request" || errors.Is(err, errCut) || time.Now().After(late) {
			return page{}, err
		}
		wait := again
		if ok {
			wait = max(wait, f.after)
		}
		pause(wait)
	}
}

// count counts one call.
func (y *tally) count(got page, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if err == nil {
		y.pages++
		y.documents += len(got.documents)
		for _, doc := range got.documents {
			y.bytes += int64(len(doc))
		}
		return
	}
	f, ok := errors.AsType[*failure](err)
	switch {
	case ok && f.status == http.StatusConflict:
		y.conflicts++
	case ok && f.status == http.StatusTooManyRequests:
		y.busy++
	case errors.Is(err, errCut):
		y.cuts = append(y.cuts, time.Now())
	}
	y.failed[short(err)]++
}

// errors lists the errors of calls with their numbers.
func (y *tally) errors() string {
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(y.failed)) {
		list = append(list, fmt.Sprintf("%d × %s", y.failed[reason], reason))
	}
	return strings.Join(list, ", ")
}

// short returns an error of the network without addresses.
func short(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.Error()
	}
	text := err.Error()
	return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
}

func pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
