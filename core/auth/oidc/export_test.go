package oidc

var ParseAzure = parseAzure

// Poison puts a token into the cache.
func (m *Mechanism) Poison(text string) { m.store(Token{AccessToken: text}) }

// HasToken reports whether the cache has a token.
func (m *Mechanism) HasToken() bool {
	_, ok := m.load()
	return ok
}
