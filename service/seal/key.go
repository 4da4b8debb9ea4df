package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
)

// minKeyBytes bounds the length of a configured key from below. HKDF uses every byte of a longer
// key.
const minKeyBytes = 32

// Key holds one secret of the configuration. It prints as a mask.
type Key struct{ secret []byte }

// NewKey checks the length of a secret and returns a key with a copy of it.
func NewKey(secret []byte) (Key, error) {
	if len(secret) < minKeyBytes {
		return Key{}, fmt.Errorf("key has %d bytes, must have at least %d",
			len(secret), minKeyBytes)
	}
	return Key{bytes.Clone(secret)}, nil
}

// RandomKey returns a key that no other process has.
func RandomKey() Key {
	secret := make([]byte, minKeyBytes)
	_, _ = rand.Read(secret) // never fails: crypto/rand ends the process instead
	return Key{secret}
}

// minDistinct is the least number of different bytes in a configured key. Of 10^16 keys of 32
// random bytes less than one has so few; zeros and repeated words have fewer.
const minDistinct = 16

// ParseKey reads one key as text: base64 in either alphabet, with or without padding. It refuses
// keys that are plainly not random.
func ParseKey(text string) (Key, error) {
	for _, enc := range []*base64.Encoding{
		base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
	} {
		if secret, err := enc.DecodeString(text); err == nil {
			key, err := NewKey(secret)
			if err == nil && distinct(secret) < minDistinct {
				err = errors.New("key is not random: make one with mooring key new")
			}
			return key, err
		}
	}
	return Key{}, errors.New("key is not base64")
}

func distinct(secret []byte) (n int) {
	var seen [256]bool
	for _, b := range secret {
		if !seen[b] {
			seen[b] = true
			n++
		}
	}
	return n
}

// ParseKeys reads a file of keys, one per line. The first key seals and every key opens.
func ParseKeys(text []byte) ([]Key, error) {
	var keys []Key
	err := Lines(text, func(line string) error {
		key, err := ParseKey(line)
		keys = append(keys, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// Lines calls read for each line of a file of keys. It skips empty lines and lines that start with
// #. Its error is the first one of read, with the number of the line.
func Lines(text []byte, read func(line string) error) error {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if err := read(string(line)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

// String returns a mask.
func (Key) String() string { return "[key]" }

// GoString returns a mask.
func (Key) GoString() string { return "[key]" }
