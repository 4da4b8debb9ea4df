package policy

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/service/admission"
)

// pace looks at times whether the call has ended whose request is checked: the check of a large
// request takes longer than some calls have.
type pace struct {
	done  <-chan struct{} // of the call's context; nil: it does not end
	steps uint
	// ctx is the call's, whose account is charged with what the check writes; owed is what is not
	// charged yet.
	ctx  context.Context //nolint:containedctx // for the time of one check
	owed int
	// charged is what the check of a message was charged, and vacated what it has vacated of that.
	charged, vacated int64
}

// owedMost is how many bytes a check writes before they are charged: most requests write less.
const owedMost = 64 << 10

// begin begins the check of a message. It gives back what the check of the message before was
// charged: a stream has no end, and what its handler keeps of a message is the handler's to charge.
func (p *pace) begin(ctx context.Context) {
	if p.charged > 0 {
		account := admission.From(p.ctx) //nolint:contextcheck // it is the call's for all messages
		account.Vacate(-p.vacated)
		account.Shrink(p.charged)
		p.charged, p.vacated = 0, 0
	}
	p.done, p.ctx = ctx.Done(), ctx
}

// take charges n bytes that the check is about to write. They are the call's until it ends, or its
// next message is checked.
func (p *pace) take(n int) error {
	if p == nil || p.ctx == nil {
		return nil
	}
	if p.owed += n; p.owed < owedMost {
		return nil
	}
	owed := int64(p.owed)
	p.owed = 0
	return p.Charge(owed)
}

// Charge implements payload.Charger, for the BSON that the check makes of JSON.
func (p *pace) Charge(bytes int64) error {
	if err := admission.From(p.ctx).Grow(p.ctx, bytes); err != nil {
		return err
	}
	p.charged += bytes
	return nil
}

// Vacate implements payload.Charger.
func (p *pace) Vacate(bytes int64) {
	admission.From(p.ctx).Vacate(bytes)
	p.vacated += bytes
}

// errEnded stops a check. Call.Check returns the cause in its place.
var errEnded = errors.New("the call has ended")

// looks is after how many elements of a request step looks whether the call has ended.
const looks = 1024

// step returns errEnded if the call has ended. It is called for each element of a request.
func (p *pace) step() error {
	if p == nil {
		return nil
	}
	if p.steps++; p.steps%looks != 0 {
		return nil
	}
	select {
	case <-p.done:
		return errEnded
	default:
		return nil
	}
}
