package paging

import (
	"context"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
)

// leastReserve is the smallest sum that is reserved. Less is not charged either.
const leastReserve = 128 << 10

// size returns how many documents to ask for, so that little of the batch is left of a page. The
// client's own size is the largest, as it is for pages.
func (h *held) size(limits batch.Limits) int32 {
	n := h.sizer.Next(limits.Bytes)
	if h.chosen > 0 {
		n = min(n, h.chosen)
	}
	return n
}

// more gets the next batch, of n documents, and adds it to what is left of the last one. Before
// that it reserves memory for the reply and the response, and returns an *admission.Error if there
// is none.
func (h *held) more(ctx context.Context, n int32, limits batch.Limits) error {
	h.cur.SetBatchSize(n)
	mean, _ := h.sizer.Seen()
	if err := reserve(ctx, int(n)*mean, limits); err != nil {
		return err
	}
	return h.take(ctx)
}

// take takes the next batch of the cursor, and learns from it.
func (h *held) take(ctx context.Context) error {
	b, err := h.cur.NextLent(ctx)
	if err != nil {
		return err // never io.EOF alone, which follows only Done
	}
	h.leftover.add(b)
	h.sizer.Saw(len(b.Documents), b.Bytes)
	h.pager.cfg.Sizes.Saw(h.source, len(b.Documents), b.Bytes)
	return nil
}

// reserve reserves memory for a reply and the response that is made of it.
func reserve(ctx context.Context, reply int, limits batch.Limits) error {
	if sum := reply + min(reply, limits.Bytes); sum >= leastReserve {
		return admission.From(ctx).Reserve(ctx, int64(sum))
	}
	return nil
}

// reserve reserves memory for a page that another replica sends, of which only the
// largest size is known, and for the response. Without room for the response, the client would ask
// again for a page that the other replica has sent, and may hold no longer.
func (e *elsewhere) reserve(ctx context.Context) error {
	limits := e.p.cfg.limits(0, e.a.Inflation)
	return reserve(ctx, limits.Bytes, limits)
}

// fill completes the first page of a cursor whose first batch was small because nothing was known
// of its documents: most is the number of documents that the page has at most. If the command for
// the rest cannot be sent, the page stays short.
func (h *held) fill(ctx context.Context, asked, most int32, limits batch.Limits) error {
	have := int32(len(h.leftover.documents))
	room := limits.Bytes - h.leftover.bytes
	if have < asked || have >= most || room <= 0 || h.cur.Done() || ctx.Err() != nil {
		return nil
	}
	mean := h.leftover.bytes / int(have)
	n := min(int32(min(room/max(mean, 1), int(most))), most-have)
	if n == 0 {
		return nil
	}
	if err := h.more(ctx, n, limits); err != nil && !neverSent(err) {
		return err
	}
	return nil
}
