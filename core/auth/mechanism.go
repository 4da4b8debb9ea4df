package auth

import (
	"context"
	"fmt"

	"github.com/mooringdb/mooring/core/address"
)

// Mechanism represents one SASL mechanism with the credential of one client, shared by all its
// connections. Its methods may be called from many goroutines at once. The package comment says
// when each is called.
type Mechanism interface {
	// Name returns the mechanism's name as saslStart spells it.
	Name() string

	// Begin returns a new conversation for a connection. It may block until ctx ends.
	Begin(ctx context.Context, to Target) (Conversation, error)

	// Speculate returns a conversation that may begin in the connection's hello, or nil. It does
	// not block.
	Speculate(to Target) Conversation

	// Refused takes note that c failed, and why. It reports whether another conversation may
	// succeed.
	Refused(c Conversation, err error) (again bool)
}

// Conversation represents the client's side of one SASL exchange. It does no I/O, and one
// goroutine uses it.
type Conversation interface {
	// First returns the payload of saslStart. It is called once.
	First() ([]byte, error)

	// Next takes the server's payload and returns the payload of the next saslContinue, which may
	// be empty. done reports whether the client is satisfied: it has proved who it is, and the
	// server has proved what the mechanism asks of it. Next is not called again after done. If the
	// server ends the exchange before done, the authentication has failed. payload is valid during
	// the call only, and at most MaxPayload bytes long.
	Next(payload []byte) (response []byte, done bool, err error)
}

// Target describes the connection that a conversation is for.
type Target struct {
	Address address.Address

	// User is the user of this connection, without Former. Start fills it in.
	User User
}

// User holds a user's name and password. Either is empty if the configuration has none. Printing a
// User shows no password.
type User struct {
	Name     string
	Password string

	// Former are passwords before this one, in the order in which a connection whose Password is
	// refused tries them: while a password changes, servers may still have a former one. There is
	// none from the first that is empty.
	Former [2]string
}

// UserSource returns the user as the configuration has it now. It is asked once for each connection
// and must not block.
type UserSource func() (User, error)

// FixedUser returns the source of a user that never changes.
func FixedUser(u User) UserSource { return func() (User, error) { return u, nil } }

// String returns the name, with a mask if there is a password.
func (u User) String() string {
	if u == (User{Name: u.Name}) {
		return u.Name
	}
	return u.Name + ":***"
}

// Format writes what String returns, whatever the verb.
func (u User) Format(f fmt.State, _ rune) { fmt.Fprint(f, u.String()) }

// MarshalText returns what String returns: JSON and structured logs show that.
func (u User) MarshalText() ([]byte, error) { return []byte(u.String()), nil }
