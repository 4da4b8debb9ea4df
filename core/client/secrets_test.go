package client_test

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // the password of SCRAM-SHA-1
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/core/auth/oidc"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventlog"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The secrets of TestNothingShowsASecret. Nothing else in it contains them.
const (
	secretPassword = "Pa55-w0rd-of-the-user"
	secretKey      = "aws/secret+access=key/1234567890"
	secretSession  = "aws-session-token-0987654321"
	secretToken    = "oidc-access-token-eyJhbGciOi"
)

// spellings returns the secrets in all forms in which they could be shown.
func spellings() (all []string) {
	digest := md5.Sum([]byte("app:mongo:" + secretPassword)) //nolint:gosec // as above
	for _, s := range []string{
		secretPassword, secretKey, secretSession, secretToken, hex.EncodeToString(digest[:]),
	} {
		all = append(all, s, hex.EncodeToString([]byte(s)),
			base64.StdEncoding.EncodeToString([]byte(s)), url.QueryEscape(s))
	}
	return all
}

// collected is all that a client told.
type collected struct {
	mu   sync.Mutex // guards the field below
	text bytes.Buffer
}

func (c *collected) add(what string, v any) {
	var b bytes.Buffer
	dump(&b, reflect.ValueOf(v), map[uintptr]bool{})
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(&c.text, "%s: %v %+v %#v\n%s\n", what, v, v, v, b.String())
}

// dump writes all texts and bytes that can be reached from v, also those in fields that are not
// exported.
func dump(b *bytes.Buffer, v reflect.Value, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.String:
		b.WriteString(v.String() + "\n")
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		dump(b, v.Elem(), seen)
	case reflect.Interface:
		dump(b, v.Elem(), seen)
	case reflect.Struct:
		for i := range v.NumField() {
			dump(b, v.Field(i), seen)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			for i := range v.Len() {
				b.WriteByte(byte(v.Index(i).Uint()))
			}
			b.WriteByte('\n')
			return
		}
		for i := range v.Len() {
			dump(b, v.Index(i), seen)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			dump(b, it.Key(), seen)
			dump(b, it.Value(), seen)
		}
	default:
	}
}

// sink hears every event that there is, and the log messages of the specifications.
func (c *collected) sink() *event.Sink {
	all := &event.Sink{}
	fields := reflect.ValueOf(all).Elem()
	for i := range fields.NumField() {
		name, f := fields.Type().Field(i).Name, fields.Field(i)
		f.Set(reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
			c.add(name, args[0].Interface())
			return nil
		}))
	}
	log := eventlog.Sink(eventlog.Config{Write: func(m eventlog.Message) {
		c.add("log", m)
	}, MaxDocumentLength: -1})
	return event.Join(func(value any, stack []byte) {
		c.add("panic", fmt.Sprint(value, string(stack)))
	}, all, log)
}

// error takes an error apart.
func (c *collected) error(err error) {
	for ; err != nil; err = errors.Unwrap(err) {
		c.add("error", err)
	}
}

// finds returns the secrets that stand in what was told.
func (c *collected) finds() (found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range spellings() {
		if strings.Contains(c.text.String(), s) {
			found = append(found, s)
		}
	}
	return found
}

// parrot is a hostile server side that repeats what it was told.
type parrot struct{}

func (parrot) Step(payload []byte) ([]byte, bool, error) {
	return nil, false, &fakemongo.Refusal{
		Code: 18, Name: "AuthenticationFailed", Message: fmt.Sprintf("no: %s %x", payload, payload),
	}
}

// awsServer is a parrot that first sends what makes the client send its session token.
type awsServer struct{ steps int }

func (a *awsServer) Step(payload []byte) ([]byte, bool, error) {
	a.steps++
	if a.steps > 1 {
		return nil, false, &fakemongo.Refusal{
			Code: 18, Name: "AuthenticationFailed", Message: "no: " + string(payload),
		}
	}
	v, _ := bson.Raw(payload).Lookup("r")
	_, nonce, _ := v.Binary()
	nonce = append(append([]byte(nil), nonce...), make([]byte, 32)...)
	return bson.NewBuilder(nil).Binary("s", 0, nonce).String("h", "sts.amazonaws.com").Finish(),
		false, nil
}

// Nothing that a client tells shows a secret: no event, log message, error or panic, whatever the
// server does.
func TestNothingShowsASecret(t *testing.T) {
	mechanisms := []struct {
		name, userinfo, options string
		opt                     client.Options
	}{
		{"SCRAM", "app:" + url.QueryEscape(secretPassword) + "@", "", client.Options{}},
		{"SCRAM-SHA-1", "app:" + url.QueryEscape(secretPassword) + "@", "authMechanism=SCRAM-SHA-1", client.Options{}},
		{"source", "app@", "", client.Options{User: auth.FixedUser(auth.User{Name: "app", Password: secretPassword})}},
		{"PLAIN", "app:" + url.QueryEscape(secretPassword) + "@", "authMechanism=PLAIN", client.Options{}},
		{
			"MONGODB-AWS", "", "authMechanism=MONGODB-AWS",
			client.Options{AWS: aws.Config{Getenv: func(
				name string,
			) string {
				return map[string]string{
					"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_SESSION_TOKEN": secretSession,
				}[name]
			}}},
		},
		{"MONGODB-OIDC", "", "authMechanism=MONGODB-OIDC", client.Options{OIDC: oidc.ProviderFunc(
			func(context.Context, oidc.Request) (oidc.Token, error) {
				return oidc.Token{AccessToken: secretToken}, nil
			},
		)}},
	}
	right := &fakemongo.Auth{
		Users: []fakemongo.User{
			{Name: "app", Password: secretPassword},
			{Name: "app", Password: secretPassword, Source: "$external", Mechanisms: []string{"PLAIN"}},
		},
		SASL: map[string]func(*fakemongo.Command) fakemongo.SASL{
			"MONGODB-OIDC": func(*fakemongo.Command) fakemongo.SASL { return accepting{} },
		},
	}
	hostile := &fakemongo.Auth{SASL: map[string]func(*fakemongo.Command) fakemongo.SASL{
		"MONGODB-AWS": func(*fakemongo.Command) fakemongo.SASL { return &awsServer{} },
	}}
	for _, m := range []string{"SCRAM-SHA-1", "SCRAM-SHA-256", "PLAIN", "MONGODB-OIDC"} {
		hostile.SASL[m] = func(*fakemongo.Command) fakemongo.SASL { return parrot{} }
	}
	scripts := map[string]func(*fakemongo.Server){
		"accepts": func(s *fakemongo.Server) { s.RequireAuth(right) },
		"refuses": func(s *fakemongo.Server) { s.RequireAuth(&fakemongo.Auth{}) },
		"repeats": func(s *fakemongo.Server) { s.RequireAuth(hostile) },
		"breaks": func(s *fakemongo.Server) {
			s.RequireAuth(right)
			drop(s, "saslStart", "saslContinue")
		},
		"babbles": babble,
		"reauthenticates": func(s *fakemongo.Server) {
			s.RequireAuth(right)
			s.Handle("find", expired)
		},
	}
	for _, m := range mechanisms {
		for name, script := range scripts {
			t.Run(m.name+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := fakemongo.NewServer(t, nil)
					script(s)
					var c collected
					uri := "mongodb://" + m.userinfo + string(s.Address()) + "/?directConnection=true&serverSelectionTimeoutMS=2000&" + m.options
					play(t, &c, s, uri, m.opt)
					if found := c.finds(); len(found) > 0 {
						t.Errorf("found %q in %s", found, c.text.String())
					}
					if c.text.Len() < 1000 {
						t.Errorf("only %d bytes were told", c.text.Len())
					}
				})
			})
		}
	}
}

type accepting struct{}

func (accepting) Step([]byte) ([]byte, bool, error) { return nil, true, nil }

var expired = fakemongo.Always(fakemongo.Error(391, "ReauthenticationRequired", "expired"))

func drop(s *fakemongo.Server, names ...string) {
	s.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		for _, name := range names {
			if cmd.Name == name {
				return fakemongo.Drop()
			}
		}
		return next(cmd)
	})
}

// babble has the server repeat each command of an authentication in its reply.
func babble(s *fakemongo.Server) {
	s.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if !strings.HasPrefix(cmd.Name, "sasl") {
			return next(cmd)
		}
		return fakemongo.OK(func(b *bson.Builder) {
			b.Int32("conversationId", 1).Bool("done", false)
			v, _ := cmd.Body.Lookup("payload")
			b.Value("payload", v).Value("errmsg", v)
		})
	})
}

// play uses a client as an application does, and collects all that it says.
func play(t *testing.T, c *collected, s *fakemongo.Server, uri string, opt client.Options) {
	t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	// the Config itself holds them
	fmt.Fprintf(&c.text, "%v %+v %#v %s", cfg, cfg, cfg.Settings(), cfg.String())
	c.mu.Unlock()
	opt.Dialer, opt.Sink = s.Dial, c.sink()
	cl, err := client.New(cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { c.error(cl.Close(context.Background())) }()
	orders := client.Namespace{Database: "shop", Collection: "orders"}
	for range 2 {
		c.error(cl.Ping(t.Context()))
		_, err = cl.Find(t.Context(), orders, client.FindOptions{})
		c.error(err)
		_, err = cl.InsertOne(t.Context(), orders, bson.NewBuilder(nil).Finish(),
			client.InsertOneOptions{})
		c.error(err)
		c.add("topology", cl.Topology())
		c.add("pools", cl.Pools())
		c.add("warnings", cl.Warnings())
	}
	// What an application sends by itself.
	for _, command := range []bson.Raw{
		bson.NewBuilder(nil).String("createUser", "bob").String("pwd", secretPassword).Finish(),
		bson.NewBuilder(nil).String("updateUser", "bob").String("pwd", secretPassword).Finish(),
		bson.NewBuilder(nil).Int32("saslStart", 1).String("mechanism", "PLAIN").Binary("payload", 0, []byte("\x00app\x00"+secretPassword)).Finish(),
		bson.NewBuilder(nil).Int32("hello", 1).OpenDocument("speculativeAuthenticate").
			Int32("saslStart", 1).
			Binary("payload", 0, []byte(secretToken)).Close().Finish(),
	} {
		_, err := cl.RunCommand(t.Context(), "admin", command, client.RunCommandOptions{})
		_ = err // what a server answers to an application's own command is the application's
	}
}
