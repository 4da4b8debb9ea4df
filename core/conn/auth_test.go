package conn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

var serviceID = bson.ObjectID{1, 2, 3}

// guarded returns a server that demands logins.
func guarded(t *testing.T, a *fakemongo.Auth) *fakemongo.Server {
	s := fakemongo.NewServer(t, fakemongo.Handlers{"hello": func(
		cmd *fakemongo.Command,
	) fakemongo.Reply {
		return fakemongo.Hello(cmd, func(b *bson.Builder) {
			if cmd.Body.Has("loadBalanced") {
				b.ObjectID("serviceId", serviceID)
			}
			b.OpenArray("compression").String("", "snappy").Close()
		})
	}})
	s.RequireAuth(a)
	return s
}

func fixed(name, password string) auth.UserSource {
	return auth.FixedUser(auth.User{Name: name, Password: password})
}

func names(s *fakemongo.Server) string {
	var all []string
	for _, c := range s.Commands() {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

func TestAuthentication(t *testing.T) {
	sha1 := []string{"SCRAM-SHA-1"}
	plain := []fakemongo.User{
		{Name: "app", Password: "pencil", Source: "$external", Mechanisms: []string{"PLAIN"}},
	}
	tests := []struct {
		name   string
		server fakemongo.Auth
		auth   *auth.Authenticator
		want   string // commands after hello
	}{
		{
			"speculation",
			fakemongo.Auth{Users: []fakemongo.User{{Name: "app", Password: "pencil"}}},
			auth.Negotiate("admin", fixed("app", "pencil")), "saslContinue",
		},
		{
			"empty exchange",
			fakemongo.Auth{Users: []fakemongo.User{{Name: "app", Password: "pencil"}}, EmptyExchange: true},
			auth.Negotiate("admin", fixed("app", "pencil")), "saslContinue saslContinue",
		},
		{
			"no speculation",
			fakemongo.Auth{Users: []fakemongo.User{{Name: "app", Password: "pencil"}}, NoSpeculation: true},
			auth.Negotiate("admin", fixed("app", "pencil")), "saslStart saslContinue",
		},
		{
			"only SHA-1",
			fakemongo.Auth{Users: []fakemongo.User{{Name: "app", Password: "pencil", Mechanisms: sha1}}},
			auth.Negotiate("admin", fixed("app", "pencil")), "saslStart saslContinue",
		},
		{
			"SHA-1 configured",
			fakemongo.Auth{Users: []fakemongo.User{{Name: "app", Password: "pencil"}}},
			auth.SASL("admin", fixed("app", "pencil"), auth.SCRAMSHA1()), "saslContinue",
		},
		{
			"SHA-256 configured, prepared",
			fakemongo.Auth{Users: []fakemongo.User{{Name: "\u2168", Password: "\u2163"}}},
			auth.SASL("admin", fixed("\u2168", "I\u00ADV"), auth.SCRAMSHA256()), "saslContinue",
		},
		{"PLAIN", fakemongo.Auth{Users: plain}, auth.SASL("$external", fixed("app", "pencil"), auth.Plain{}), "saslStart"},
	}
	for _, tt := range tests {
		for _, balanced := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := guarded(t, &tt.server)
					c, err := conn.Dial(t.Context(), s.Address(), conn.Config{
						Dialer: s.Dial, Auth: tt.auth, LoadBalanced: balanced,
						Compressors: []string{"snappy"}, ServerAPI: &conn.ServerAPI{Version: "1"},
					})
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = c.Close() }()
					if got := names(s); got != "hello "+tt.want {
						t.Errorf("commands are %s, want hello %s", got, tt.want)
					}
					for _, cmd := range s.Commands() {
						if v, _ := cmd.Body.Lookup("apiVersion"); v.IsZero() {
							t.Errorf("%s does not declare the stable API", cmd.Name)
						}
					}
					if name, why := c.Mechanism(); name == "" || why == "" {
						t.Errorf("Mechanism() = %q, %q", name, why)
					}
					if len(s.LoggedIn()) != 1 {
						t.Errorf("logged in are %v", s.LoggedIn())
					}
				})
			})
		}
	}
}

func TestX509OverTLS(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	client := ca.Issue(t, "client", certtest.Purposes(x509.ExtKeyUsageClientAuth))
	subject := func(state *tls.ConnectionState) string {
		return state.PeerCertificates[0].Subject.String()
	}
	tests := []struct {
		name, user string
		certs      []tls.Certificate
		fails      bool
	}{
		{"certificate", "", []tls.Certificate{client.TLS(nil)}, false},
		{"certificate and user", client.Certificate.Subject.String(), []tls.Certificate{client.TLS(nil)}, false},
		{"another user", "CN=other", []tls.Certificate{client.TLS(nil)}, true},
		{"no certificate", "", nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := guarded(t, &fakemongo.Auth{X509: subject})
			conf := presents(ca.Issue(t, "server"))
			conf.ClientAuth, conf.ClientCAs = tls.RequestClientCert, ca.Pool()
			s.UseTLS(conf)
			c, err := conn.Dial(t.Context(), s.Address(), conn.Config{
				Dialer: s.Dial, Auth: auth.X509(fixed(tt.user, "")),
				TLS: func() *tls.Config {
					return &tls.Config{
						RootCAs: ca.Pool(), ServerName: "server", Certificates: tt.certs,
					}
				},
			})
			if err == nil {
				_ = c.Close()
			}
			want := "isMaster"
			if tt.fails {
				want = "isMaster authenticate"
			}
			if (err != nil) != tt.fails || names(s) != want {
				t.Errorf("Dial() = %v after %s, want an error: %v", err, names(s), tt.fails)
			}
		})
	}
}

// Errors say in which phase they occurred, and behind a load balancer which service they concern.
func TestAuthenticationFails(t *testing.T) {
	users := []fakemongo.User{{Name: "app", Password: "pencil"}}
	tests := []struct {
		name    string
		auth    *auth.Authenticator
		handler fakemongo.Handlers
		kind    auth.Kind
		want    string
	}{
		{"wrong password", auth.Negotiate("admin", fixed("app", "s3cret")), nil, auth.KindRejected, "Authentication failed. (AuthenticationFailed, code 18)"},
		{"unknown user", auth.Negotiate("admin", fixed("nobody", "s3cret")), nil, auth.KindRejected, "Authentication failed. (AuthenticationFailed, code 18)"},
		{"wrong source", auth.Negotiate("shop", fixed("app", "pencil")), nil, auth.KindRejected, "authSource shop"},
		{"not a user of PLAIN", auth.SASL("admin", fixed("app", "s3cret"), auth.Plain{}), nil, auth.KindRejected, "PLAIN"},
		{
			"connection breaks", auth.Negotiate("admin", fixed("app", "pencil")),
			fakemongo.Handlers{"saslContinue": fakemongo.Always(fakemongo.Drop())},
			auth.KindConnection, "(authentication): unexpected EOF",
		},
		{
			"no reply", auth.Negotiate("admin", fixed("app", "pencil")),
			fakemongo.Handlers{"saslContinue": fakemongo.Always(fakemongo.Hang())},
			auth.KindConnection, "(authentication): not connected within 5s",
		},
		{
			"password is missing", auth.Negotiate("admin", func() (auth.User, error) { return auth.User{}, errors.New("no file") }),
			nil, auth.KindCredential, "no file",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := guarded(t, &fakemongo.Auth{Users: users})
				s.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
					if h, ok := tt.handler[cmd.Name]; ok {
						return h(cmd)
					}
					return next(cmd)
				})
				_, err := conn.Dial(t.Context(), s.Address(), conn.Config{
					Dialer: s.Dial, Auth: tt.auth, LoadBalanced: true,
					ConnectTimeout: 5 * time.Second,
				})
				failed, ok := errors.AsType[*auth.Error](err)
				if !ok || failed.Kind != tt.kind || !strings.Contains(err.Error(), tt.want) ||
					strings.Contains(err.Error(), "s3cret") {
					t.Fatalf("Dial() = %v, want kind %v with %q", err, tt.kind, tt.want)
				}
				if tt.kind != auth.KindCredential && failed.Service != serviceID {
					t.Errorf("the error names service %v", failed.Service)
				}
				if labels := mongoerr.Labels(err); len(labels) != 0 {
					t.Errorf("the error has labels %v", labels)
				}
				if network, ok := errors.AsType[*mongoerr.NetworkError](err); ok && network.Sent {
					t.Error("the error says that the application's request was sent")
				}
				synctest.Wait()
				if n := s.OpenConnections(); n != 0 {
					t.Errorf("%d connections are open", n)
				}
			})
		})
	}
}

func TestArbitersAreNotAskedToAuthenticate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, fakemongo.Handlers{"hello": fakemongo.Always(fakemongo.OK(func(
			b *bson.Builder,
		) {
			b.Bool("helloOk", true).Bool("arbiterOnly", true).String("setName", "rs").
				Int32("maxWireVersion", 21)
		}))})
		c, err := conn.Dial(t.Context(), s.Address(),
			conn.Config{Dialer: s.Dial, Auth: auth.Negotiate("admin", fixed("app", "pencil"))})
		if err != nil || names(s) != "isMaster" {
			t.Fatalf("Dial() = %v after %s", err, names(s))
		}
		defer func() { _ = c.Close() }()
		cause := &mongoerr.CommandError{Code: 391} // which no arbiter sends
		if err := c.Reauthenticate(t.Context(), cause); !errors.Is(err, cause) ||
			names(s) != "isMaster" {
			t.Errorf("Reauthenticate() = %v after %s, want the cause", err, names(s))
		}
	})
}

func TestReauthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := &fakemongo.Auth{Users: []fakemongo.User{{Name: "app", Password: "pencil"}}}
		s := guarded(t, users)
		c, err := conn.Dial(t.Context(), s.Address(),
			conn.Config{Dialer: s.Dial, Auth: auth.Negotiate("admin", fixed("app", "pencil"))})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		cause := &mongoerr.CommandError{Code: 391}
		if err := c.Reauthenticate(t.Context(), cause); err != nil || !c.Alive() {
			t.Fatalf("Reauthenticate() = %v", err)
		}
		if got, want := names(s), "isMaster saslContinue saslStart saslContinue"; got != want {
			t.Errorf("commands are %s, want %s", got, want)
		}
		s.RequireAuth(&fakemongo.Auth{})
		if err := c.Reauthenticate(t.Context(), cause); mongoerr.Code(err) != 18 || c.Alive() {
			t.Errorf("Reauthenticate() of a user that was removed = %v; alive: %v", err, c.Alive())
		}
	})
}

func TestReauthenticationWithoutCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		c, err := conn.Dial(context.Background(), s.Address(), conn.Config{Dialer: s.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		cause := &mongoerr.CommandError{Code: 391}
		if err := c.Reauthenticate(t.Context(), cause); !errors.Is(err, cause) || !c.Alive() {
			t.Errorf("Reauthenticate() = %v, want the cause", err)
		}
	})
}
