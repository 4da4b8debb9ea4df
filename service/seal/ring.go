package seal

import (
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"
)

// These labels derive the keys. Each purpose has its own label, so no two uses share a key.
const (
	labelSeal      = "mooring handle seal v1"
	labelKeyID     = "mooring handle key id v1"
	labelTransport = "mooring replica transport v1"
	labelDigest    = "mooring digest v1" // see Digester
)

// Ring seals with its first key and opens with any key. Replace changes the keys at any time;
// readers take no lock.
type Ring struct {
	keys      atomic.Pointer[[]sealingKey]
	ephemeral bool
}

// sealingKey holds what is derived from one configured key.
type sealingKey struct {
	id        [keyIDBytes]byte
	aead      cipher.AEAD
	transport ed25519.PrivateKey
}

// NewRing returns a ring of the given keys. If there are none, it makes a random key, which ends
// with the process: see Ephemeral.
func NewRing(keys ...Key) (*Ring, error) {
	r := &Ring{ephemeral: len(keys) == 0}
	if r.ephemeral {
		keys = []Key{RandomKey()}
	}
	if err := r.Replace(keys...); err != nil {
		return nil, err
	}
	return r, nil
}

// Ephemeral reports whether no key was configured. If so, tokens end with this process, and no
// other replica can open them.
func (r *Ring) Ephemeral() bool { return r.ephemeral }

// Replace replaces the keys. Tokens of a removed key can no longer be opened.
func (r *Ring) Replace(keys ...Key) error {
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
	if len(key.secret) == 0 {
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
	transport := ed25519.NewKeyFromSeed(seed)
	return sealingKey{id: [keyIDBytes]byte(id), aead: aead, transport: transport}, nil
}

// TransportKeys returns the keys by which replicas authenticate each other: a replica presents the
// first key and accepts any of them. They are derived separately from the keys that seal and
// reveal nothing about those.
func (r *Ring) TransportKeys() []ed25519.PrivateKey {
	present := *r.keys.Load()
	keys := make([]ed25519.PrivateKey, len(present))
	for i, k := range present {
		keys[i] = k.transport
	}
	return keys
}

// sealer returns the current sealing key.
func (r *Ring) sealer() sealingKey { return (*r.keys.Load())[0] }

// byID yields the keys with that id. Two configured keys can have the same id by accident.
func (r *Ring) byID(id [keyIDBytes]byte) func(yield func(sealingKey) bool) {
	return func(yield func(sealingKey) bool) {
		for _, k := range *r.keys.Load() {
			if k.id == id && !yield(k) {
				return
			}
		}
	}
}
