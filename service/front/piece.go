package front

import "io"

// Piece buffers a part of a body, such as a line or a message. The request is charged with it
// before it grows, and it grows as the bytes arrive: a length that is announced costs nothing.
type Piece struct {
	// B holds the bytes.
	B []byte
	// Charged is how much the request is charged with. Who uses the bytes last releases it.
	Charged int64
}

// Grow makes room for n more bytes of a piece of at most so many bytes, of which each costs cost.
func (p *Piece) Grow(m *Memory, n, most, cost int) error {
	if cap(p.B)-len(p.B) >= n {
		return nil
	}
	larger := max(min(max(2*cap(p.B), firstPiece), most), len(p.B)+n)
	charged := int64(cost * larger)
	if err := m.Charge(charged); err != nil {
		return err
	}
	p.B = append(make([]byte, 0, larger), p.B...)
	m.Release(p.Charged)
	p.Charged = charged
	return nil
}

// ReadFull reads n bytes. Its errors are those of io.ReadFull, with what was read in B, and of
// Grow.
func (p *Piece) ReadFull(m *Memory, from io.Reader, n, cost int) error {
	for len(p.B) < n {
		part := min(n-len(p.B), firstPiece)
		if err := p.Grow(m, part, n, cost); err != nil {
			return err
		}
		read, err := io.ReadFull(from, p.B[len(p.B):len(p.B)+part])
		p.B = p.B[:len(p.B)+read]
		if err == io.EOF && len(p.B) > 0 { //nolint:errorlint // as io.ReadFull returns it
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}
