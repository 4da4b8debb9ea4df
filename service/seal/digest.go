package seal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Digester makes digests that only a holder of its key can compute. Its key is derived with a label
// of its own, so that one secret can be a handle key and the key of a Digester.
type Digester struct{ key []byte }

// NewDigester returns a Digester.
func NewDigester(key Key) (Digester, error) {
	derived, err := hkdf.Key(sha256.New, key.secret, nil, labelDigest, sha256.Size)
	if err != nil {
		return Digester{}, fmt.Errorf("derive a key of digests: %w", err)
	}
	return Digester{derived}, nil
}

// Digest returns the digest of texts. The texts are kept apart: ("a", "bc") is not ("ab", "c").
func (d Digester) Digest(texts ...[]byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, d.key)
	for _, text := range texts {
		_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))) // never fails
		_, _ = mac.Write(text)
	}
	return [sha256.Size]byte(mac.Sum(nil))
}

// Equal reports whether both have the same key.
func (d Digester) Equal(other Digester) bool { return hmac.Equal(d.key, other.key) }
