package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/core/auth/gssapi"
	"github.com/mooringdb/mooring/core/auth/oidc"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/memhttp"
)

// findOrders runs one find without retries.
func findOrders(t *testing.T, c *client.Client) error {
	t.Helper()
	cursor, err := c.Find(t.Context(), orders, client.FindOptions{})
	if err != nil {
		return err
	}
	return cursor.Close(t.Context())
}

// withOIDC returns a deployment that knows the tokens, all of the user test_user1.
func withOIDC(t *testing.T, tokens ...string) (*fakemongo.Server, *fakemongo.OIDC) {
	s := fakemongo.NewServer(t, nil)
	o := new(fakemongo.OIDC)
	for _, token := range tokens {
		o.Accept(token, "test_user1")
	}
	s.RequireAuth(&fakemongo.Auth{
		SASL: map[string]func(*fakemongo.Command) fakemongo.SASL{"MONGODB-OIDC": o.SASL},
	})
	return s, o
}

// tokens is a provider that returns its tokens in turn, the last one for ever, and counts.
type tokens struct {
	all   []string
	calls atomic.Int32
	asked oidc.Request
}

func (p *tokens) Token(ctx context.Context, r oidc.Request) (oidc.Token, error) {
	if _, ok := ctx.Deadline(); !ok {
		return oidc.Token{}, errors.New("the provider has no deadline")
	}
	p.asked = r
	n := int(p.calls.Add(1)) - 1
	return oidc.Token{AccessToken: p.all[min(n, len(p.all)-1)]}, nil
}

const oidcOptions = "directConnection=true&retryReads=false&retryWrites=false&authMechanism=MONGODB-OIDC"

// TestOIDCMachineFlow are the prose tests of the specification's machine flow on a client. Those
// that need a poisoned cache are in core/auth/oidc.
func TestOIDCMachineFlow(t *testing.T) {
	failOnce := func(s *fakemongo.Server, command string, code int32) {
		var failed atomic.Bool
		s.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
			if cmd.Name == command && failed.CompareAndSwap(false, true) {
				return fakemongo.Error(code, "", "fail point")
			}
			return next(cmd)
		})
	}
	for name, test := range map[string]func(t *testing.T){
		"1.1 callback is called during authentication": func(t *testing.T) {
			s, _ := withOIDC(t, "good")
			p := &tokens{all: []string{"good"}}
			c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
			if err := findOrders(t, c); err != nil || p.calls.Load() != 1 {
				t.Errorf("find: %v, %d calls", err, p.calls.Load())
			}
		},
		"1.2 callback is called once for multiple connections": func(t *testing.T) {
			s, _ := withOIDC(t, "good")
			p := &tokens{all: []string{"good"}}
			c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					for range 100 {
						if err := findOrders(t, c); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if p.calls.Load() != 1 {
				t.Errorf("%d calls", p.calls.Load())
			}
		},
		"2.1 valid callback inputs": func(t *testing.T) {
			s, _ := withOIDC(t, "good")
			p := &tokens{all: []string{"good"}}
			c := authenticating(t, s, "test_user1@", oidcOptions, client.Options{OIDC: p})
			if err := findOrders(t, c); err != nil ||
				p.asked != (oidc.Request{Username: "test_user1", Version: 1}) {
				t.Errorf("find: %v, asked with %+v", err, p.asked)
			}
			if got := s.LoggedIn(); !slices.Equal(got, []string{"$external.test_user1"}) {
				t.Errorf("logged in are %q", got)
			}
		},
		"2.2 and 2.3 callback returns missing data": func(t *testing.T) {
			s, _ := withOIDC(t, "good")
			c := authenticating(t, s, "", oidcOptions,
				client.Options{OIDC: &tokens{all: []string{""}}})
			err := findOrders(t, c)
			if e, ok := errors.AsType[*auth.Error](err); !ok || e.Kind != auth.KindCredential {
				t.Errorf("find = %v", err)
			}
		},
		"2.4 callback and ENVIRONMENT": func(t *testing.T) {
			refuse(t, "authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:test",
				client.Options{OIDC: &tokens{}}, "takes neither ENVIRONMENT")
		},
		"2.5 ENVIRONMENT and ALLOWED_HOSTS": func(t *testing.T) {
			refuse(t,
				"authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s,ALLOWED_HOSTS:x",
				client.Options{}, "ALLOWED_HOSTS")
		},
		"3.1 authentication failure with a cached token": func(t *testing.T) {
			s, o := withOIDC(t, "good")
			o.Accept("stale", "test_user1")
			p := &tokens{all: []string{"stale", "good"}}
			c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
			if err := findOrders(t, c); err != nil {
				t.Fatal(err)
			}
			o.Revoke("stale")
			s.CutConnections()
			_ = findOrders(t, c) // may meet the connection that was cut
			if err := findOrders(t, c); err != nil || p.calls.Load() != 2 {
				t.Errorf("find: %v, %d calls", err, p.calls.Load())
			}
		},
		"3.2 authentication failure without a cached token": func(t *testing.T) {
			s, _ := withOIDC(t, "good")
			p := &tokens{all: []string{"invalid"}}
			c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
			if err := findOrders(t, c); mongoerr.Code(err) != 18 || p.calls.Load() != 1 {
				t.Errorf("find: %v, %d calls", err, p.calls.Load())
			}
		},
		"3.3 an unexpected error does not clear the cache": func(t *testing.T) {
			s, _ := withOIDC(t, "good")
			failOnce(s, "saslStart", 20)
			p := &tokens{all: []string{"good"}}
			c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
			if err := findOrders(t, c); mongoerr.Code(err) != 20 || p.calls.Load() != 1 {
				t.Errorf("find: %v, %d calls", err, p.calls.Load())
			}
			if err := findOrders(t, c); err != nil || p.calls.Load() != 1 {
				t.Errorf("find: %v, %d calls", err, p.calls.Load())
			}
		},
		"4.1 reauthentication": func(t *testing.T) {
			s, _ := withOIDC(t, "first", "second")
			failOnce(s, "find", 391)
			p := &tokens{all: []string{"first", "second"}}
			c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
			if err := findOrders(t, c); err != nil || p.calls.Load() != 2 {
				t.Errorf("find: %v, %d calls", err, p.calls.Load())
			}
		},
		"4.2 read fails if reauthentication fails": func(t *testing.T) {
			s, _ := withOIDC(t, "first")
			failOnce(s, "find", 391)
			p := &tokens{all: []string{"first", "invalid"}}
			c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
			if err := findOrders(t, c); mongoerr.Code(err) != 18 || p.calls.Load() != 2 {
				t.Errorf("find: %v, %d calls", err, p.calls.Load())
			}
		},
		"4.3 write fails if reauthentication fails": func(t *testing.T) {
			s, _ := withOIDC(t, "first")
			failOnce(s, "insert", 391)
			p := &tokens{all: []string{"first", "invalid"}}
			c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
			_, err := c.InsertOne(t.Context(), orders, bson.NewBuilder(nil).Finish(),
				client.InsertOneOptions{})
			if mongoerr.Code(err) != 18 || p.calls.Load() != 2 {
				t.Errorf("insert: %v, %d calls", err, p.calls.Load())
			}
		},
		"4.4 reauthentication does not speculate": func(t *testing.T) {
			s, o := withOIDC(t, "first", "second")
			failOnce(s, "find", 391)
			c := authenticating(t, s, "", oidcOptions,
				client.Options{OIDC: &tokens{all: []string{"first", "second"}}})
			if err := findOrders(t, c); err != nil {
				t.Fatal(err)
			}
			starts := 0
			for _, cmd := range s.Commands() {
				if cmd.Name == "saslStart" {
					starts++
				}
			}
			if seen := o.Seen(); starts != 2 || !slices.Equal(seen, []string{"first", "second"}) {
				t.Errorf("%d saslStarts, tokens %q", starts, seen)
			}
		},
		"4.5 reauthentication in a session": func(t *testing.T) {
			s, _ := withOIDC(t, "first", "second")
			failOnce(s, "find", 391)
			p := &tokens{all: []string{"first", "second"}}
			c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
			in, err := c.StartSession(session.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer in.End(t.Context())
			_, _, err = c.FindOne(t.Context(), orders,
				client.FindOptions{Common: client.Common{Session: in}})
			if err != nil || p.calls.Load() != 2 {
				t.Errorf("find: %v, %d calls", err, p.calls.Load())
			}
			finds, want := s.Commands("find"), in.ID()
			for _, find := range finds {
				if id, ok := find.Body.Lookup("lsid", "id"); len(finds) != 2 || !ok ||
					!bytes.HasSuffix(id.Data, want[:]) {
					t.Errorf("%d finds, one with lsid %x, want %x", len(finds), id.Data, want)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// refuse checks that there is no client with these options.
func refuse(t *testing.T, options string, opt client.Options, want string) {
	t.Helper()
	cfg, err := connstring.Parse("mongodb://db/?" + options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.New(cfg, opt); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("New(%s) = %v, want %q", options, err, want)
	}
}

// The provider of a token has a minute of its own, whatever connectTimeoutMS is: after that only
// the check-outs fail that waited for it. The server has what is left of connectTimeoutMS.
func TestProviderHasItsOwnTime(t *testing.T) {
	for name, tt := range map[string]struct {
		takes, hangs time.Duration // of the provider, and of the server's answer to the token
		want         string
	}{
		"slow":               {59 * time.Second, 0, ""},
		"too slow":           {2 * time.Minute, 0, "the provider did not answer in time"},
		"the server hangs":   {9 * time.Second, 11 * time.Second, "not connected within 10s"},
		"the server is slow": {59 * time.Second, 9 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := withOIDC(t, "good")
				s.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
					if cmd.Name == "saslStart" {
						return next(cmd).After(tt.hangs)
					}
					return next(cmd)
				})
				p := oidc.ProviderFunc(func(
					ctx context.Context, _ oidc.Request,
				) (oidc.Token, error) {
					if end, ok := ctx.Deadline(); !ok || time.Until(end) != time.Minute {
						t.Errorf("the provider has %v, want a minute", time.Until(end))
					}
					select {
					case <-time.After(tt.takes):
						return oidc.Token{AccessToken: "good"}, nil
					case <-ctx.Done():
						return oidc.Token{}, ctx.Err()
					}
				})
				c := authenticating(t, s, "", oidcOptions, client.Options{OIDC: p})
				err := findOrders(t, c)
				if tt.want == "" && err != nil ||
					tt.want != "" && !strings.Contains(fmt.Sprint(err), tt.want) {
					t.Errorf("find = %v, want %q", err, tt.want)
				}
			})
		})
	}
}

// TestAWS: a client of the gateway's machine authenticates with what the container's endpoint
// gives, and again when that was revoked. Nothing secret is in the error.
func TestAWS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, known := fakemongo.NewServer(t, nil), new(fakemongo.AWS)
		s.RequireAuth(&fakemongo.Auth{
			SASL: map[string]func(*fakemongo.Command) fakemongo.SASL{"MONGODB-AWS": known.SASL},
		})
		issued := 0
		endpoint := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			issued++
			fmt.Fprintf(w,
				`{"AccessKeyId": "ASIA%d", "SecretAccessKey": "secret-%[1]d", "Token": "token-%[1]d", "Expiration": "2000-01-01T09:00:00Z"}`, issued)
		})
		known.Add("ASIA2", fakemongo.AWSKey{Secret: "secret-2", Token: "token-2"})
		c := authenticating(t, s, "", "directConnection=true&authMechanism=MONGODB-AWS",
			client.Options{AWS: aws.Config{
				Getenv: func(name string) string {
					return map[string]string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x"}[name]
				},
				Transport: memhttp.New(t, endpoint, ""),
			}})
		err := findOrders(t, c)
		if mongoerr.Code(err) != 18 || strings.Contains(err.Error(), "secret-1") ||
			strings.Contains(err.Error(), "token-1") {
			t.Errorf("find with credentials that the deployment does not know: %v", err)
		}
		if err := findOrders(t, c); err != nil {
			t.Error(err)
		}
		if got := s.LoggedIn(); !slices.Equal(got, []string{"$external.ASIA2"}) || issued != 2 {
			t.Errorf("logged in are %q after %d issues", got, issued)
		}
	})
}

// ticketless is a Kerberos library that remembers what it was asked for.
type ticketless struct{ service gssapi.Service }

var errNoTicket = errors.New("no ticket")

func (l *ticketless) Initiate(
	_ context.Context, s gssapi.Service, _ auth.User,
) (gssapi.SecurityContext, error) {
	l.service = s
	return nil, errNoTicket
}

func (l *ticketless) Refused(gssapi.SecurityContext) bool { return false }

// TestGSSAPI: the properties of the connection string reach the library, and its error reaches the
// caller. What a library does is tested in core/auth/gssapi/krb5, on a real KDC.
func TestGSSAPI(t *testing.T) {
	for properties, want := range map[string]gssapi.Service{
		"": {Name: "mongodb", Host: "fakemongo"},
		"&authMechanismProperties=SERVICE_NAME:alt,SERVICE_REALM:R,SERVICE_HOST:h,CANONICALIZE_HOST_NAME:none": {Name: "alt", Host: "h", Realm: "R"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, library := fakemongo.NewServer(t, nil), new(ticketless)
			if want.Host == "fakemongo" {
				want.Host = s.Address().Host()
			}
			c := authenticating(t, s, "user%40REALM@",
				"directConnection=true&authMechanism=GSSAPI"+properties,
				client.Options{Kerberos: library})
			if err := findOrders(t, c); !errors.Is(err, errNoTicket) || library.service != want {
				t.Errorf("%s: %v for %+v, want %+v", properties, err, library.service, want)
			}
		})
	}
}

// TestEveryMechanismHasAClient: no mechanism that a connection string may name is without an
// authenticator.
func TestEveryMechanismHasAClient(t *testing.T) {
	for _, userinfo := range []string{
		"u:p@db/?authMechanism=SCRAM-SHA-1", "u:p@db/?authMechanism=SCRAM-SHA-256", "u:p@db/?authMechanism=PLAIN",
		"u@db/?authMechanism=GSSAPI", "db/?authMechanism=MONGODB-AWS",
		"db/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s",
	} {
		cfg, err := connstring.Parse("mongodb://" + userinfo)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.New(cfg, client.Options{}); err != nil {
			t.Errorf("New(%s) = %v", userinfo, err)
		}
	}
	if _, err := client.New(connstring.Config{HasCredential: true, AuthMechanism: "X"},
		client.Options{}); err == nil {
		t.Error("there is a mechanism X")
	}
}
