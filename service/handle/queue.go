package handle

import "container/heap"

// queue holds handles on which no call works. The first one expires first.
type queue []*Handle

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if c := q[i].expires.Compare(q[j].expires); c != 0 {
		return c < 0
	}
	return q[i].settlement < q[j].settlement
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push appends x; it is for package heap.
func (q *queue) Push(x any) {
	h, _ := x.(*Handle) // always
	h.index = len(*q)
	*q = append(*q, h)
}

// Pop removes the last one; it is for package heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return h
}

func (q *queue) add(h *Handle) {
	h.queue = q
	heap.Push(q, h)
}

func (q *queue) first() *Handle {
	if len(*q) == 0 {
		return nil
	}
	return (*q)[0]
}

// unqueue takes a handle out of its queue, if it is in one.
func (h *Handle) unqueue() {
	if h.queue != nil {
		heap.Remove(h.queue, h.index)
		h.queue = nil
	}
}
