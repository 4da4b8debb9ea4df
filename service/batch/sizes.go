package batch

import lru "github.com/hashicorp/golang-lru/v2"

// Source says where documents come from whose sizes are alike: a namespace, as it is or through
// pipelines. Nothing is learned of the zero value.
type Source struct {
	Database, Collection string
	Pipeline             bool
}

// maxSources bounds the sources of which the size of documents is known.
const maxSources = 10_000

// maxName bounds the names of a source, of which servers take 255 bytes. Nothing is learned of a
// source with longer ones.
const maxName = 512

// Sizes remembers how large the documents of sources are, so that the first batch of a new cursor
// fits. It is safe for concurrent use.
type Sizes struct {
	means *lru.Cache[Source, int]
}

// NewSizes returns one that knows nothing.
func NewSizes() *Sizes {
	means, _ := lru.New[Source, int](maxSources) // never fails
	return &Sizes{means}
}

// Mean returns the mean size of a source's documents to expect; 0: it is not known.
func (s *Sizes) Mean(of Source) int {
	mean, _ := s.means.Get(of)
	return mean
}

// Saw records the number of documents in a batch and their bytes; see Learn.
func (s *Sizes) Saw(of Source, documents, bytes int) {
	if documents > 0 && of != (Source{}) && len(of.Database)+len(of.Collection) <= maxName {
		s.means.Add(of, Learn(s.Mean(of), max(bytes/documents, 1)))
	}
}
