package caller

import (
	"crypto/sha256"
	"strings"
	"time"
)

// What was opened with an API key counts as long as the key does, and what the key's line says of
// its client counts as it is now.

// Replace replaces the API keys. Calls that have begun go on; what is open is checked by the
// followers (Follow, Current). It returns when they have.
func (a *Authenticator) Replace(keys *KeyTable) {
	if !keys.equals(a.keys.Swap(keys)) {
		a.since.Store(new(time.Now()))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.followers {
		f()
	}
}

// Since returns when the API keys were replaced by others; zero: never.
func (a *Authenticator) Since() time.Time {
	if since := a.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// Follow has f called after each replacement of the API keys, one call at a time. f must not call
// Replace or Follow.
func (a *Authenticator) Follow(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.followers = append(a.followers, f)
}

// Current returns what the credential of a client says of it now. It reports false if the
// credential does not count any more, as far as its time does not say: an API key does as long as
// it is among the keys, for the same principal. Other credentials say the same until they expire.
func (a *Authenticator) Current(id *Identity) (now *Identity, ok bool) {
	ref := id.KeyRef()
	if ref == "" || id.key != nil && id.key == a.keyOf(ref) {
		return id, true
	}
	key := a.keyOf(ref)
	if key == nil || key.identity.ref != ref || key.identity.Principal != id.Principal {
		return nil, false
	}
	now = key.identity
	if id.key == nil { // what was made with the key, which ends sooner
		now = &Identity{
			Principal: id.Principal, Expires: sooner(id.Expires, now.Expires),
			Groups: now.Groups, Claims: now.Claims, ref: ref,
		}
	}
	return now, true
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// keyOf returns the key that a text of KeyRef begins with; nil: there is none.
func (a *Authenticator) keyOf(ref string) *apiKey {
	keys := a.keys.Load()
	if keys == nil {
		return nil
	}
	id, _, _ := strings.Cut(ref, ".")
	return keys.byID[id]
}

// OfKey returns who the clients with an API key of a principal are. If it has several keys, the
// first in the file counts. It returns nil if it has none.
func (a *Authenticator) OfKey(principal string) *Identity {
	keys := a.keys.Load()
	if keys == nil {
		return nil
	}
	for _, id := range keys.ids {
		if identity := keys.byID[id].identity; identity.Principal == principal {
			return identity
		}
	}
	return nil
}

// KeyRef returns a text that tells the client's API key from others, also from later ones with its
// id, and is not a secret. It is empty for clients with another credential.
func (id *Identity) KeyRef() string { return id.ref }

// WithKey sets the API key of an identity that was made of another one with the key, by its KeyRef.
func (id *Identity) WithKey(ref string) *Identity {
	id.ref = ref
	return id
}

// refTo returns the id of a key, and a sum of what else its line has of the key.
func refTo(k *apiKey) string {
	sum := sha256.Sum256(append(append([]byte{}, k.salt[:]...), k.hash[:]...))
	return k.id + "." + encoding.EncodeToString(sum[:12])
}
