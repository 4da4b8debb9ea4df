package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Plain implements the mechanism PLAIN, for LDAP: it sends the password as it is, and so needs
// TLS.
type Plain struct{}

var _ Mechanism = Plain{}

// Name returns "PLAIN".
func (Plain) Name() string { return "PLAIN" }

// Begin returns a conversation. The error says that the name or the password cannot be sent.
func (Plain) Begin(_ context.Context, to Target) (Conversation, error) {
	if strings.ContainsRune(to.User.Name+to.User.Password, 0) {
		return nil, errors.New("PLAIN takes no user name or password with a zero byte")
	}
	return plain{to.User}, nil
}

// Speculate returns nil: the specification has none for PLAIN, and the password is not for a server
// that may not want it.
func (Plain) Speculate(Target) Conversation { return nil }

// Refused returns false.
func (Plain) Refused(Conversation, error) bool { return false }

type plain struct{ user User }

// Format keeps the password out of every verb.
func (p plain) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "PLAIN(%v)", p.user) }

// First returns the empty authorization identity, the name and the password (RFC 4616).
func (p plain) First() ([]byte, error) {
	return []byte("\x00" + p.user.Name + "\x00" + p.user.Password), nil
}

// Next expects nothing from the server.
func (plain) Next(payload []byte) ([]byte, bool, error) {
	if len(payload) > 0 {
		return nil, false, errors.New("the server answers PLAIN with a challenge")
	}
	return nil, true, nil
}
