package paging

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// settleBranch asks all replicas that may hold an older branch of a cursor to give way.
func (p *Pager) settleBranch(ctx context.Context, c claim, a Asking, d decision) page.Settled {
	if p.alone() {
		return page.NoAnswer
	}
	ctx, cancel := context.WithTimeout(ctx, othersTimeout)
	defer cancel()
	q := p.question(c, a, ForYield)
	q.Holder, q.Fork = page.Instance{}, d.fork
	addresses := p.replicas.Others(ctx, true)
	if d.late.Address != "" && !slices.Contains(addresses, d.late.Address) {
		addresses = append(addresses, d.late.Address)
	}
	var mu sync.Mutex
	settled := page.NotAsked
	self := func(address string) bool { return address == p.cfg.Replica }
	p.eachOf(slices.DeleteFunc(addresses, self), func(address string) {
		got := p.yielded(ctx, address, q)
		mu.Lock()
		defer mu.Unlock()
		settled = max(settled, got)
	})
	if settled == page.NotAsked {
		// The replica that may have held the branch is gone, and what it has delivered is unknown.
		return page.WentOn
	}
	return settled
}

// yielded asks one replica to give way. NotAsked: it has nothing of the cursor.
func (p *Pager) yielded(ctx context.Context, address string, q Question) page.Settled {
	ans, err := p.put(ctx, address, q)
	lost, unreachable := errors.AsType[*UnreachableError](err)
	switch {
	case unreachable && lost.Refused, errors.Is(err, ErrNotHere), errors.Is(err, handle.ErrClosing):
		return page.NotAsked
	case err == nil && ans.GaveWay && ans.WentOn:
		return page.WentOn
	case err == nil && ans.GaveWay:
		return page.AllGaveWay
	case err == nil && ans.Moved != nil: // the replica that it was pushed to is asked, too
		return page.NotAsked
	default:
		return page.NoAnswer
	}
}

// answerYield gives way to a replica that has begun a branch.
func (p *Pager) answerYield(ctx context.Context, c claim, q Question) (Answer, error) {
	for {
		ans, w, err := p.yieldOnce(c, q)
		if w == nil {
			return ans, err
		}
		if err := w.Wait(ctx); err != nil {
			return Answer{}, err
		}
	}
}

// yieldOnce returns the work to wait for, or the answer.
func (p *Pager) yieldOnce(c claim, q Question) (Answer, *handle.Work, error) {
	p.table.Lock()
	defer p.table.Unlock()
	h := p.getLocked(c.id)
	if h == nil {
		return Answer{}, nil, ErrNotHere
	}
	ledger, v, wentOn := h.ledger.Yielded(page.Yield{
		Fork: q.Fork, To: q.Asker, Working: h.Working(),
	})
	h.ledger = ledger
	switch v {
	case page.GiveWay:
		if h.cur != nil {
			p.dropLocked(h)
		}
		return Answer{GaveWay: true, WentOn: wentOn}, nil, nil
	case page.Wait:
		return Answer{}, h.Work(), nil
	case page.Elsewhere:
		to, _ := ledger.Moved()
		return Answer{Moved: &to}, nil, nil
	default:
		return Answer{}, nil, ErrCursorPositionUnknown
	}
}
