package auth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/xdg-go/scram"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// script is a server that replies with what it is given, in order, or by a function.
type script struct {
	replies  []bson.Raw
	answer   func(command bson.Raw) bson.Raw
	err      error // of the connection, once the replies are used up
	commands []bson.Raw
	database []string
}

func (s *script) Run(_ context.Context, database string, command bson.Raw) (bson.Raw, error) {
	s.commands = append(s.commands, command)
	s.database = append(s.database, database)
	if s.answer != nil {
		return s.answer(command), nil
	}
	if len(s.replies) == 0 {
		return nil, s.err
	}
	reply := s.replies[0]
	s.replies = s.replies[1:]
	return reply, nil
}

func (s *script) names() string {
	var names []string
	for _, c := range s.commands {
		names = append(names, c.FirstKey())
	}
	return strings.Join(names, " ")
}

func reply(done bool, payload string) bson.Raw { return replyOf(1, done, payload) }

func replyOf(id int32, done bool, payload string) bson.Raw {
	return bson.NewBuilder(nil).Int32("conversationId", id).Bool("done", done).
		Binary("payload", bson.SubtypeGeneric, []byte(payload)).Int32("ok", 1).Finish()
}

func refusal(code int32, text string) bson.Raw {
	return bson.NewBuilder(nil).Int32("ok", 0).Int32("code", code).String("errmsg", text).
		OpenArray("errorLabels").String("", "RetryableWriteError").Close().Finish()
}

var ok = bson.NewBuilder(nil).Int32("ok", 1).Finish()

// saslServer puts the independent SCRAM server into saslStart and saslContinue.
type saslServer struct {
	server       *scram.Server
	conversation *scram.ServerConversation
	skips        bool // ends the conversation without the empty exchange
}

func (s *saslServer) answer(command bson.Raw) bson.Raw {
	v, _ := command.Lookup("payload")
	_, payload, _ := v.Binary()
	switch {
	case command.FirstKey() == "saslStart":
		s.conversation = s.server.NewConversation()
	case s.conversation.Done() && len(payload) == 0:
		return reply(true, "")
	}
	answer, err := s.conversation.Step(string(payload))
	if err != nil {
		return refusal(18, "Authentication failed.")
	}
	return reply(s.conversation.Done() && s.skips, answer)
}

var app = auth.User{Name: "app", Password: "pencil"}

func start(t testing.TB, a *auth.Authenticator) *auth.State {
	t.Helper()
	s, err := a.Start(auth.Target{Address: "db:27017"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func appended(t testing.TB, s *auth.State) bson.Raw {
	t.Helper()
	b := bson.NewBuilder(nil)
	if err := s.AppendHello(b); err != nil {
		t.Fatal(err)
	}
	return b.Finish()
}

func lookup[T any](t testing.TB, d bson.Raw, get func(bson.Value) (T, bool), path ...string) T {
	t.Helper()
	v, _ := d.Lookup(path...)
	got, ok := get(v)
	if !ok {
		t.Errorf("%v in %v is %v", path, d, v)
	}
	return got
}

func TestSCRAMOverCommands(t *testing.T) {
	for _, skips := range []bool{true, false} {
		t.Run(fmt.Sprintf("skipEmptyExchange %v", skips), func(t *testing.T) {
			server := &saslServer{
				server: independent(t, "SCRAM-SHA-256", map[string]string{"app": "pencil"}, 4096),
				skips:  skips,
			}
			s := start(t, auth.SASL("users", auth.FixedUser(app), auth.SCRAMSHA256()))
			r := &script{answer: server.answer}
			if err := s.Authenticate(t.Context(), r, ok); err != nil {
				t.Fatal(err)
			}
			want := "saslStart saslContinue saslContinue"
			if skips {
				want = "saslStart saslContinue"
			}
			if r.names() != want {
				t.Errorf("commands are %s, want %s", r.names(), want)
			}
			first := r.commands[0]
			if m := lookup(t, first, bson.Value.Str, "mechanism"); m != "SCRAM-SHA-256" {
				t.Errorf("mechanism is %s", m)
			}
			if !lookup(t, first, bson.Value.Bool, "options", "skipEmptyExchange") {
				t.Error("skipEmptyExchange is false")
			}
			if slices.ContainsFunc(r.database, func(db string) bool { return db != "users" }) {
				t.Errorf("databases are %v, want users", r.database)
			}
		})
	}
}

func TestSpeculationSavesAStep(t *testing.T) {
	server := &saslServer{
		server: independent(t, "SCRAM-SHA-256", map[string]string{"app": "pencil"}, 4096),
		skips:  true,
	}
	s := start(t, auth.SASL("users", auth.FixedUser(app), auth.SCRAMSHA256()))
	hello := appended(t, s)
	if hello.Has("saslSupportedMechs") {
		t.Error("hello asks for mechanisms although one is configured")
	}
	begun := lookup(t, hello, bson.Value.Document, "speculativeAuthenticate")
	if db := lookup(t, begun, bson.Value.Str, "db"); db != "users" {
		t.Errorf("db is %q", db)
	}
	answer := server.answer(begun)
	r := &script{answer: server.answer}
	if err := s.Authenticate(t.Context(), r,
		bson.NewBuilder(nil).Document("speculativeAuthenticate", answer).Finish()); err != nil {
		t.Fatal(err)
	}
	if r.names() != "saslContinue" {
		t.Errorf("commands are %s, want saslContinue", r.names())
	}
	if name, why := s.Mechanism(); name != "SCRAM-SHA-256" || !strings.Contains(why, "configured") {
		t.Errorf("Mechanism() = %s, %s", name, why)
	}
	r.commands = nil
	if err := s.Reauthenticate(t.Context(), r, errors.New("391")); err != nil ||
		r.names() != "saslStart saslContinue" {
		t.Errorf("Reauthenticate() = %v with %s, want all commands", err, r.names())
	}
}

func mechanisms(names ...string) *bson.Builder {
	b := bson.NewBuilder(nil).OpenArray("saslSupportedMechs")
	for _, n := range names {
		b.String("", n)
	}
	return b.Close()
}

// The choice of the specification ("Defaults"), and what a server in the middle could make of it.
func TestNegotiation(t *testing.T) {
	tests := []struct {
		name  string
		hello bson.Raw
		want  string
	}{
		{"SHA-256", mechanisms("SCRAM-SHA-1", "SCRAM-SHA-256").Finish(), "SCRAM-SHA-256"},
		{"SHA-1", mechanisms("SCRAM-SHA-1").Finish(), "SCRAM-SHA-1"},
		{"unknown ones", mechanisms("FOO", "SCRAM-SHA-512").Finish(), "SCRAM-SHA-1"},
		{"never PLAIN", mechanisms("PLAIN").Finish(), "SCRAM-SHA-1"},
		{"none", mechanisms().Finish(), "SCRAM-SHA-1"},
		{"no answer", ok, "SCRAM-SHA-1"},
		{"no list", bson.NewBuilder(nil).String("saslSupportedMechs", "SCRAM-SHA-256").Finish(), "SCRAM-SHA-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stored := "pencil"
			if tt.want == "SCRAM-SHA-1" {
				stored = auth.Digest("app", "pencil")
			}
			s := start(t, auth.Negotiate("users", auth.FixedUser(app)))
			hello := appended(t, s)
			if q := lookup(t, hello, bson.Value.Str, "saslSupportedMechs"); q != "users.app" {
				t.Errorf("hello asks for the mechanisms of %q", q)
			}
			if m := lookup(t, hello, bson.Value.Str, "speculativeAuthenticate",
				"mechanism"); m != "SCRAM-SHA-256" {
				t.Errorf("hello begins %s", m)
			}
			server := &saslServer{
				server: independent(t, tt.want, map[string]string{"app": stored}, 4096),
				skips:  true,
			}
			r := &script{answer: server.answer}
			if err := s.Authenticate(t.Context(), r, tt.hello); err != nil {
				t.Fatal(err)
			}
			if m := lookup(t, r.commands[0], bson.Value.Str, "mechanism"); m != tt.want {
				t.Errorf("mechanism is %s, want %s", m, tt.want)
			}
			listed := tt.want == "SCRAM-SHA-256"
			if name, why := s.Mechanism(); name != tt.want ||
				strings.Contains(why, "does not list") == listed {
				t.Errorf("Mechanism() = %s, %s", name, why)
			}
			r.commands = nil
			if err := s.Reauthenticate(t.Context(), r, errors.New("391")); err != nil {
				t.Fatal(err)
			}
			if m := lookup(t, r.commands[0], bson.Value.Str, "mechanism"); m != tt.want {
				t.Errorf("mechanism of the reauthentication is %s, want %s", m, tt.want)
			}
		})
	}
}

func TestDowngradeIsRefused(t *testing.T) {
	user := app
	a := auth.Negotiate("admin", func() (auth.User, error) { return user, nil })
	server := &saslServer{
		server: independent(t, "SCRAM-SHA-256", map[string]string{"app": "pencil"}, 4096),
		skips:  true,
	}
	if err := start(t, a).
		Authenticate(t.Context(), &script{answer: server.answer},
			mechanisms("SCRAM-SHA-256").Finish()); err != nil {
		t.Fatal(err)
	}
	for _, hello := range []bson.Raw{
		mechanisms("SCRAM-SHA-1").Finish(), mechanisms("PLAIN").Finish(), ok,
	} {
		r := &script{}
		err := start(t, a).Authenticate(t.Context(), r, hello)
		if kind(err) != auth.KindServer || !strings.Contains(err.Error(), "SCRAM-SHA-256") ||
			len(r.commands) != 0 {
			t.Errorf("Authenticate() = %v with %s, want an error before any command", err,
				r.names())
		}
	}
	user.Name = "other" // a user that has SCRAM-SHA-1 only
	server.server = independent(t, "SCRAM-SHA-1",
		map[string]string{"other": auth.Digest("other", "pencil")}, 4096)
	if err := start(t, a).
		Authenticate(t.Context(), &script{answer: server.answer},
			mechanisms("SCRAM-SHA-1").Finish()); err != nil {
		t.Errorf("Authenticate() of another user: %v", err)
	}
}

func kind(err error) auth.Kind {
	if e, ok := errors.AsType[*auth.Error](err); ok {
		return e.Kind
	}
	return auth.KindUnknown
}

func TestX509(t *testing.T) {
	for _, name := range []string{"", "CN=client,O=Example"} {
		a := auth.X509(auth.FixedUser(auth.User{Name: name}))
		s := start(t, a)
		begun := lookup(t, appended(t, s), bson.Value.Document, "speculativeAuthenticate")
		if db := lookup(t, begun, bson.Value.Str, "db"); db != "$external" {
			t.Errorf("db is %q", db)
		}
		answer := bson.NewBuilder(nil).String("dbname", "$external").String("user", "CN=client").
			Finish()
		r := &script{replies: []bson.Raw{ok, ok}}
		if err := s.Authenticate(t.Context(), r,
			bson.NewBuilder(nil).Document("speculativeAuthenticate", answer).
				Finish()); err != nil || len(r.commands) != 0 {
			t.Errorf("Authenticate() = %v with %s, want no command", err, r.names())
		}
		if err := start(t, a).Authenticate(t.Context(), r, ok); err != nil {
			t.Fatal(err)
		}
		command := r.commands[0]
		user, given := command.Lookup("user")
		text, _ := user.Str()
		if command.FirstKey() != "authenticate" ||
			lookup(t, command, bson.Value.Str, "mechanism") != "MONGODB-X509" ||
			r.database[0] != "$external" || given != (name != "") || text != name {
			t.Errorf("command is %v", command)
		}
		if err := s.Reauthenticate(t.Context(), r, errors.New("391")); err != nil ||
			r.names() != "authenticate authenticate" {
			t.Errorf("Reauthenticate() = %v with %s", err, r.names())
		}
	}
}

// The vector of the specification: AHVzZXIAcGVuY2ls.
func TestPlain(t *testing.T) {
	s := start(t,
		auth.SASL("$external", auth.FixedUser(auth.User{Name: "user", Password: "pencil"}),
			auth.Plain{}))
	if hello := appended(t, s); !hello.IsEmpty() {
		t.Errorf("hello carries %v, want nothing", hello)
	}
	r := &script{replies: []bson.Raw{reply(true, "")}}
	if err := s.Authenticate(t.Context(), r, ok); err != nil {
		t.Fatal(err)
	}
	v, _ := r.commands[0].Lookup("payload")
	if _, payload, _ := v.Binary(); string(payload) != "\x00user\x00pencil" ||
		r.commands[0].Has("options") {
		t.Errorf("command is %v", r.commands[0])
	}
	s = start(t,
		auth.SASL("$external", auth.FixedUser(auth.User{Name: "user", Password: "a\x00b"}),
			auth.Plain{}))
	r = &script{}
	if err := s.Authenticate(t.Context(), r, ok); kind(err) != auth.KindCredential ||
		len(r.commands) != 0 {
		t.Errorf("Authenticate() with a zero byte = %v", err)
	}
}

// talker says done after a number of replies, or never.
type talker struct{ left int }

func (talker) First() ([]byte, error) { return []byte("first"), nil }

func (c *talker) Next([]byte) ([]byte, bool, error) {
	c.left--
	if c.left == 0 {
		return nil, true, nil
	}
	return []byte("more"), false, nil
}

// stub is a mechanism that makes talkers, or fails.
type stub struct {
	auth.Plain
	replies int
	fails   error
	again   bool
	refused []error
}

func (m *stub) Begin(context.Context, auth.Target) (auth.Conversation, error) {
	return &talker{m.replies}, m.fails
}

func (m *stub) Refused(_ auth.Conversation, err error) bool {
	m.refused = append(m.refused, err)
	return m.again
}

func TestHostileReplies(t *testing.T) {
	done := bson.NewBuilder(nil)
	long := strings.Repeat("x", auth.MaxPayload+1)
	tests := []struct {
		name    string
		replies []bson.Raw
		want    string
	}{
		{"no conversationId", []bson.Raw{done.Bool("done", true).Int32("ok", 1).Finish()}, "no conversationId"},
		{"conversationId of any type", []bson.Raw{bson.NewBuilder(nil).String("conversationId", long).Int32("ok", 1).Finish()}, "must be a number"},
		{"no done", []bson.Raw{bson.NewBuilder(nil).Int32("conversationId", 1).Int32("ok", 1).Finish()}, "done"},
		{"no payload", []bson.Raw{bson.NewBuilder(nil).Int32("conversationId", 1).Bool("done", true).Int32("ok", 1).Finish()}, "no payload"},
		{"string that is not base64", []bson.Raw{bson.NewBuilder(nil).Int32("conversationId", 1).Bool("done", true).String("payload", "***").Int32("ok", 1).Finish()}, "base64"},
		{"payload too long", []bson.Raw{reply(false, long)}, "longer than"},
		{"text too long", []bson.Raw{bson.NewBuilder(nil).Int32("conversationId", 1).Bool("done", true).String("payload", long+long).Int32("ok", 1).Finish()}, "longer than"},
		{"done too early", []bson.Raw{reply(true, "")}, "before it proved"},
		{"another conversation", []bson.Raw{reply(false, ""), replyOf(2, false, "")}, "another conversationId"},
		{"payload after the end", []bson.Raw{reply(false, ""), reply(false, ""), reply(false, ""), reply(true, "x")}, "after the end"},
		{"no end", []bson.Raw{reply(false, ""), reply(false, ""), reply(false, ""), reply(false, "")}, "has not ended"},
		{"no ok", []bson.Raw{bson.NewBuilder(nil).Int32("conversationId", 1).Finish()}, "ok is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &stub{replies: 3}
			r := &script{replies: tt.replies}
			err := start(t, auth.SASL("admin", nil, m)).Authenticate(t.Context(), r, ok)
			if kind(err) != auth.KindServer || !strings.Contains(err.Error(), tt.want) ||
				len(err.Error()) > 1000 {
				t.Errorf("Authenticate() = %v, want a short error with %q", err, tt.want)
			}
			if len(m.refused) != 1 {
				t.Errorf("the mechanism heard of %v, want one error", m.refused)
			}
		})
	}
}

func TestTextPayloadIsAccepted(t *testing.T) {
	r := &script{replies: []bson.Raw{
		bson.NewBuilder(nil).Int64("conversationId", 7).Bool("done", true).String("payload", "").Int32("ok", 1).Finish(),
	}}
	if err := start(t, auth.SASL("$external", nil, auth.Plain{})).
		Authenticate(t.Context(), r, ok); err != nil {
		t.Error(err)
	}
}

func TestEndlessConversation(t *testing.T) {
	r := &script{answer: func(bson.Raw) bson.Raw { return reply(false, "more") }}
	err := start(t, auth.SASL("admin", nil, &stub{replies: 1 << 30})).
		Authenticate(t.Context(), r, ok)
	if kind(err) != auth.KindServer || len(r.commands) != auth.MaxSteps+1 {
		t.Errorf("Authenticate() = %v after %d commands", err, len(r.commands))
	}
}

func TestHostileHello(t *testing.T) {
	begun := bson.NewBuilder(nil).Document("speculativeAuthenticate", reply(false, "r=x")).Finish()
	tests := []struct {
		name  string
		a     *auth.Authenticator
		hello bson.Raw
		want  string
	}{
		{"answer to nothing", auth.SASL("$external", auth.FixedUser(app), auth.Plain{}), begun, "not requested"},
		{"no document", auth.X509(nil), bson.NewBuilder(nil).Int32("speculativeAuthenticate", 1).Finish(), "must be a document"},
		{"wrong nonce", auth.SASL("admin", auth.FixedUser(app), auth.SCRAMSHA256()), begun, "no \"s=\""},
		{"contradiction", auth.Negotiate("admin", auth.FixedUser(app)), mechanisms("SCRAM-SHA-1").
			Document("speculativeAuthenticate", reply(false, "r=x")).Finish(), "does not list it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, tt.a)
			appended(t, s)
			r := &script{}
			err := s.Authenticate(t.Context(), r, tt.hello)
			if kind(err) != auth.KindServer || !strings.Contains(err.Error(), tt.want) ||
				len(r.commands) != 0 {
				t.Errorf("Authenticate() = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	const secret = "app's pencil"
	tests := []struct {
		name    string
		m       auth.Mechanism
		code    int32
		kind    auth.Kind
		shows   bool
		retries bool
	}{
		{"SCRAM", auth.SCRAMSHA256(), 18, auth.KindRejected, true, false},
		{"no such user", auth.SCRAMSHA256(), 11, auth.KindRejected, true, false},
		{"SCRAM is off", auth.SCRAMSHA256(), 334, auth.KindMechanism, true, false},
		{"unknown mechanism", auth.SCRAMSHA1(), 2, auth.KindMechanism, true, false},
		{"no saslStart", auth.SCRAMSHA1(), 59, auth.KindMechanism, true, false},
		{"PLAIN may be echoed", auth.Plain{}, 18, auth.KindRejected, false, false},
		{"another attempt", &stub{again: true, replies: 1}, 18, auth.KindRejected, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &script{answer: func(bson.Raw) bson.Raw { return refusal(tt.code, "no: "+secret) }}
			err := start(t, auth.SASL("admin", auth.FixedUser(app), tt.m)).
				Authenticate(t.Context(), r, ok)
			if kind(err) != tt.kind || mongoerr.Code(err) != tt.code {
				t.Errorf("Authenticate() = %v of kind %v, want %v", err, kind(err), tt.kind)
			}
			if e, _ := errors.AsType[*auth.Error](err); e.RefusesCredential() !=
				(tt.kind == auth.KindRejected) {
				t.Errorf("%v: RefusesCredential() = %v", err, e.RefusesCredential())
			}
			if strings.Contains(err.Error(), secret) != tt.shows {
				t.Errorf("Authenticate() = %v, shows what the server says: want %v", err, tt.shows)
			}
			// the reply is not in it either
			if strings.Contains(fmt.Sprintf("%+v", err), app.Password) != tt.shows {
				t.Errorf("error %+v", err)
			}
			if len(mongoerr.Labels(err)) != 0 || mongoerr.Judge(err).Retryable {
				t.Errorf("error has labels %v, retryable %v", mongoerr.Labels(err),
					mongoerr.Judge(err).Retryable)
			}
			if want := map[bool]int{true: 2, false: 1}[tt.retries]; len(r.commands) != want {
				t.Errorf("%d commands, want %d", len(r.commands), want)
			}
		})
	}
}

func TestRefusalAfterSpeculation(t *testing.T) {
	server := &saslServer{
		server: independent(t, "SCRAM-SHA-256", map[string]string{"app": "pen"}, 4096), skips: true,
	}
	s := start(t, auth.Negotiate("admin", auth.FixedUser(app)))
	answer := server.answer(lookup(t, appended(t, s), bson.Value.Document,
		"speculativeAuthenticate"))
	err := s.Authenticate(t.Context(), &script{answer: server.answer},
		mechanisms("SCRAM-SHA-256").Document("speculativeAuthenticate", answer).Finish())
	const want = `authenticate on db:27017 (SCRAM-SHA-256, authSource admin): ` +
		`command failed on db:27017: Authentication failed. (AuthenticationFailed, code 18)`
	if err == nil || err.Error() != want {
		t.Errorf("Authenticate() = %v, want %s", err, want)
	}
}

// While a password changes, all are tried, the newest one first.
func TestFormerPassword(t *testing.T) {
	for name, tt := range map[string]struct {
		has        string // the server's password
		former     [2]string
		accepted   bool
		saslStarts int
	}{
		"the server has the new one":    {"pencil", [2]string{"old", "older"}, true, 1},
		"the server has the former one": {"old", [2]string{"old", "older"}, true, 2},
		"the server has an older one":   {"older", [2]string{"old", "older"}, true, 3},
		"the server has another one":    {"other", [2]string{"old", "older"}, false, 3},
		"there is no older one":         {"older", [2]string{"old"}, false, 2},
		"there is no former one":        {"old", [2]string{}, false, 1},
	} {
		for _, speculates := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				server := &saslServer{
					server: independent(t, "SCRAM-SHA-256", map[string]string{"app": tt.has}, 4096),
					skips:  true,
				}
				s := start(t, auth.Negotiate("admin", auth.FixedUser(auth.User{
					Name: "app", Password: "pencil", Former: tt.former,
				})))
				starts := tt.saslStarts
				hello, r := mechanisms("SCRAM-SHA-256"), &script{answer: server.answer}
				if begun := lookup(t, appended(t, s), bson.Value.Document,
					"speculativeAuthenticate"); speculates {
					hello.Document("speculativeAuthenticate", server.answer(begun))
					starts--
				}
				err := s.Authenticate(t.Context(), r, hello.Finish())
				if (err == nil) != tt.accepted || err != nil && mongoerr.Code(err) != 18 {
					t.Errorf("Authenticate() = %v", err)
				}
				if n := strings.Count(r.names(), "saslStart"); n != starts {
					t.Errorf("%s, want %d times saslStart", r.names(), starts)
				}
				if text := fmt.Sprintf("%+v %v", s, err); strings.Contains(text, "old") ||
					strings.Contains(text, "pencil") {
					t.Errorf("a password is shown in %s", text)
				}
			})
		}
	}
}

// A former password is tried if the newer one cannot be used, and not if the connection is broken.
func TestFormerPasswordIsTried(t *testing.T) {
	user := auth.FixedUser(auth.User{Name: "app", Password: "a\x00b", Former: [2]string{"pencil"}})
	s := start(t, auth.SASL("$external", user, auth.Plain{}))
	r := &script{answer: func(bson.Raw) bson.Raw { return reply(true, "") }}
	if err := s.Authenticate(t.Context(), r, ok); err != nil || r.names() != "saslStart" {
		t.Errorf("Authenticate() = %v with %s", err, r.names())
	}
	user = auth.FixedUser(auth.User{Password: "a", Former: [2]string{"b", "c"}})
	s = start(t, auth.SASL("$external", user, auth.Plain{}))
	r = &script{err: &mongoerr.NetworkError{Err: io.ErrUnexpectedEOF}}
	if err := s.Authenticate(t.Context(), r, ok); !mongoerr.IsNetwork(err) ||
		r.names() != "saslStart" {
		t.Errorf("Authenticate() = %v with %s", err, r.names())
	}
}

func TestBrokenConnection(t *testing.T) {
	m := &stub{replies: 2, again: true}
	cut := &mongoerr.NetworkError{
		Address: address.Address("db:27017"), Op: "read", Err: io.ErrUnexpectedEOF,
	}
	r := &script{replies: []bson.Raw{reply(false, "")}, err: cut}
	err := start(t, auth.SASL("admin", nil, m)).Authenticate(t.Context(), r, ok)
	if kind(err) != auth.KindConnection || !mongoerr.IsNetwork(err) || len(m.refused) != 1 ||
		len(r.commands) != 2 {
		t.Errorf("Authenticate() = %v with %s; the mechanism heard of %v", err, r.names(),
			m.refused)
	}
}

func TestCredentialThatCannotBeHad(t *testing.T) {
	missing := errors.New("no such file")
	_, err := auth.Negotiate("admin", func() (auth.User, error) {
		return auth.User{}, missing
	}).Start(auth.Target{Address: "db:27017"})
	if kind(err) != auth.KindCredential || !errors.Is(err, missing) {
		t.Errorf("Start() = %v", err)
	}
	r := &script{}
	err = start(t, auth.SASL("admin", nil, &stub{fails: missing})).Authenticate(t.Context(), r, ok)
	if kind(err) != auth.KindCredential || !errors.Is(err, missing) || len(r.commands) != 0 {
		t.Errorf("Authenticate() = %v", err)
	}
}

func TestReauthenticationTellsTheMechanism(t *testing.T) {
	m := &stub{replies: 1}
	s := start(t, auth.SASL("admin", nil, m))
	r := &script{answer: func(bson.Raw) bson.Raw { return reply(true, "") }}
	if err := s.Authenticate(t.Context(), r, ok); err != nil {
		t.Fatal(err)
	}
	cause := &mongoerr.CommandError{Code: 391}
	if err := s.Reauthenticate(t.Context(), r, cause); err != nil || len(m.refused) != 1 ||
		!errors.Is(m.refused[0], cause) {
		t.Errorf("Reauthenticate() = %v; the mechanism heard of %v", err, m.refused)
	}
}

func TestEveryKindHasNameAndAdvice(t *testing.T) {
	seen := map[string]bool{}
	for k := auth.KindUnknown; k <= auth.KindConnection; k++ {
		e := &auth.Error{Kind: k, Source: "admin", Mechanism: "SCRAM-SHA-256", Err: io.EOF}
		if k.String() == "" || e.Advice() == "" || seen[e.Advice()] {
			t.Errorf("%v: advice %q", k, e.Advice())
		}
		seen[e.Advice()] = true
	}
	for _, mechanism := range []string{"MONGODB-X509", "MONGODB-OIDC", "SCRAM-SHA-1"} {
		e := &auth.Error{Kind: auth.KindRejected, Source: "admin", Mechanism: mechanism}
		if strings.Contains(e.Advice(), "password") != (mechanism == "SCRAM-SHA-1") {
			t.Errorf("advice for %s is %q", mechanism, e.Advice())
		}
	}
}

func TestUserIsMasked(t *testing.T) {
	u := auth.User{Name: "app", Password: "pencil", Former: [2]string{"pencil of before"}}
	text, _ := u.MarshalText()
	for _, got := range []string{
		fmt.Sprint(u), fmt.Sprintf("%+v %#v %s %q %x", u, u, u, u, u), fmt.Sprintf("%+v", auth.Target{User: u}), string(text),
	} {
		if strings.Contains(got, "pencil") || !strings.Contains(got, "app") {
			t.Errorf("a user is printed as %q", got)
		}
	}
	if got := fmt.Sprint(auth.User{Name: "app"}); got != "app" {
		t.Errorf("a user without a password is printed as %q", got)
	}
}
