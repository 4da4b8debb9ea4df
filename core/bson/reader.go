package bson

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
)

// ErrTooLarge says that a document in a stream is larger than its reader takes.
var ErrTooLarge = errors.New("bson: document is too large")

// Reader reads documents that stand one after the other in a stream. The caller owns each of them.
// Their contents are not checked: see Raw.Validate.
type Reader struct {
	r       *bufio.Reader
	max     int
	offset  int64
	failure error
}

// NewReader returns a Reader of the documents in r. If a document has more than limit bytes, the
// error wraps ErrTooLarge; a limit of 0 means MaxDocumentSize. The Reader buffers, so it may read
// beyond the document that Next returned last.
func NewReader(r io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = MaxDocumentSize
	}
	return &Reader{r: bufio.NewReader(r), max: limit}
}

// Next reads the next document. After the last it returns io.EOF. If the stream ends within a
// document, the error wraps io.ErrUnexpectedEOF. After an error, every further call returns it.
func (r *Reader) Next() (Raw, error) {
	if r.failure == nil {
		d, err := r.next()
		if err == nil {
			r.offset += int64(len(d))
			return d, nil
		}
		if !errors.Is(err, io.EOF) {
			err = fmt.Errorf("document at byte %d: %w", r.offset, err)
		}
		r.failure = err
	}
	return nil, r.failure
}

func (r *Reader) next() (Raw, error) {
	head, err := r.r.Peek(4)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	n := int64(int32(binary.LittleEndian.Uint32(head)))
	switch {
	case n < minDocument:
		return nil, &ValidationError{Problem: "document length is below 5"}
	case n > int64(r.max):
		return nil, ErrTooLarge
	}
	d, err := r.body(int(n))
	if err != nil {
		return nil, err
	}
	_, _, err = Read(d)
	return d, err
}

// chunk is how much is allocated before bytes have come to fill it.
const chunk = 64 << 10

// body reads n bytes. A length alone costs little: memory grows with what comes.
func (r *Reader) body(n int) ([]byte, error) {
	d := make([]byte, 0, min(n, chunk))
	for len(d) < n {
		want := min(n-len(d), max(len(d), chunk))
		if cap(d)-len(d) < want {
			grown := make([]byte, len(d), min(n, 2*cap(d)))
			copy(grown, d)
			d = grown
		}
		k, err := io.ReadFull(r.r, d[len(d):min(n, cap(d))])
		d = d[:len(d)+k]
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// All yields the documents up to the end, or up to the first error, which it yields.
func (r *Reader) All() iter.Seq2[Raw, error] {
	return func(yield func(Raw, error) bool) {
		for {
			d, err := r.Next()
			if errors.Is(err, io.EOF) || !yield(d, err) || err != nil {
				return
			}
		}
	}
}
