package aws

var (
	CheckContainerURL = checkContainerURL
	ParseRole         = parseRole
	ParseWebIdentity  = parseWebIdentity
)

// Cached returns what the cache holds.
func (s *Source) Cached() Credentials {
	if c := s.cached.Load(); c != nil {
		return *c
	}
	return Credentials{}
}

// SetCached overrides the cache.
func (s *Source) SetCached(c Credentials) { s.cached.Store(&c) }
