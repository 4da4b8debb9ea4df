package operation

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
)

// memory provides the buffer of one message, which is admitted before it is taken. It belongs to a
// request.
type memory struct {
	ctx   context.Context //nolint:containedctx // of the operation, for the time of one exchange
	admit func(ctx context.Context, size int) (done func(), err error)
	done  func() // of the buffer; nil: nothing was admitted
}

var _ bson.Memory = (*memory)(nil)

// messageRoom is what a message has beside what was asked for: the elements that the Runner adds.
const messageRoom = 4 << 10

// Grow returns a larger buffer. Both count until the message was copied.
func (m *memory) Grow(msg []byte, n int) ([]byte, error) {
	size := max(len(msg)+n+messageRoom, cap(msg)+cap(msg)/4)
	done, err := m.admit(m.ctx, size)
	if err != nil {
		return nil, err
	}
	larger := append(make([]byte, 0, size), msg...)
	m.release()
	m.done = done
	return larger, nil
}

// release returns what was admitted.
func (m *memory) release() {
	if m.done != nil {
		m.done()
		m.done = nil
	}
}
