package seal

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"golang.org/x/crypto/chacha20poly1305"
)

// version is the version of all tokens: of the layout below and of each kind's body. A change of
// any of them increases it, as the package comment says. The numbers below it are used up.
const version = 2

// A token is, before base64url, the version, the id of the key, a nonce, and the sealed bytes: when
// it expires, in milliseconds since 1970, and the body. The version, the key's id, the kind, the
// deployment and the principal are authenticated with them. The last three are not in the token.
const (
	keyIDBytes   = 4
	nonceBytes   = chacha20poly1305.NonceSizeX
	headBytes    = 1 + keyIDBytes + nonceBytes
	expiresBytes = 8
	frameBytes   = headBytes + expiresBytes + chacha20poly1305.Overhead
)

const (
	// MaxTokenBytes is the length of the longest token's text.
	MaxTokenBytes = 1024
	// MaxTicketBytes is the length of the longest ticket's text.
	MaxTicketBytes = 6 << 10
	// MaxTicketBody is the longest body that fits into a ticket of MaxTicketBytes.
	MaxTicketBody = MaxTicketBytes/4*3 - frameBytes
)

// Seal encrypts a claim for the principal and returns the token's text.
func (r *Ring) Seal(principal string, c Claim) string {
	k := r.sealer()
	b := make([]byte, headBytes, frameBytes+len(c.Body))
	b[0] = version
	copy(b[1:], k.id[:])
	nonce := b[1+keyIDBytes : headBytes]
	_, _ = rand.Read(nonce) // never fails
	plain := make([]byte, expiresBytes, expiresBytes+len(c.Body))
	if !c.Expires.IsZero() {
		binary.BigEndian.PutUint64(plain, uint64(c.Expires.UnixMilli()))
	}
	plain = append(plain, c.Body...)
	ad := associated(b[:1+keyIDBytes], c.Kind, c.Deployment, principal)
	return base64.RawURLEncoding.EncodeToString(k.aead.Seal(b, nonce, plain, ad))
}

// Open reverses Seal. It returns ErrVersion, ErrToken, or ErrExpired and the claim.
func (r *Ring) Open(principal, token string, kind Kind, of Deployment) (Claim, error) {
	if len(token) > kind.maxBytes() || strings.ContainsAny(token, "\r\n") { // base64 skips these
		return Claim{}, ErrToken
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < frameBytes {
		return Claim{}, ErrToken
	}
	if b[0] != version {
		return Claim{}, ErrVersion
	}
	ad := associated(b[:1+keyIDBytes], kind, of, principal)
	for k := range r.byID([keyIDBytes]byte(b[1 : 1+keyIDBytes])) {
		plain, err := k.aead.Open(nil, b[1+keyIDBytes:headBytes], b[headBytes:], ad)
		if err != nil {
			continue
		}
		c := Claim{Kind: kind, Deployment: of, Body: plain[expiresBytes:]}
		if ms := binary.BigEndian.Uint64(plain); ms != 0 {
			c.Expires = time.UnixMilli(int64(ms))
		}
		if c.expired(time.Now()) {
			return c, ErrExpired
		}
		return c, nil
	}
	return Claim{}, ErrToken
}

func associated(head []byte, kind Kind, of Deployment, principal string) []byte {
	ad := make([]byte, 0, len(head)+1+len(of)+len(principal))
	ad = append(append(ad, head...), byte(kind))
	return append(append(ad, of[:]...), principal...)
}

// KeyID names the key that a token was sealed with.
type KeyID [keyIDBytes]byte

// SealerID returns the id of the current sealing key.
func (r *Ring) SealerID() KeyID { return r.sealer().id }

// Has reports whether a key with that id is in the ring.
func (r *Ring) Has(id KeyID) bool {
	for range r.byID(id) {
		return true
	}
	return false
}
