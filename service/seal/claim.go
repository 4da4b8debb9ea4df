package seal

import (
	"crypto/sha256"
	"errors"
	"time"
)

// Kind says what a token is for. A token of one kind does not open as another.
type Kind uint8

// The kinds of tokens. Their numbers are sealed: a new kind gets the next one.
const (
	KindCursor Kind = iota + 1
	KindSession
	KindTransaction
	KindTicket
)

// maxBytes returns the length of the longest text of a token of the kind. A ticket can be longer
// than the others, because it is in a URL and no client has many.
func (k Kind) maxBytes() int {
	if k == KindTicket {
		return MaxTicketBytes
	}
	return MaxTokenBytes
}

// Deployment tells deployments apart. A token is valid for the deployment that it was made for.
type Deployment [16]byte

// NewDeployment makes one of a deployment's name, which may be a list of many hosts.
func NewDeployment(name string) Deployment {
	sum := sha256.Sum256([]byte("mooring deployment\x00" + name))
	return Deployment(sum[:16])
}

// Claim holds what a token says. A gateway with the same key has sealed it, and opening it proves
// its principal.
type Claim struct {
	Kind       Kind
	Deployment Deployment
	// Expires is when the token ends, in whole milliseconds. Zero: its owner knows when.
	Expires time.Time
	Body    []byte // in a layout of the kind's own
}

// MaxSkew is how much the clocks of replicas may differ. Every replica accepts a token for as much
// longer than the token says, so that a fast clock does not shorten its life.
const MaxSkew = time.Minute

func (c *Claim) expired(now time.Time) bool {
	return !c.Expires.IsZero() && !now.Before(c.Expires.Add(MaxSkew))
}

// The errors with which Open refuses a token.
var (
	// ErrToken refuses a token that does not open: its text, its key, its kind, its deployment or
	// its principal differs. It does not say which of these.
	ErrToken = errors.New("token cannot be opened")
	// ErrExpired refuses a token whose time is up.
	ErrExpired = errors.New("token has expired")
	// ErrVersion refuses a token of a version that this release does not read. Its text is for
	// clients: it reveals nothing that the token's first byte does not.
	ErrVersion = errors.New("the token was made by a version of the gateway that this one " +
		"cannot read")
)

// Explain returns what a client is told of a token that is refused with err: that another version
// has made it, or else the message.
func Explain(err error, message string) string {
	if errors.Is(err, ErrVersion) {
		return ErrVersion.Error()
	}
	return message
}
