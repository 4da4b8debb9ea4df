package extjson

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/mooringdb/mooring/core/bson"
)

// Reader reads a stream of NDJSON: one document a line, blank lines allowed.
type Reader struct {
	r       *bufio.Reader
	max     int
	line    int
	text    []byte
	failure error
}

// textFactor is how many times larger than its document a line may be: canonical
// text is up to about twelve times as long as what it stands for.
const textFactor = 12

// NewReader reads from r. Documents of more than limit bytes of BSON, and lines of
// more than twelve times that, are an error; 0 means bson.MaxDocumentSize.
func NewReader(r io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = bson.MaxDocumentSize
	}
	return &Reader{r: bufio.NewReaderSize(r, 32<<10), max: limit}
}

// Next reads the next document, in a buffer of its own. After the last it
// returns io.EOF. The error of a malformed line names the line, wraps a
// *SyntaxError whose offset counts within the line, and does not end the stream;
// other errors do.
func (r *Reader) Next() (bson.Raw, error) {
	if r.failure != nil {
		return nil, r.failure
	}
	line, err := r.next()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = fmt.Errorf("line %d: %w", r.line, err)
		}
		r.failure = err
		return nil, err
	}
	d, err := Parse(nil, line)
	if err == nil && len(d) > r.max {
		err = bson.ErrTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", r.line, err)
	}
	return d, nil
}

// next reads the next line that is not blank. It is valid until the next call.
func (r *Reader) next() ([]byte, error) {
	for {
		r.line++
		line, err := r.readLine()
		if len(bytes.TrimSpace(line)) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (r *Reader) readLine() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	r.text = r.text[:0]
	for errors.Is(err, bufio.ErrBufferFull) {
		if r.text = append(r.text, line...); len(r.text)/textFactor > r.max {
			return nil, bson.ErrTooLarge
		}
		line, err = r.r.ReadSlice('\n')
	}
	r.text = append(r.text, line...)
	if len(r.text)/textFactor > r.max {
		return nil, bson.ErrTooLarge
	}
	return r.text, err
}

// All yields the documents to the end or the first error.
func (r *Reader) All() iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		for {
			d, err := r.Next()
			if errors.Is(err, io.EOF) || !yield(d, err) || err != nil {
				return
			}
		}
	}
}
