package metadata

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mooringdb/mooring/core/bson"
)

// Source holds the client document of one driver client. Libraries may be appended while it is in
// use. Its methods are safe for concurrent use.
type Source struct {
	document atomic.Pointer[bson.Raw]

	// mu guards the field below, and is held while document is replaced.
	mu     sync.Mutex
	client Client
}

// NewSource returns a Source. The errors are those of Client.Document.
func NewSource(c Client) (*Source, error) {
	s := &Source{}
	if err := s.use(c); err != nil {
		return nil, err
	}
	return s, nil
}

// Document returns the newest document, which must not be changed. It does not block.
func (s *Source) Document() bson.Raw { return *s.document.Load() }

// Append adds a library that wraps the driver, after all others, unless an equal one is present.
// If it returns an error, which is one of Client.Document, nothing changes.
func (s *Source) Append(lib Library) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.client.Libraries, lib) {
		return nil
	}
	next := s.client
	next.Libraries = append(slices.Clip(next.Libraries), lib)
	return s.use(next)
}

// use sets the client. The caller holds mu, or is the only one with a reference to s.
func (s *Source) use(c Client) error {
	doc, err := c.Document()
	if err != nil {
		return err
	}
	s.client = c
	s.document.Store(&doc)
	return nil
}
