package handle

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

// The layout of a sealed token, before base64url: a version, the id of the key, a nonce, and the sealed bytes. The head is
// authenticated with them, and so is the principal, who need not be in the token for that.
const (
	sealVersion = 1
	keyIDBytes  = 4
	nonceBytes  = chacha20poly1305.NonceSizeX
	headBytes   = 1 + keyIDBytes + nonceBytes
)

// MaxTokenBytes is the length of the longest token's text.
const MaxTokenBytes = 1024

// errSeal is all that a client ever learns about a token that does not open.
var errSeal = errors.New("token does not open")

// seal encrypts plain for the principal and returns the token's text.
func (r *KeyRing) seal(principal string, plain []byte) string {
	k := r.sealer()
	b := make([]byte, headBytes, headBytes+len(plain)+chacha20poly1305.Overhead)
	b[0] = sealVersion
	copy(b[1:], k.id[:])
	nonce := b[1+keyIDBytes : headBytes]
	_, _ = rand.Read(nonce) // never fails
	b = k.aead.Seal(b, nonce, plain, associated(b[:1+keyIDBytes], principal))
	return base64.RawURLEncoding.EncodeToString(b)
}

// open is the reverse of seal. Any difference, in the text, the key or the principal, is errSeal.
func (r *KeyRing) open(principal, token string) ([]byte, error) {
	if len(token) > MaxTokenBytes || strings.ContainsAny(token, "\r\n") { // which base64 would skip
		return nil, errSeal
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < headBytes+chacha20poly1305.Overhead || b[0] != sealVersion {
		return nil, errSeal
	}
	ad := associated(b[:1+keyIDBytes], principal)
	for k := range r.byID([keyIDBytes]byte(b[1 : 1+keyIDBytes])) {
		if plain, err := k.aead.Open(nil, b[1+keyIDBytes:headBytes], b[headBytes:], ad); err == nil {
			return plain, nil
		}
	}
	return nil, errSeal
}

func associated(head []byte, principal string) []byte {
	ad := make([]byte, 0, len(head)+len(principal))
	return append(append(ad, head...), principal...)
}
