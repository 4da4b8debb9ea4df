package auth

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Kind says why an authentication failed.
type Kind uint8

// The kinds.
const (
	KindUnknown    Kind = iota
	KindRejected        // the server refused the user
	KindMechanism       // the server does not have the mechanism
	KindServer          // the server broke the mechanism's rules, or could not prove who it is
	KindCredential      // the credential could not be read, fetched or used
	KindConnection      // the connection broke, or time ran out
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"unknown", "rejected", "mechanism", "server", "credential", "connection"}[k]
}

// Error describes an authentication that failed. It has no error labels: the driver never retries
// it.
type Error struct {
	Address   address.Address
	Mechanism string // empty while it is not chosen
	User      string // empty if there is none
	Source    string // the user's database
	Kind      Kind
	Service   bson.ObjectID // that the connection leads to behind a load balancer; else zero
	Err       error
}

// Error returns the text without the name of the user, since people who may not know the name may
// read the text.
func (e *Error) Error() string {
	mechanism := e.Mechanism
	if mechanism == "" {
		mechanism = "mechanism not chosen yet"
	}
	return fmt.Sprintf("authenticate on %s (%s, authSource %s): %v", e.Address, mechanism,
		e.Source, e.Err)
}

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// The server's errors for a user or a credential that it refuses. UserNotFound is for a certificate
// (MONGODB-X509) whose subject is no user.
const (
	codeUserNotFound         = 11
	codeAuthenticationFailed = 18
)

// RefusesCredential reports whether the server refused the user or the credential. Its other errors
// may be of its own state.
func (e *Error) RefusesCredential() bool {
	code := mongoerr.Code(e.Err)
	return code == codeUserNotFound || code == codeAuthenticationFailed ||
		errors.Is(e.Err, errRefused)
}

// Advice returns a sentence that says what to change.
func (e *Error) Advice() string {
	switch e.Kind {
	case KindRejected:
		switch e.Mechanism {
		case x509Name:
			return "Check that the subject of the client certificate (tlsCertificateKeyFile) is " +
				"a user of the database $external."
		case "MONGODB-AWS", "MONGODB-OIDC":
			return "Check that the identity which the credential stands for is a user of the " +
				"database $external, with its roles."
		}
		return fmt.Sprintf("Check the user name and the password, and that the user is defined "+
			"in the database %s (option authSource), "+
			"for the mechanism of the option authMechanism if that is set.", e.Source)
	case KindMechanism:
		return "Check the option authMechanism: use a mechanism that is enabled on the server " +
			"(authenticationMechanisms) and that the user has."
	case KindServer:
		return "Check that the host names lead to your deployment. A server that breaks the " +
			"rules of a mechanism may be another program or an attacker."
	case KindCredential:
		return "Check the configured credential and the place that it comes from (a file, the " +
			"environment, or a service)."
	case KindConnection:
		return "Check the network to the server and the option connectTimeoutMS."
	case KindUnknown:
	}
	return "Check the credential and the server's log."
}

// failed returns the error of an authentication that ended with err, or err itself if it is one.
func (s *State) failed(k Kind, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{
		Address: s.target.Address, Mechanism: s.login.mechanism(), User: s.target.User.Name,
		Source: s.source,
		Kind:   k, Err: err,
	}
}

// broken returns the error for a reply that the conversation does not accept.
func (s *State) broken(err error) *Error {
	if errors.Is(err, errRefused) {
		return s.failed(KindRejected, err)
	}
	return s.failed(KindServer, err)
}

// errRefused is inside the error of a conversation in which the server refused the user, by the
// mechanism's own means.
var errRefused = errors.New("the server rejected the user")

// refusedBy returns the error for a reply with ok: 0, without its labels. If the server was sent a
// secret, its words are left out, too, since it could repeat the secret in them.
func (s *State) refusedBy(err error) *Error {
	failed, ok := errors.AsType[*mongoerr.CommandError](err)
	if !ok {
		return s.failed(KindServer, err)
	}
	shown := &mongoerr.CommandError{
		Code: failed.Code, Name: failed.Name, Message: shorten(failed.Message),
		Address:         failed.Address,
		TopologyVersion: failed.TopologyVersion,
	}
	if s.login.discloses() {
		shown.Message = "the server rejected it"
	}
	return s.failed(kindOf(shown.Code), shown)
}

// maxText is how many bytes of a server's words an error holds.
const maxText = 256

func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// The codes that say what the server has against an authentication. All others are of Kind
// rejected.
const (
	codeBadValue             = 2
	codeCommandNotFound      = 59
	codeMechanismUnavailable = 334
)

func kindOf(code int32) Kind {
	switch code {
	case codeBadValue, codeCommandNotFound, codeMechanismUnavailable:
		return KindMechanism
	}
	return KindRejected
}
