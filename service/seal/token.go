package seal

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

// The layout of a sealed token, before base64url, is a version, the id of the key, a nonce, and
// the sealed bytes. The version, the key's id and the principal are authenticated with the sealed
// bytes. The principal is not in the token.
const (
	version    = 1
	keyIDBytes = 4
	nonceBytes = chacha20poly1305.NonceSizeX
	headBytes  = 1 + keyIDBytes + nonceBytes
)

const (
	// MaxTokenBytes is the length of the longest token's text.
	MaxTokenBytes = 1024
	// MaxPlainBytes is the most that fits into a token of MaxTokenBytes.
	MaxPlainBytes = MaxTokenBytes/4*3 - headBytes - chacha20poly1305.Overhead
)

// A ticket is sealed as a token is, but for ticketHolder, which is no client's principal: it says
// itself whose it is. It can be longer, because it is in a URL and no client has many.
const (
	ticketHolder = "ticket:"
	// MaxTicketBytes is the length of the longest ticket's text.
	MaxTicketBytes = 6 << 10
	// MaxTicketPlainBytes is the most that fits into a ticket of MaxTicketBytes.
	MaxTicketPlainBytes = MaxTicketBytes/4*3 - headBytes - chacha20poly1305.Overhead
)

var (
	// ErrToken refuses a token that does not open: its text, its key or its principal differs. It
	// does not say which of these.
	ErrToken = errors.New("token does not open")
	// ErrVersion refuses a token whose layout this version of the gateway does not know.
	ErrVersion = errors.New("token was made by another version of the gateway")
)

// Seal encrypts plain for the principal and returns the token's text.
func (r *Ring) Seal(principal string, plain []byte) string {
	k := r.sealer()
	b := make([]byte, headBytes, headBytes+len(plain)+chacha20poly1305.Overhead)
	b[0] = version
	copy(b[1:], k.id[:])
	nonce := b[1+keyIDBytes : headBytes]
	_, _ = rand.Read(nonce) // never fails
	b = k.aead.Seal(b, nonce, plain, associated(b[:1+keyIDBytes], principal))
	return base64.RawURLEncoding.EncodeToString(b)
}

// SealTicket encrypts plain and returns the ticket's text.
func (r *Ring) SealTicket(plain []byte) string { return r.Seal(ticketHolder, plain) }

// OpenTicket reverses SealTicket. It returns ErrVersion or ErrToken.
func (r *Ring) OpenTicket(ticket string) ([]byte, error) {
	return r.open(ticketHolder, ticket, MaxTicketBytes)
}

// Open reverses Seal. It returns ErrVersion or ErrToken.
func (r *Ring) Open(principal, token string) ([]byte, error) {
	return r.open(principal, token, MaxTokenBytes)
}

func (r *Ring) open(principal, token string, limit int) ([]byte, error) {
	if len(token) > limit || strings.ContainsAny(token, "\r\n") { // base64 skips these
		return nil, ErrToken
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < headBytes+chacha20poly1305.Overhead {
		return nil, ErrToken
	}
	if b[0] != version {
		return nil, ErrVersion
	}
	ad := associated(b[:1+keyIDBytes], principal)
	for k := range r.byID([keyIDBytes]byte(b[1 : 1+keyIDBytes])) {
		plain, err := k.aead.Open(nil, b[1+keyIDBytes:headBytes], b[headBytes:], ad)
		if err == nil {
			return plain, nil
		}
	}
	return nil, ErrToken
}

func associated(head []byte, principal string) []byte {
	ad := make([]byte, 0, len(head)+len(principal))
	return append(append(ad, head...), principal...)
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
