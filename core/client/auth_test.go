package client_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// authenticating starts a client of s with the options of a connection string, such as
// "app:pencil@" and "authSource=x".
func authenticating(
	t *testing.T, s *fakemongo.Server, userinfo, options string, opt client.Options,
) *client.Client {
	t.Helper()
	opt.Dialer = s.Dial
	return startURI(t, "mongodb://"+userinfo+string(s.Address())+"/?"+options, opt)
}

func pencil() *fakemongo.Auth {
	return &fakemongo.Auth{Users: []fakemongo.User{
		{Name: "app", Password: "pencil"},
		{Name: "old", Password: "pencil", Mechanisms: []string{"SCRAM-SHA-1"}},
		{Name: "shop", Password: "pencil", Source: "shop"},
		{Name: "ldap", Password: "pencil", Source: "$external", Mechanisms: []string{"PLAIN"}},
	}}
}

func TestClientAuthenticates(t *testing.T) {
	tests := []struct{ userinfo, options, want string }{
		{"app:pencil@", "", "admin.app"},
		{"old:pencil@", "", "admin.old"},
		{"app:pencil@", "authMechanism=SCRAM-SHA-1", "admin.app"},
		{"app:pencil@", "authMechanism=SCRAM-SHA-256", "admin.app"},
		{"shop:pencil@", "authSource=shop", "shop.shop"},
		{"ldap:pencil@", "authMechanism=PLAIN", "$external.ldap"},
	}
	for _, tt := range tests {
		for _, mode := range []string{"directConnection=true", "loadBalanced=true"} {
			t.Run(tt.want+tt.options+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := fakemongo.NewServer(t, fakemongo.Handlers{"hello": balancedHello})
					s.RequireAuth(pencil())
					c := authenticating(t, s, tt.userinfo, mode+"&"+tt.options, client.Options{})
					if _, err := c.InsertOne(t.Context(),
						client.Namespace{Database: "shop", Collection: "orders"},
						bson.NewBuilder(nil).Finish(), client.InsertOneOptions{}); err != nil {
						t.Fatal(err)
					}
					if got := s.LoggedIn(); !slices.Equal(got, []string{tt.want}) {
						t.Errorf("logged in are %v, want %s", got, tt.want)
					}
				})
			})
		}
	}
}

// balancedHello is a hello that gives the service which a connection leads to.
func balancedHello(cmd *fakemongo.Command) fakemongo.Reply {
	return fakemongo.Hello(cmd, func(b *bson.Builder) {
		if cmd.Body.Has("loadBalanced") {
			b.ObjectID("serviceId", bson.ObjectID{byte(cmd.Connection%2) + 1})
		}
	})
}

// Monitors must not authenticate (Server Monitoring), and begin nothing of the kind.
func TestMonitorsDoNotAuthenticate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		s.RequireAuth(pencil())
		c := authenticating(t, s, "app:pencil@", "directConnection=true&heartbeatFrequencyMS=1000",
			client.Options{})
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // fake time: the monitor checks meanwhile
		pool := map[int]bool{}
		for _, cmd := range s.Commands("ping") {
			pool[cmd.Connection] = true
		}
		hellos := 0
		for _, cmd := range s.Commands() {
			if pool[cmd.Connection] {
				continue
			}
			hellos++
			if cmd.Body.Has("speculativeAuthenticate") || cmd.Body.Has("saslSupportedMechs") ||
				strings.HasPrefix(cmd.Name, "sasl") {
				t.Errorf("a monitor sends %s with %v", cmd.Name, cmd.Body)
			}
		}
		if hellos < 5 || len(pool) != 1 {
			t.Errorf("%d checks, %d connections of the pool", hellos, len(pool))
		}
	})
}

// An authentication that fails makes the server unknown and clears its pool, and the operation
// fails with the reason.
func TestFailedAuthenticationMakesServerUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cleared, unknown, closed atomic.Int64
		s := fakemongo.NewServer(t, nil)
		s.RequireAuth(pencil())
		c := authenticating(t, s, "app:wrong@", "directConnection=true",
			client.Options{Sink: &event.Sink{
				PoolCleared: func(event.PoolCleared) { cleared.Add(1) },
				ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
					if e.New.LastError != nil && isA[*auth.Error](e.New.LastError) {
						unknown.Add(1)
					}
				},
				ConnectionClosed: func(event.ConnectionClosed) { closed.Add(1) },
			}})
		err := c.Ping(t.Context())
		failed, ok := errors.AsType[*auth.Error](err)
		if !ok || failed.Kind != auth.KindRejected || len(mongoerr.Labels(err)) != 0 {
			t.Errorf("Ping() = %v, labels %v", err, mongoerr.Labels(err))
		}
		if strings.Contains(err.Error(), "wrong") {
			t.Errorf("Ping() = %v shows the password", err)
		}
		synctest.Wait()
		if cleared.Load() != 1 || unknown.Load() != 1 || closed.Load() != 1 {
			t.Errorf("%d times cleared, %d times unknown, %d connections closed; want 1 each",
				cleared.Load(), unknown.Load(), closed.Load())
		}
	})
}

// Behind a load balancer only the connections to the service that refused are cleared.
func TestFailedAuthenticationBehindLoadBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cleared []bson.ObjectID
		s := fakemongo.NewServer(t, fakemongo.Handlers{"hello": balancedHello})
		s.RequireAuth(pencil())
		user := atomic.Pointer[auth.User]{}
		user.Store(&auth.User{Name: "app", Password: "pencil"})
		c := authenticating(t, s, "app:pencil@", "loadBalanced=true", client.Options{
			Sink: &event.Sink{PoolCleared: func(e event.PoolCleared) {
				cleared = append(cleared, e.ServiceID)
			}},
			User: func() (auth.User, error) { return *user.Load(), nil },
		})
		// Two connections at once lead to both services.
		hold := make(chan struct{})
		s.Handle("ping", func(*fakemongo.Command) fakemongo.Reply {
			<-hold
			return fakemongo.OK(nil)
		})
		done := make(chan error)
		go func() { done <- c.Ping(t.Context()) }()
		synctest.Wait()
		user.Store(&auth.User{Name: "app", Password: "wrong"})
		if err := c.Ping(t.Context()); !isA[*auth.Error](err) {
			t.Errorf("Ping() = %v, want an *auth.Error", err)
		}
		close(hold)
		if err := <-done; err != nil {
			t.Errorf("Ping() on the other connection = %v", err)
		}
		s.Handle("ping", nil)
		if err := c.Ping(t.Context()); err != nil { // that connection is still good
			t.Errorf("Ping() on the connection of before = %v", err)
		}
		want := []bson.ObjectID{{1}}
		if !slices.Equal(cleared, want) || s.AcceptedConnections() != 2 {
			t.Errorf("services %v were cleared, want %v; %d connections", cleared, want,
				s.AcceptedConnections())
		}
	})
}

// A password that changes is used by new connections; old ones go on.
func TestUserChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var user atomic.Pointer[auth.User]
		user.Store(&auth.User{Name: "app", Password: "wrong"})
		s := fakemongo.NewServer(t, nil)
		s.RequireAuth(pencil())
		c := authenticating(t, s, "app@", "directConnection=true",
			client.Options{User: func() (auth.User, error) {
				return *user.Load(), nil
			}})
		if err := c.Ping(t.Context()); !isA[*auth.Error](err) {
			t.Fatalf("Ping() = %v, want an *auth.Error", err)
		}
		user.Store(&auth.User{Name: "app", Password: "pencil"})
		if err := c.Ping(t.Context()); err != nil {
			t.Fatalf("Ping() with the right password = %v", err)
		}
		user.Store(&auth.User{Name: "app", Password: "wrong"})
		if err := c.Ping(t.Context()); err != nil {
			t.Errorf("Ping() on a connection of before = %v", err)
		}
	})
}

// While a password changes, each new connection logs in: the password is first new here, then in
// MongoDB. Logins of servers that have different passwords succeed at the same time.
func TestPasswordRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var user atomic.Pointer[auth.User]
		s := fakemongo.NewServer(t, nil)
		demand := func(password string) {
			s.RequireAuth(&fakemongo.Auth{
				Users: []fakemongo.User{{Name: "app", Password: password}},
			})
		}
		demand("first")
		user.Store(&auth.User{Name: "app", Password: "first"})
		c := authenticating(t, s, "app@", "directConnection=true", client.Options{
			User: func() (auth.User, error) { return *user.Load(), nil },
		})
		for _, step := range []func(){
			func() {},
			func() { user.Store(&auth.User{Name: "app", Password: "second", Former: [2]string{"first"}}) },
			func() { demand("second") },
			func() { user.Store(&auth.User{Name: "app", Password: "second"}) },
		} {
			step()
			s.CutConnections()
			known := len(s.LoggedIn())
			if err := findsOne(t, c); err != nil {
				t.Errorf("find: %v", err)
			}
			if now := s.LoggedIn()[known:]; !slices.Equal(now, []string{"admin.app"}) {
				t.Errorf("logged in are %q", now)
			}
		}
	})
}

func TestWarningOfSecretsWithoutTLS(t *testing.T) {
	for uri, want := range map[string]bool{
		"u:p@a/?authMechanism=PLAIN": true, "u:p@a/?authMechanism=PLAIN&tls=true": false, "u:p@a/": false, "a/": false,
		"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s":          true,
		"a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s&tls=true": false,
	} {
		cfg, err := connstring.Parse("mongodb://" + uri)
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(cfg, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		warned := slices.ContainsFunc(c.Warnings(), func(w connstring.Warning) bool {
			return w.Option == "authMechanism"
		})
		if warned != want {
			t.Errorf("%s: warnings %v, want one: %v", uri, c.Warnings(), want)
		}
	}
}

// A connection whose authentication is over authenticates again, without hello, and the operation
// goes on.
func TestReauthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		s.RequireAuth(pencil())
		expire := func(name string) {
			next := fakemongo.Handler(s.Default)
			s.Handle(name,
				fakemongo.Times(1,
					fakemongo.Always(fakemongo.Error(391, "ReauthenticationRequired", "expired")),
					next))
		}
		c := authenticating(t, s, "app:pencil@", "directConnection=true", client.Options{})
		orders := client.Namespace{Database: "shop", Collection: "orders"}
		expire("insert")
		var docs []bson.Raw
		for i := range int32(5) {
			docs = append(docs, bson.NewBuilder(nil).Int32("_id", i).Finish())
		}
		if _, err := c.InsertMany(t.Context(), orders, docs,
			client.InsertManyOptions{}); err != nil {
			t.Fatal(err)
		}
		expire("find")
		expire("getMore")
		cur, err := c.Find(t.Context(), orders, client.FindOptions{BatchSize: new(int32(2))})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for batch, err := range cur.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			n += len(batch.Documents)
		}
		var got []string
		for _, cmd := range s.Commands() {
			if cmd.Name != "hello" && cmd.Name != "isMaster" {
				got = append(got, cmd.Name)
			}
		}
		want := "saslContinue insert saslStart saslContinue insert find saslStart saslContinue " +
			"find getMore saslStart saslContinue getMore getMore"
		if n != 5 || strings.Join(got, " ") != want || len(s.LoggedIn()) != 4 {
			t.Errorf("%d documents by %v, want 5 by %s; logins %v", n, got, want, s.LoggedIn())
		}
		expire("ping")
		s.RequireAuth(&fakemongo.Auth{})
		if err := c.Ping(t.Context()); !isA[*auth.Error](err) {
			t.Errorf("Ping() of a user that was removed = %v", err)
		}
	})
}

// A check that makes no client hears the same of a credential that cannot work as a client does.
func TestTopologyConfigChecksTheCredential(t *testing.T) {
	for uri, want := range map[string]string{
		"mongodb://app@a":                                         "authentication needs a password",
		"mongodb://a/?authMechanism=MONGODB-OIDC":                 "MONGODB-OIDC needs the property ENVIRONMENT",
		"mongodb+srv://a.example.com/?authMechanism=MONGODB-OIDC": "MONGODB-OIDC needs the property ENVIRONMENT",
	} {
		cfg, err := connstring.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.TopologyConfig(&cfg, client.Options{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("TopologyConfig() of %s = %v, want %q", uri, err, want)
		}
		if _, err := client.New(cfg, client.Options{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("New() of %s = %v, want %q", uri, err, want)
		}
	}
}
