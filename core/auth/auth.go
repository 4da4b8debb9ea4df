package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// MaxPayload limits the payload of one server reply, in bytes. MaxSteps limits the replies of one
// conversation.
const (
	MaxPayload = 64 << 10
	MaxSteps   = 10
)

// Runner runs one command on a connection. It adds $db and what else the connection's commands
// carry, and never compresses. The error is the connection's; a reply with ok: 0 is none.
type Runner interface {
	Run(ctx context.Context, database string, command bson.Raw) (bson.Raw, error)
}

// Authenticator authenticates the connections of one client. Its methods may be called from many
// goroutines at once.
type Authenticator struct {
	source string // the database that authentication commands go to
	user   UserSource
	login  login
}

// SASL returns an authenticator by one mechanism. A nil user stands for none.
func SASL(source string, user UserSource, m Mechanism) *Authenticator {
	return newAuthenticator(source, user, saslLogin{source, m})
}

func newAuthenticator(source string, user UserSource, l login) *Authenticator {
	if user == nil {
		user = FixedUser(User{})
	}
	return &Authenticator{source: source, user: user, login: l}
}

// login represents a way to authenticate. The connections of a client share it.
type login interface {
	// mechanism returns the name, empty if it is not chosen yet.
	mechanism() string
	// hello appends what the connection's hello carries, and returns the exchange that it begins,
	// or nil.
	hello(b *bson.Builder, to Target) (exchange, error)
	// choose returns the login that the server's hello leads to, usually itself; with an error,
	// what the error is about. answered says that the server answers the exchange that the
	// connection's hello began.
	choose(hello bson.Raw, answered bool, to Target) (login, error)
	// begin returns a new exchange.
	begin(ctx context.Context, to Target) (exchange, error)
	// refused takes note that x was refused, and reports whether another one may succeed.
	refused(x exchange, err error) bool
	// discloses reports whether servers are sent a secret by it, and may repeat it.
	discloses() bool
}

// exchange holds the commands of one authentication, in order: a value without I/O.
type exchange interface {
	// first returns the first command.
	first() (bson.Raw, error)
	// next takes the reply to the last command and returns the next command, nil if there is none.
	next(reply bson.Raw) (bson.Raw, error)
}

// State holds the authentication of one connection. It belongs to the connection's owner.
type State struct {
	target      Target
	former      [2]string // the passwords to try if the target's is refused
	source      string
	login       login
	negotiates  bool     // the login is chosen by the server's hello
	speculative exchange // begun in hello
	last        exchange // that the connection authenticated by
}

// Format keeps the password out of every verb.
func (s *State) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "auth.State(%v)", s.target.User) }

// Start begins the authentication of one connection. It does no I/O.
func (a *Authenticator) Start(to Target) (*State, error) {
	_, negotiates := a.login.(*negotiatedLogin)
	s := &State{target: to, source: a.source, login: a.login, negotiates: negotiates}
	user, err := a.user()
	if err != nil {
		return nil, s.failed(KindCredential, err)
	}
	s.former, user.Former = user.Former, [2]string{}
	s.target.User = user
	return s, nil
}

// AppendHello appends to the first hello what it has to carry: the question for the user's
// mechanisms and the first command. A hello with either is sensitive.
func (s *State) AppendHello(b *bson.Builder) error {
	x, err := s.login.hello(b, s.target)
	if err != nil {
		return s.failed(KindCredential, err)
	}
	s.speculative = x
	return nil
}

// Authenticate authenticates the connection, whose first hello had the given reply. It blocks on r,
// and on what the mechanism needs, until ctx ends. If the password is refused, it tries the former
// ones. The error is an *Error, that of the password which is not a former one.
func (s *State) Authenticate(ctx context.Context, r Runner, hello bson.Raw) error {
	err := s.authenticate(ctx, r, hello)
	last := err
	for _, former := range s.former {
		e, failed := errors.AsType[*Error](last)
		// In Kerberos, it is not the server that refuses a password.
		if former == "" || !failed || !e.RefusesCredential() && e.Kind != KindCredential {
			break
		}
		s.target.User.Password = former
		if last = s.run(ctx, r); last == nil {
			return nil
		}
	}
	return err
}

func (s *State) authenticate(ctx context.Context, r Runner, hello bson.Raw) error {
	begun := s.speculative
	s.speculative = nil
	answer, err := speculativeReply(hello)
	if err != nil {
		return s.failed(KindServer, err)
	}
	if answer != nil && begun == nil {
		return s.failed(KindServer, errUnasked)
	}
	if s.login, err = s.login.choose(hello, answer != nil, s.target); err != nil {
		return s.failed(KindServer, err)
	}
	if answer == nil {
		return s.run(ctx, r)
	}
	return s.finish(ctx, r, begun, answer)
}

// speculativeReply returns the answer to the speculative authentication, nil if there is none.
func speculativeReply(hello bson.Raw) (bson.Raw, error) {
	v, ok := hello.Lookup("speculativeAuthenticate")
	if !ok || v.IsNull() {
		return nil, nil
	}
	answer, ok := v.Document()
	if !ok {
		return nil, fmt.Errorf("speculativeAuthenticate in the reply to hello is a %v, "+
			"must be a document", v.Type)
	}
	return answer, nil
}

var errUnasked = errors.New("the reply to hello has a speculativeAuthenticate " +
	"that was not requested")

// Mechanism returns the mechanism by which the connection has authenticated, and why it was chosen.
// Both are empty before that.
func (s *State) Mechanism() (name, why string) {
	if s.last == nil {
		return "", ""
	}
	name = s.login.mechanism()
	switch {
	case !s.negotiates:
		return name, "as configured (authMechanism)"
	case name == scramSHA256:
		return name, "the server lists it for the user"
	}
	return name, "the server does not list " + scramSHA256 + " for the user"
}

// Reauthenticate authenticates the connection again, after the server's error 391
// (ReauthenticationRequired).
func (s *State) Reauthenticate(ctx context.Context, r Runner, cause error) error {
	if s.last != nil {
		s.login.refused(s.last, cause)
		s.last = nil
	}
	return s.run(ctx, r)
}

// run has one conversation, and another one if the mechanism says that it may succeed.
func (s *State) run(ctx context.Context, r Runner) error {
	again, err := s.attempt(ctx, r)
	if again {
		_, err = s.attempt(ctx, r)
	}
	return err
}

func (s *State) attempt(ctx context.Context, r Runner) (again bool, err error) {
	x, err := s.login.begin(ctx, s.target)
	if err != nil {
		return false, s.failed(KindCredential, err)
	}
	command, err := x.first()
	if err != nil {
		return false, s.failed(KindCredential, err)
	}
	err = s.exchange(ctx, r, x, command)
	if err == nil {
		return false, nil
	}
	again = s.login.refused(x, errors.Unwrap(err))
	return again && !mongoerr.IsNetwork(err), err
}

// finish goes on with a speculative exchange.
func (s *State) finish(ctx context.Context, r Runner, x exchange, reply bson.Raw) error {
	command, err := x.next(reply)
	if err != nil {
		err = s.broken(err)
	} else {
		err = s.exchange(ctx, r, x, command)
	}
	if err != nil {
		s.login.refused(x, errors.Unwrap(err))
	}
	return err
}

// exchange runs commands to the end of x.
func (s *State) exchange(ctx context.Context, r Runner, x exchange, command bson.Raw) error {
	for command != nil {
		reply, err := r.Run(ctx, s.source, command)
		if err != nil {
			return s.failed(KindConnection, err)
		}
		if err := mongoerr.FromReply(s.target.Address, reply); err != nil {
			return s.refusedBy(err)
		}
		if command, err = x.next(reply); err != nil {
			return s.broken(err)
		}
	}
	s.last = x
	return nil
}
