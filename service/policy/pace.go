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
}

// owedMost is how many bytes a check writes before they are charged: most requests write less.
const owedMost = 64 << 10

// take charges n bytes that the check is about to write. They are the call's until it ends.
func (p *pace) take(n int) error {
	if p == nil || p.ctx == nil {
		return nil
	}
	if p.owed += n; p.owed < owedMost {
		return nil
	}
	owed := int64(p.owed)
	p.owed = 0
	return admission.From(p.ctx).Grow(p.ctx, owed)
}

// Charge implements payload.Charger, for the BSON that the check makes of JSON.
func (p *pace) Charge(bytes int64) error { return admission.From(p.ctx).Grow(p.ctx, bytes) }

// Vacate implements payload.Charger.
func (p *pace) Vacate(bytes int64) { admission.From(p.ctx).Vacate(bytes) }

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
