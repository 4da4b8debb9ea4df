package fakemongo

import (
	"crypto/md5" //nolint:gosec // MongoDB's SCRAM-SHA-1 digests passwords with it
	"crypto/tls"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/xdg-go/scram"
	"github.com/xdg-go/stringprep"

	"github.com/mooringdb/mooring/core/bson"
)

// Auth says who may use a server, and how clients log in. Commands other than hello, ping and
// those of the login itself are Unauthorized before it. The SCRAM mechanisms are another
// implementation's than core/auth's.
type Auth struct {
	// Users log in by SCRAM-SHA-1, SCRAM-SHA-256 or PLAIN.
	Users []User

	// X509 returns the name of the user that a client certificate stands for, or "", which is
	// UserNotFound. Nil: MONGODB-X509 is not offered.
	X509 func(*tls.ConnectionState) string

	// SASL makes the server's side of other mechanisms, by name.
	SASL map[string]func(*Command) SASL

	// EmptyExchange makes SCRAM end with an empty exchange, as servers before 4.4 do.
	EmptyExchange bool

	// NoSpeculation makes hello ignore speculativeAuthenticate.
	NoSpeculation bool

	// Iterations is SCRAM's iteration count; 0 stands for 4096.
	Iterations int
}

// User represents a user of the database Source, by default "admin".
type User struct {
	Name, Password string
	Source         string
	Mechanisms     []string // nil: SCRAM-SHA-1 and SCRAM-SHA-256
}

func (u User) has(mechanism string) bool {
	if u.Mechanisms == nil {
		return isSCRAM(mechanism)
	}
	return slices.Contains(u.Mechanisms, mechanism)
}

func (u User) source() string {
	if u.Source == "" {
		return "admin"
	}
	return u.Source
}

// SASL runs the server's side of one conversation. LoggedIn gets the name that the method Username
// returns, if there is one, else the mechanism's name.
type SASL interface {
	// Step takes the client's payload. An error is the reply: a *Refusal with its code, any other
	// with code 18.
	Step(payload []byte) (response []byte, done bool, err error)
}

// Refusal reports that a SASL conversation failed, with a code of its own.
type Refusal struct {
	Code          int32
	Name, Message string
}

func (r *Refusal) Error() string { return r.Message }

// RequireAuth makes the server demand logins as a says, from now on; nil: none. Connections that
// are logged in stay so.
func (s *Server) RequireAuth(a *Auth) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guard == nil {
		s.guard = &guard{sessions: map[int]*login{}, keys: map[stored]scram.StoredCredentials{}}
	}
	s.guard.set(a)
}

// LoggedIn returns the users of the connections that have logged in, in the order of their logins:
// "source.name".
func (s *Server) LoggedIn() []string {
	s.mu.Lock()
	g := s.guard
	s.mu.Unlock()
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.logins)
}

// guard stands before the handlers of a server.
type guard struct {
	mu       sync.Mutex // guards the fields below
	auth     *Auth
	sessions map[int]*login // by connection
	logins   []string
	keys     map[stored]scram.StoredCredentials // since each takes milliseconds to compute
}

type stored struct {
	mechanism, name, password string
	iterations                int
}

// login holds the state of authentication of one connection.
type login struct {
	user         string // "source.name" once it has logged in
	id           int32  // of the conversation
	source       string
	conversation SASL
	ended        bool // the conversation is, but for the empty exchange
	skip         bool // …and that is left out
	client       func() string
}

func (g *guard) set(a *Auth) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.auth = a
}

// answer answers commands of a login itself, refuses what is not allowed yet, and has next answer
// the rest.
func (g *guard) answer(cmd *Command, next Handler) Reply {
	g.mu.Lock()
	auth := g.auth
	l := g.sessions[cmd.Connection]
	if l == nil {
		l = &login{}
		g.sessions[cmd.Connection] = l
	}
	g.mu.Unlock()
	if auth == nil {
		return next(cmd)
	}
	switch {
	case isHello(cmd.Name):
		return g.hello(auth, l, cmd, next(cmd))
	case cmd.Name == "ping":
		return next(cmd)
	case cmd.Name == "saslStart", cmd.Name == "saslContinue", cmd.Name == "authenticate":
		return asReply(g.login(auth, l, cmd, cmd.Database))
	case l.user == "":
		return Error(13, "Unauthorized", "Command "+cmd.Name+" requires authentication")
	}
	return next(cmd)
}

func asReply(doc bson.Raw, err error) Reply {
	if err == nil {
		return Document(doc)
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return Error(refusal.Code, refusal.Name, refusal.Message)
	}
	return Error(18, "AuthenticationFailed", "Authentication failed.")
}

// hello adds to a hello's reply what the client asked for. Servers leave the answer to a
// speculative login out if that fails.
func (g *guard) hello(auth *Auth, l *login, cmd *Command, reply Reply) Reply {
	b := bson.NewBuilder(nil)
	if name, ok := field(cmd.Body, "saslSupportedMechs").Str(); ok {
		appendMechanisms(b, auth, name)
	}
	begun, ok := field(cmd.Body, "speculativeAuthenticate").Document()
	if ok && !auth.NoSpeculation {
		source, _ := field(begun, "db").Str()
		speculative := *cmd
		speculative.Name, speculative.Body = begun.FirstKey(), begun
		if doc, err := g.login(auth, l, &speculative, source); err == nil {
			b.Document("speculativeAuthenticate", doc)
		}
	}
	return reply.With(b.Finish())
}

func appendMechanisms(b *bson.Builder, auth *Auth, name string) {
	for _, u := range auth.Users {
		if u.source()+"."+u.Name != name {
			continue
		}
		b.OpenArray("saslSupportedMechs")
		for _, m := range []string{"SCRAM-SHA-1", "SCRAM-SHA-256"} {
			if u.has(m) {
				b.String("", m)
			}
		}
		b.Close()
	}
}

func (g *guard) login(auth *Auth, l *login, cmd *Command, source string) (bson.Raw, error) {
	switch cmd.Name {
	case "authenticate":
		return g.x509(auth, l, cmd)
	case "saslStart":
		if err := g.start(auth, l, cmd, source); err != nil {
			return nil, err
		}
	default:
		id, _ := field(cmd.Body, "conversationId").AsInt64()
		if l.conversation == nil || id != int64(l.id) {
			return nil, &Refusal{17, "ProtocolError", "No SASL session state found"}
		}
	}
	_, payload, ok := field(cmd.Body, "payload").Binary()
	if !ok {
		return nil, &Refusal{4, "NoSuchKey", "Missing expected field \"payload\""}
	}
	return g.step(l, payload, l.skips(auth, cmd))
}

// skips remembers in a saslStart whether the client can do without the empty exchange.
func (l *login) skips(auth *Auth, cmd *Command) bool {
	if cmd.Name == "saslStart" {
		mechanism, _ := field(cmd.Body, "mechanism").Str()
		options, _ := field(cmd.Body, "options").Document()
		skip, _ := field(options, "skipEmptyExchange").Bool()
		l.ended = false
		l.skip = !isSCRAM(mechanism) || skip && !auth.EmptyExchange
	}
	return l.skip
}

func (g *guard) step(l *login, payload []byte, skips bool) (bson.Raw, error) {
	var response []byte
	done := true
	switch {
	case l.ended && len(payload) > 0:
		l.conversation = nil
		return nil, &Refusal{17, "ProtocolError", "the conversation is over"}
	case !l.ended:
		var err error
		if response, done, err = l.conversation.Step(payload); err != nil {
			l.conversation = nil
			return nil, err
		}
		if done && !skips {
			l.ended, done = true, false
		}
	}
	if done {
		g.admit(l, l.source+"."+l.client())
		l.conversation = nil
	}
	return bson.NewBuilder(nil).Int32("conversationId", l.id).Bool("done", done).
		Binary("payload", bson.SubtypeGeneric, response).Double("ok", 1).Finish(), nil
}

func (g *guard) admit(l *login, user string) {
	l.user = user
	g.mu.Lock()
	defer g.mu.Unlock()
	g.logins = append(g.logins, user)
}

func (g *guard) start(auth *Auth, l *login, cmd *Command, source string) error {
	mechanism, _ := field(cmd.Body, "mechanism").Str()
	l.id++
	l.source = source
	l.client = func() string { return mechanism }
	other := auth.SASL[mechanism]
	switch {
	case other != nil:
		l.conversation = other(cmd)
		if c, ok := l.conversation.(interface{ Username() string }); ok {
			l.client = c.Username
		}
	case isSCRAM(mechanism):
		c, err := g.scram(auth, mechanism, source)
		if err != nil {
			return err
		}
		l.conversation, l.client = c, c.Username
	case mechanism == "PLAIN":
		c := &plain{auth: auth, source: source}
		l.conversation, l.client = c, func() string { return c.name }
	default:
		return &Refusal{
			334, "MechanismUnavailable", "Received authentication for mechanism " + mechanism +
				" which is unknown or not enabled",
		}
	}
	return nil
}

func (g *guard) x509(auth *Auth, l *login, cmd *Command) (bson.Raw, error) {
	mechanism, _ := field(cmd.Body, "mechanism").Str()
	if mechanism != "MONGODB-X509" || auth.X509 == nil {
		return nil, &Refusal{
			334, "MechanismUnavailable", "Received authentication for mechanism " + mechanism +
				" which is unknown or not enabled",
		}
	}
	if cmd.TLS == nil || len(cmd.TLS.PeerCertificates) == 0 {
		return nil, &Refusal{
			18, "AuthenticationFailed", "There is no x.509 client certificate matching the user.",
		}
	}
	name := auth.X509(cmd.TLS)
	if name == "" {
		return nil, &Refusal{11, "UserNotFound", "Could not find user for db \"$external\""}
	}
	if wanted, ok := field(cmd.Body, "user").Str(); ok && wanted != name {
		return nil, &Refusal{
			18, "AuthenticationFailed", "There is no x.509 client certificate matching the user.",
		}
	}
	g.admit(l, "$external."+name)
	return bson.NewBuilder(nil).String("dbname", "$external").String("user", name).Double("ok",
		1).Finish(), nil
}

func isSCRAM(mechanism string) bool { return strings.HasPrefix(mechanism, "SCRAM-SHA-") }

// scramServer represents a conversation of the independent implementation.
type scramServer struct{ *scram.ServerConversation }

func (c scramServer) Step(payload []byte) ([]byte, bool, error) {
	response, err := c.ServerConversation.Step(string(payload))
	if err == nil && c.Done() && !c.Valid() {
		err = errors.New("no proof")
	}
	return []byte(response), c.Done(), err
}

func (g *guard) scram(auth *Auth, mechanism, source string) (scramServer, error) {
	hash := map[string]scram.HashGeneratorFcn{
		"SCRAM-SHA-1":   scram.SHA1,
		"SCRAM-SHA-256": scram.SHA256,
	}[mechanism]
	if hash == nil {
		return scramServer{}, &Refusal{334, "MechanismUnavailable", mechanism + " is unknown"}
	}
	s, err := hash.NewServer(func(name string) (scram.StoredCredentials, error) {
		for _, u := range auth.Users {
			if u.Name == name && u.source() == source && u.has(mechanism) {
				return g.credentials(auth, hash, mechanism, u)
			}
		}
		return scram.StoredCredentials{}, errors.New("no such user")
	})
	if err != nil {
		return scramServer{}, err
	}
	return scramServer{s.NewConversation()}, nil
}

func (g *guard) credentials(
	auth *Auth, hash scram.HashGeneratorFcn, mechanism string, u User,
) (scram.StoredCredentials, error) {
	key := stored{mechanism, u.Name, u.Password, auth.Iterations}
	if key.iterations == 0 {
		key.iterations = 4096
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.keys[key]; ok {
		return c, nil
	}
	password := u.Password
	if mechanism == "SCRAM-SHA-1" {
		sum := md5.Sum([]byte(u.Name + ":mongo:" + password)) //nolint:gosec // as above
		password = hex.EncodeToString(sum[:])
	} else if prepared, err := stringprep.SASLprep.Prepare(password); err == nil {
		password = prepared
	}
	client, err := hash.NewClientUnprepped(u.Name, password, "")
	if err != nil {
		return scram.StoredCredentials{}, err
	}
	g.keys[key], err = client.GetStoredCredentialsWithError(scram.KeyFactors{
		Salt: "salt of " + mechanism, Iters: key.iterations,
	})
	return g.keys[key], err
}

// plain runs the server's side of PLAIN.
type plain struct {
	auth         *Auth
	source, name string
}

func (p *plain) Step(payload []byte) ([]byte, bool, error) {
	parts := strings.Split(string(payload), "\x00")
	if len(parts) != 3 {
		return nil, false, errors.New("malformed")
	}
	for _, u := range p.auth.Users {
		if u.Name == parts[1] && u.Password == parts[2] && u.Source == p.source && u.has("PLAIN") {
			p.name = u.Name
			return nil, true, nil
		}
	}
	return nil, false, errors.New("no such user")
}
