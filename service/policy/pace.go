package policy

import "errors"

// pace looks at times whether the call has ended whose request is checked: the check of a large
// request takes longer than some calls have.
type pace struct {
	done  <-chan struct{} // of the call's context; nil: it does not end
	steps uint
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
