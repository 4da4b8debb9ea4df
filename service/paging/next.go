package paging

import (
	"context"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// Asking describes a call for the page that a token stands for.
type Asking struct {
	Principal string
	Token     string
	// Transaction is the transaction that the call runs in; zero: none.
	Transaction handle.ID
	// BatchSize and MaxAwaitTimeMS are for this batch and the following ones; nil changes nothing.
	BatchSize      *int32
	MaxAwaitTimeMS *int64
	// Inflation is 0 if the client gets the documents as BSON. Otherwise it gets them as JSON, for
	// which a page holds so many times fewer bytes of BSON, and ends before a document that JSON
	// cannot carry.
	Inflation int
	// Forwarded says that another replica asks for its client: the answer is what is here, or a
	// *MovedError. Holder is the life of the replica that should hold the cursor; zero: unknown.
	Forwarded bool
	Holder    page.Instance
}

// Next delivers the page that a token asks for. The same token again brings the same page again
// while it is held, and ErrCursorTokenReused afterwards, whichever replica is asked. If the cursor
// is not here, the error is a call.Elsewhere.
func (p *Pager) Next(ctx context.Context, a Asking) (Page, error) {
	l, err := p.lookup(a, forPage)
	if err != nil {
		return Page{}, err
	}
	d, err := l.find(ctx)
	if err != nil {
		return Page{}, err
	}
	got := d.page
	if got == nil {
		fetched, err := d.grant.deliver(a)
		if err != nil {
			return Page{}, err
		}
		got = &fetched
	}
	l.sending(ctx, *got)
	got.lent.lend(ctx)
	return *got, nil
}
