package auth

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
)

// Negotiate returns an authenticator for a user without a configured mechanism: by SCRAM-SHA-256 if
// the server lists it for the user, else by SCRAM-SHA-1 (Authentication, "Defaults").
func Negotiate(source string, user UserSource) *Authenticator {
	return newAuthenticator(source, user, &negotiatedLogin{
		source: source,
		sha1:   saslLogin{source, SCRAMSHA1()}, sha256: saslLogin{source, SCRAMSHA256()},
	})
}

// negotiatedLogin chooses by the reply to hello. A user that could use SCRAM-SHA-256 once is not
// authenticated by SCRAM-SHA-1 later: a server in the middle could ask for that to get a weaker
// proof of the password.
type negotiatedLogin struct {
	source       string
	sha1, sha256 saslLogin

	mu     sync.Mutex // guards strong
	strong string     // the last user that was offered SCRAM-SHA-256
}

func (*negotiatedLogin) mechanism() string { return "" }

func (l *negotiatedLogin) hello(b *bson.Builder, to Target) (exchange, error) {
	b.String("saslSupportedMechs", l.source+"."+to.User.Name)
	return l.sha256.hello(b, to)
}

func (l *negotiatedLogin) choose(hello bson.Raw, answered bool, to Target) (login, error) {
	offered := offers(hello, l.sha256.mechanism())
	switch {
	case answered && !offered:
		return l.sha256, errContradiction
	case !offered && l.wasStrong(to.User.Name):
		return l.sha1, errDowngrade
	case !offered:
		return l.sha1, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strong = to.User.Name
	return l.sha256, nil
}

var (
	errContradiction = errors.New("the server accepts SCRAM-SHA-256, but does not list it for " +
		"the user")
	errDowngrade = errors.New("the server no longer lists SCRAM-SHA-256 for the user: the user " +
		"was removed or changed, or an attacker is in the middle; to use SCRAM-SHA-1, set the " +
		"option authMechanism")
)

func (l *negotiatedLogin) wasStrong(user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.strong == user
}

// offers reports whether the reply to hello lists the mechanism for the user. Names that are not
// known are ignored.
func offers(hello bson.Raw, mechanism string) bool {
	v, _ := hello.Lookup("saslSupportedMechs")
	list, _ := v.Array()
	var names []string
	for _, v := range list.All() {
		name, _ := v.Str()
		names = append(names, name)
	}
	return slices.Contains(names, mechanism)
}

func (l *negotiatedLogin) begin(context.Context, Target) (exchange, error) {
	panic("bug: auth: begin before the mechanism is chosen")
}

func (*negotiatedLogin) refused(exchange, error) bool { return false }

func (*negotiatedLogin) discloses() bool { return false }
