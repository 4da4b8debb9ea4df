package client_test

import (
	"crypto/tls"
	"errors"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// A credential that cannot be had, or that the server refuses, fails the check-out that needs it.
// Connections that have logged in go on, and logins are tried again after half a second.
func TestLoginFailsOneCheckOut(t *testing.T) {
	errAway := errors.New("the secret store is away")
	cert, file := certificate(t)
	x509 := "&authMechanism=MONGODB-X509&tls=true&tlsInsecure=true&tlsCertificateKeyFile=" +
		url.QueryEscape(file)
	standsFor := func(user string) *fakemongo.Auth {
		return &fakemongo.Auth{X509: func(*tls.ConnectionState) string { return user }}
	}
	tests := map[string]struct {
		options string
		auth    *fakemongo.Auth // at first
		fail    func(s *fakemongo.Server, away *atomic.Bool)
		kind    auth.Kind
	}{
		"not to be had": {
			"", pencil(),
			func(_ *fakemongo.Server, away *atomic.Bool) { away.Store(true) },
			auth.KindCredential,
		},
		"refused": {
			"", pencil(),
			func(s *fakemongo.Server, _ *atomic.Bool) {
				s.RequireAuth(&fakemongo.Auth{
					Users: []fakemongo.User{{Name: "app", Password: "new"}},
				})
			},
			auth.KindRejected,
		},
		"certificate of no user": {
			x509, standsFor("app"),
			func(s *fakemongo.Server, _ *atomic.Bool) { s.RequireAuth(standsFor("")) },
			auth.KindRejected,
		},
	}
	for name, tt := range tests {
		for _, mode := range []string{"directConnection=true", "loadBalanced=true"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := fakemongo.NewServer(t, fakemongo.Handlers{"hello": oneService})
					s.RequireAuth(tt.auth)
					if tt.options != "" {
						s.UseTLS(&tls.Config{
							Certificates: []tls.Certificate{cert},
							ClientAuth:   tls.RequireAnyClientCert,
						})
					}
					var away atomic.Bool
					var cleared, unknown, created atomic.Int32
					c := authenticating(t, s, "app@", mode+tt.options, client.Options{
						Sink: &event.Sink{
							PoolCleared: func(event.PoolCleared) { cleared.Add(1) },
							ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
								if e.New.Kind == description.ServerUnknown &&
									e.New.LastError != nil {
									unknown.Add(1)
								}
							},
							ConnectionCreated: func(event.ConnectionCreated) { created.Add(1) },
						},
						User: func() (auth.User, error) {
							if away.Load() {
								return auth.User{}, errAway
							}
							return auth.User{Name: "app", Password: "pencil"}, nil
						},
					})
					if err := findsOne(t, c); err != nil {
						t.Fatal(err)
					}
					tt.fail(s, &away)
					s.Handle("find", func(cmd *fakemongo.Command) fakemongo.Reply {
						return s.Default(cmd).After(50 * time.Millisecond)
					})
					busy := make(chan error)
					go func() { busy <- findsOne(t, c) }()
					time.Sleep(time.Millisecond) //nolint:forbidigo // fake time
					if e, ok := errors.AsType[*auth.Error](findsOne(t, c)); !ok ||
						e.Kind != tt.kind {
						t.Errorf("the operation that needs a connection: %v", e)
					}
					if err := <-busy; err != nil {
						t.Errorf("the operation on the connection that there is: %v", err)
					}
					begun := created.Load()
					for range 3 { // 150 ms, in pairs: one waits for the other's connection
						go func() { busy <- findsOne(t, c) }()
						if err := errors.Join(findsOne(t, c), <-busy); err != nil {
							t.Errorf("after that: %v", err)
						}
					}
					if cleared.Load()+unknown.Load() > 0 || created.Load() > begun {
						t.Errorf("%d times cleared, %d times unknown, %d connections begun; "+
							"want none",
							cleared.Load(), unknown.Load(), created.Load()-begun)
					}
				})
			})
		}
	}
}

// oneService is a hello whose connections all lead to one service.
func oneService(cmd *fakemongo.Command) fakemongo.Reply {
	return fakemongo.Hello(cmd, func(b *bson.Builder) {
		if cmd.Body.Has("loadBalanced") {
			b.ObjectID("serviceId", bson.ObjectID{1})
		}
	})
}

// Without a connection that has logged in, a credential that cannot be had fails all check-outs at
// once, and the server stays known.
func TestNoCredentialAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		s.RequireAuth(pencil())
		var asked, cleared atomic.Int32
		var away atomic.Bool
		away.Store(true)
		c := authenticating(t, s, "app@", "directConnection=true", client.Options{
			Sink: &event.Sink{PoolCleared: func(event.PoolCleared) { cleared.Add(1) }},
			User: func() (auth.User, error) {
				if asked.Add(1); !away.Load() {
					return auth.User{Name: "app", Password: "pencil"}, nil
				}
				return auth.User{}, errors.New("the secret store is away")
			},
		})
		began, failed := time.Now(), make(chan error)
		for range 20 {
			go func() { failed <- findsOne(t, c) }()
		}
		for range 20 {
			if err := <-failed; !isA[*auth.Error](err) {
				t.Errorf("find: %v, want an *auth.Error", err)
			}
		}
		if took := time.Since(began); took > 0 || asked.Load() > 2 || cleared.Load() > 0 {
			t.Errorf("after %v, the credential was asked for %d times, the pool cleared %d times",
				took, asked.Load(), cleared.Load())
		}
		away.Store(false)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		if err := findsOne(t, c); err != nil {
			t.Errorf("find with a credential: %v", err)
		}
	})
}
