package krb5_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/gssapi"
	"github.com/mooringdb/mooring/core/auth/gssapi/krb5"
	"github.com/mooringdb/mooring/core/bson"
)

// leaveNothing checks at the end of the test that no goroutine is left.
func leaveNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// begin is one connection's conversation.
func begin(
	ctx context.Context, i *krb5.Initiator, cfg gssapi.Config, u auth.User,
) (auth.Conversation, error) {
	return gssapi.New(cfg, i).Begin(ctx, auth.Target{Address: host + ":27017", User: u})
}

// TestRealKDC authenticates against MIT Kerberos and Cyrus SASL, with each source of keys.
func TestRealKDC(t *testing.T) {
	leaveNothing(t)
	k := startKDC(t)
	k.run("", "kadmin.local", "-q", "addprinc -randkey service/account")
	k.run("", "kadmin.local", "-q", "ktadd -k "+k.path("client.keytab")+" service/account")
	k.run("", "kadmin.local", "-q", "addprinc -pw "+password+" old@"+realm)
	k.run("", "kadmin.local", "-q", "addprinc -randkey other/"+host)
	k.run(password, "kinit", "-c", k.path("cache"), "user")
	withKeytab := []string{"KRB5_CLIENT_KTNAME", "FILE:" + k.path("client.keytab")}
	withCache := []string{"KRB5CCNAME", "FILE:" + k.path("cache")}
	for _, tt := range []struct {
		name       string
		env        []string
		config     gssapi.Config
		user       auth.User
		want, fail string
	}{
		{name: "password", user: auth.User{Name: "user@TEST.LOCAL", Password: password}, want: "user@TEST.LOCAL"},
		{
			name: "the default realm, for which the server demands the whole name", user: auth.User{Name: "user", Password: password},
			fail: "Requested identity not authenticated identity",
		},
		{name: "keytab", env: withKeytab, user: auth.User{Name: "service/account@TEST.LOCAL"}, want: "service/account@TEST.LOCAL"},
		{name: "credential cache", env: withCache, user: auth.User{Name: "user@TEST.LOCAL"}, want: "user@TEST.LOCAL"},
		{name: "password before keytab", env: withKeytab, user: auth.User{Name: "user@TEST.LOCAL", Password: password}, want: "user@TEST.LOCAL"},
		{
			name: "SERVICE_REALM", config: gssapi.Config{ServiceRealm: realm},
			user: auth.User{Name: "user@TEST.LOCAL", Password: password}, want: "user@TEST.LOCAL",
		},
		{
			name: "SERVICE_HOST", config: gssapi.Config{ServiceHost: "other.example.com"},
			user: auth.User{Name: "user@TEST.LOCAL", Password: password}, fail: "mongodb/other.example.com",
		},
		{
			name: "SERVICE_NAME that the server is not", config: gssapi.Config{ServiceName: "other"},
			user: auth.User{Name: "user@TEST.LOCAL", Password: password}, fail: "the server refused",
		},
		{
			name: "another realm", config: gssapi.Config{ServiceRealm: "ELSEWHERE.LOCAL"},
			user: auth.User{Name: "user@TEST.LOCAL", Password: password}, fail: "ELSEWHERE.LOCAL",
		},
		{name: "wrong password", user: auth.User{Name: "user@TEST.LOCAL", Password: "the-wrong-password"}, fail: "KDC_ERR_PREAUTH_FAILED"},
		{name: "unknown user", user: auth.User{Name: "nobody", Password: password}, fail: "KDC_ERR_C_PRINCIPAL_UNKNOWN"},
		{name: "unknown realm", user: auth.User{Name: "user@NOWHERE", Password: password}, fail: "NOWHERE"},
		{name: "no keys at all", user: auth.User{Name: "user@TEST.LOCAL"}, fail: "no password, no client keytab"},
		{name: "another's cache", env: withCache, user: auth.User{Name: "else"}, fail: "the credential cache belongs to user@TEST.LOCAL"},
		{name: "another's keytab", env: withKeytab, user: auth.User{Name: "user@TEST.LOCAL"}, fail: "keytab"},
		{name: "no keytab file", env: []string{"KRB5_CLIENT_KTNAME", "/none"}, user: auth.User{Name: "user@TEST.LOCAL"}, fail: "/none"},
		{name: "a keytab that is none", env: []string{"KRB5_CLIENT_KTNAME", k.path("krb5.conf")}, user: auth.User{Name: "user@TEST.LOCAL"}, fail: "krb5.conf"},
		{name: "a cache that is none", env: []string{"KRB5CCNAME", k.path("krb5.conf")}, user: auth.User{Name: "user@TEST.LOCAL"}, fail: "credential cache"},
		{name: "a cache that is not a file", env: []string{"KRB5CCNAME", "KEYRING:x"}, user: auth.User{Name: "user@TEST.LOCAL"}, fail: `"KEYRING:x" is not a file`},
		{name: "no krb5.conf", env: []string{"KRB5_CONFIG", "/none"}, user: auth.User{Name: "user@TEST.LOCAL", Password: password}, fail: "/none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := begin(t.Context(), krb5.New(k.getenv(tt.env...)), tt.config, tt.user)
			got := ""
			if err == nil {
				got, err = k.accept(c)
			}
			if got != tt.want || (err == nil) != (tt.fail == "") ||
				err != nil && !strings.Contains(err.Error(), tt.fail) {
				t.Errorf("authenticated as %q, %v, want %q, %q", got, err, tt.want, tt.fail)
			}
			if err != nil && tt.user.Password != "" &&
				strings.Contains(err.Error(), tt.user.Password) {
				t.Errorf("the error has the password in it: %v", err)
			}
		})
	}
}

// TestServiceInAnotherRealm: the user's realm gives a ticket for the service's realm, which gives
// one for the service. What says where the service is, is SERVICE_REALM, or krb5.conf.
func TestServiceInAnotherRealm(t *testing.T) {
	leaveNothing(t)
	k := startKDC(t)
	k.env["KRB5_KTNAME"] = k.path("other.keytab")
	conf, err := os.ReadFile(k.path("krb5.conf"))
	if err != nil {
		t.Fatal(err)
	}
	k.write("mapped.conf", string(conf)+"[domain_realm]\n .example.com = "+other+"\n")
	user := auth.User{Name: "user@TEST.LOCAL", Password: password}
	for name, tt := range map[string]struct {
		env    []string
		config gssapi.Config
	}{
		"SERVICE_REALM": {nil, gssapi.Config{ServiceRealm: other}},
		"domain_realm":  {[]string{"KRB5_CONFIG", k.path("mapped.conf")}, gssapi.Config{}},
	} {
		c, err := begin(t.Context(), krb5.New(k.getenv(tt.env...)), tt.config, user)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := k.accept(c); err != nil || got != user.Name {
			t.Errorf("%s: authenticated as %q, %v", name, got, err)
		}
	}
	c, err := begin(t.Context(), krb5.New(k.getenv()), gssapi.Config{}, user)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.accept(c); err == nil {
		t.Error("a ticket for the service of the user's realm was accepted")
	}
}

// commands puts an acceptor into saslStart and saslContinue. It is an auth.Runner.
type commands struct {
	acceptor *acceptor
	names    []string
}

func (c *commands) Run(_ context.Context, database string, command bson.Raw) (bson.Raw, error) {
	c.names = append(c.names, database+"."+command.FirstKey())
	v, _ := command.Lookup("payload")
	_, payload, _ := v.Binary()
	response, done, err := c.acceptor.Step(payload)
	if err != nil {
		return new(bson.Builder).Int32("ok", 0).Int32("code", 18).Finish(), nil
	}
	return new(bson.Builder).Int32("conversationId", 1).Bool("done", done).
		Binary("payload", 0, response).Int32("ok", 1).Finish(), nil
}

// TestOverCommands authenticates a connection as core/conn does: the empty answer to the server's
// proof is a command of its own.
func TestOverCommands(t *testing.T) {
	k := startKDC(t)
	user := auth.FixedUser(auth.User{Name: "user@TEST.LOCAL", Password: password})
	a := auth.SASL("$external", user, gssapi.New(gssapi.Config{}, krb5.New(k.getenv())))
	state, err := a.Start(auth.Target{Address: host + ":27017"})
	if err != nil {
		t.Fatal(err)
	}
	runner := &commands{acceptor: k.acceptor()}
	err = state.Authenticate(t.Context(), runner, nil)
	want := []string{"$external.saslStart", "$external.saslContinue", "$external.saslContinue"}
	if err != nil || !slices.Equal(runner.names, want) ||
		runner.acceptor.user() != "user@TEST.LOCAL" {
		t.Errorf("Authenticate: %v by %q, %q", err, runner.names, runner.acceptor.words)
	}
}

// TestSecurityLayers: a server may offer layers, and must not demand one.
func TestSecurityLayers(t *testing.T) {
	k := startKDC(t)
	i := krb5.New(k.getenv())
	for bits, want := range map[string]string{
		"max=0": "", "max=256": "", "min=1,max=1": "requires", "min=56,max=256": "requires",
	} {
		c, err := begin(t.Context(), i, gssapi.Config{},
			auth.User{Name: "user@TEST.LOCAL", Password: password})
		if err != nil {
			t.Fatal(err)
		}
		user, err := k.accept(c, "-b", bits)
		if (want == "") != (err == nil && user == "user@TEST.LOCAL") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("-b %s: %q, %v, want %q", bits, user, err, want)
		}
	}
}

// TestTicketsAreCached: a ticket serves many connections, without the KDC, and another user or a
// refusal ends that.
func TestTicketsAreCached(t *testing.T) {
	k := startKDC(t)
	k.run("", "kadmin.local", "-q", "addprinc -pw other-password other")
	i := krb5.New(k.getenv())
	m := gssapi.New(gssapi.Config{}, i)
	connect := func(name, secret string) (auth.Conversation, error) {
		t.Helper()
		c, err := m.Begin(t.Context(),
			auth.Target{Address: host + ":27017", User: auth.User{Name: name, Password: secret}})
		if err != nil {
			return nil, err
		}
		user, err := k.accept(c)
		if err == nil && user != name {
			t.Errorf("%s is %s for the server", name, user)
		}
		return c, err
	}
	first, err := connect("user@TEST.LOCAL", password)
	if err != nil {
		t.Fatal(err)
	}
	if m.Refused(first, errors.New("refused")) {
		t.Error("a ticket that was fetched for the conversation would be fetched once more")
	}
	for range 2 {
		if first, err = connect("user@TEST.LOCAL", password); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := connect("other@TEST.LOCAL", "other-password"); err != nil {
		t.Error(err)
	}
	if _, err := connect("user@TEST.LOCAL", "not-the-password"); err == nil {
		t.Error("a cached ticket of the same name was taken for another password")
	}
	if m.Refused(first, errors.New("refused")) != true {
		t.Error("a refused cached ticket would not be fetched anew")
	}

	unreachable := false
	m = gssapi.New(gssapi.Config{}, krb5.New(func(name string) string {
		if unreachable && name == "KRB5_CONFIG" {
			return "/none" // and so no KDC
		}
		return k.getenv()(name)
	}))
	for range 2 {
		if _, err := connect("user@TEST.LOCAL", password); err != nil {
			t.Errorf("unreachable %t: %v", unreachable, err)
		}
		unreachable = true
	}
	if _, err := connect("other@TEST.LOCAL", "other-password"); err == nil {
		t.Error("there is still a KDC")
	}
}

// TestExpiredTicketsAreDropped: hosts that come and go leave no tickets behind.
func TestExpiredTicketsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := krb5.New(nil)
		for _, host := range []string{"a", "b", "c", "d"} {
			i.Keep(host, time.Now().Add(time.Hour))
			<-time.After(31 * time.Minute)
		}
		if n := i.Kept(); n != 2 {
			t.Errorf("%d tickets are kept, want those of the last hour", n)
		}
	})
}

// TestServiceKeyChanges: the ticket that was cached is refused by the server from then on, and a
// new one is not.
func TestServiceKeyChanges(t *testing.T) {
	k := startKDC(t)
	m := gssapi.New(gssapi.Config{}, krb5.New(k.getenv()))
	target := auth.Target{
		Address: host + ":27017", User: auth.User{Name: "user@TEST.LOCAL", Password: password},
	}
	attempt := func() (again bool, err error) {
		c, err := m.Begin(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = k.accept(c); err != nil {
			return m.Refused(c, err), err
		}
		return false, nil
	}
	if _, err := attempt(); err != nil {
		t.Fatal(err)
	}
	k.env["KRB5_KTNAME"] = k.path("new.keytab")
	k.run("", "kadmin.local", "-q", "ktadd -k "+k.path("new.keytab")+" mongodb/"+host)
	if again, err := attempt(); err == nil || !again {
		t.Errorf("with the old ticket: again %t, %v", again, err)
	}
	if _, err := attempt(); err != nil {
		t.Errorf("with a new ticket: %v", err)
	}
}

// TestCallerThatGivesUp: a KDC that does not answer holds no caller.
func TestCallerThatGivesUp(t *testing.T) {
	k := startKDC(t)
	reason := errors.New("the pool was closed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if _, err := begin(ctx, krb5.New(k.getenv()), gssapi.Config{},
		auth.User{Name: "user@TEST.LOCAL", Password: password}); !errors.Is(err, reason) {
		t.Errorf("Begin = %v, want %v", err, reason)
	}
}
