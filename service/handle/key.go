package handle

import (
	"bytes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"
)

// minKeyBytes is what a configured key must have at least; longer ones are fine, HKDF takes all of it.
const minKeyBytes = 32

// Labels of the derived keys. Each purpose has its own, so that no two uses ever share a key.
const (
	labelSeal      = "mooring handle seal v1"
	labelKeyID     = "mooring handle key id v1"
	labelTransport = "mooring replica transport v1"
)

// Key is one secret of the configuration. It prints as a mask.
type Key struct{ secret []byte }

// NewKey checks a secret and takes a copy of it.
func NewKey(secret []byte) (Key, error) {
	if len(secret) < minKeyBytes {
		return Key{}, fmt.Errorf("handle key has %d bytes, wants %d or more", len(secret), minKeyBytes)
	}
	return Key{bytes.Clone(secret)}, nil
}

// ParseKey reads one key as text: base64, either alphabet, padded or not.
func ParseKey(text string) (Key, error) {
	for _, enc := range []*base64.Encoding{
		base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
	} {
		if secret, err := enc.DecodeString(text); err == nil {
			return NewKey(secret)
		}
	}
	return Key{}, errors.New("handle key is not base64")
}

// ParseKeys reads a file of keys: one a line, the first seals, all open. Empty lines and those that start with # are skipped.
func ParseKeys(text []byte) ([]Key, error) {
	var keys []Key
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := ParseKey(string(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// String is a mask.
func (Key) String() string { return "[key]" }

// GoString is a mask, too.
func (Key) GoString() string { return "[key]" }

// KeyRing seals with its first key and opens with any. Its keys can be replaced at any time; readers never lock.
type KeyRing struct {
	keys      atomic.Pointer[[]sealingKey]
	ephemeral bool
}

// sealingKey is what is derived from one configured key.
type sealingKey struct {
	id        [keyIDBytes]byte
	aead      cipher.AEAD
	transport ed25519.PrivateKey
}

// NewKeyRing returns a ring of the keys given. Without any it makes one up, which ends with the process: see Ephemeral.
func NewKeyRing(keys ...Key) (*KeyRing, error) {
	r := &KeyRing{ephemeral: len(keys) == 0}
	if r.ephemeral {
		secret := make([]byte, minKeyBytes)
		_, _ = rand.Read(secret) // never fails: crypto/rand ends the process instead
		keys = []Key{{secret}}
	}
	if err := r.Replace(keys...); err != nil {
		return nil, err
	}
	return r, nil
}

// Ephemeral says that no key was configured: tokens die with this process, and no other replica can open them.
func (r *KeyRing) Ephemeral() bool { return r.ephemeral }

// Replace puts other keys in the place of the present ones. Tokens of a key that is gone cannot be opened any more.
func (r *KeyRing) Replace(keys ...Key) error {
	if len(keys) == 0 {
		return errors.New("a key ring needs a key")
	}
	derived := make([]sealingKey, len(keys))
	for i, key := range keys {
		k, err := derive(key)
		if err != nil {
			return fmt.Errorf("derive key %d: %w", i+1, err)
		}
		derived[i] = k
	}
	r.keys.Store(&derived)
	return nil
}

func derive(key Key) (sealingKey, error) {
	if len(key.secret) < minKeyBytes {
		return sealingKey{}, errors.New("empty key")
	}
	seal, err := hkdf.Key(sha256.New, key.secret, nil, labelSeal, chacha20poly1305.KeySize)
	if err != nil {
		return sealingKey{}, err
	}
	id, err := hkdf.Key(sha256.New, key.secret, nil, labelKeyID, keyIDBytes)
	if err != nil {
		return sealingKey{}, err
	}
	aead, err := chacha20poly1305.NewX(seal)
	if err != nil {
		return sealingKey{}, err
	}
	seed, err := hkdf.Key(sha256.New, key.secret, nil, labelTransport, ed25519.SeedSize)
	if err != nil {
		return sealingKey{}, err
	}
	return sealingKey{id: [keyIDBytes]byte(id), aead: aead, transport: ed25519.NewKeyFromSeed(seed)}, nil
}

// TransportKeys are what replicas know each other by: a replica presents the first, and accepts any. They are not the keys that seal, and
// tell nothing of them.
func (r *KeyRing) TransportKeys() []ed25519.PrivateKey {
	present := *r.keys.Load()
	keys := make([]ed25519.PrivateKey, len(present))
	for i, k := range present {
		keys[i] = k.transport
	}
	return keys
}

// sealer is the key that seals now.
func (r *KeyRing) sealer() sealingKey { return (*r.keys.Load())[0] }

// byID yields the keys with that id: two configured keys can share one, by accident.
func (r *KeyRing) byID(id [keyIDBytes]byte) func(yield func(sealingKey) bool) {
	return func(yield func(sealingKey) bool) {
		for _, k := range *r.keys.Load() {
			if k.id == id && !yield(k) {
				return
			}
		}
	}
}
