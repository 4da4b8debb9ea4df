package fakemongo_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func saslStart(mechanism, payload string) func(*bson.Builder) {
	return func(b *bson.Builder) {
		b.Int32("saslStart", 1).String("mechanism", mechanism).Binary("payload", 0, []byte(payload))
	}
}

// echo is a mechanism that wants the payload twice.
type echo struct{ first string }

func (e *echo) Step(payload []byte) ([]byte, bool, error) {
	switch e.first {
	case "":
		e.first = string(payload)
		return payload, false, nil
	case string(payload):
		return nil, true, nil
	}
	return nil, false,
		&fakemongo.Refusal{Code: 20, Name: "IllegalOperation", Message: "not the same"}
}

func TestLoginsAreDemanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		s.RequireAuth(&fakemongo.Auth{
			Users: []fakemongo.User{{Name: "app", Password: "pencil"}},
			SASL: map[string]func(*fakemongo.Command) fakemongo.SASL{"ECHO": func(
				*fakemongo.Command,
			) fakemongo.SASL {
				return &echo{}
			}},
		})
		c := dial(t, s)
		find := func(b *bson.Builder) { b.String("find", "c") }
		proceed := func(id int32, payload string) func(*bson.Builder) {
			return func(b *bson.Builder) {
				b.Int32("saslContinue", 1).Int32("conversationId", id).
					Binary("payload", 0, []byte(payload))
			}
		}
		steps := []struct {
			name string
			add  func(*bson.Builder)
			code int64 // 0: ok
		}{
			{"ping", func(b *bson.Builder) { b.Int32("ping", 1) }, 0},
			{"find before the login", find, 13},
			{"unknown mechanism", saslStart("FOO", ""), 334},
			{"unknown SCRAM", saslStart("SCRAM-SHA-3", ""), 334},
			{"X.509 is off", func(b *bson.Builder) { b.Int32("authenticate", 1).String("mechanism", "MONGODB-X509") }, 334},
			{"nothing to continue", proceed(1, ""), 17},
			{"no payload", func(b *bson.Builder) { b.Int32("saslStart", 1).String("mechanism", "ECHO") }, 4},
			{"own mechanism", saslStart("ECHO", "x"), 0},
			{"refused by it", proceed(4, "y"), 20},
			{"over", proceed(4, "x"), 17},
			{"find after a refusal", find, 13},
			{"own mechanism again", saslStart("ECHO", "x"), 0},
			{"accepted by it", proceed(5, "x"), 0},
			{"find after the login", find, 0},
		}
		for _, step := range steps {
			reply := run(t, c, nil, step.add)
			v, _ := reply.Lookup("code")
			if code, _ := v.AsInt64(); code != step.code {
				t.Errorf("%s: %v, want code %d", step.name, reply, step.code)
			}
		}
		if got := s.LoggedIn(); !slices.Equal(got, []string{"db.ECHO"}) {
			t.Errorf("LoggedIn() = %v", got)
		}
		s.RequireAuth(nil)
		if reply := run(t, dial(t, s), nil, find); number(t, reply, "ok") != 1 {
			t.Errorf("find without demands: %v", reply)
		}
	})
}

func TestPasswordsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		login := func(password string) error {
			c, err := conn.Dial(t.Context(), s.Address(), conn.Config{
				Dialer: s.Dial,
				Auth: auth.Negotiate("admin",
					auth.FixedUser(auth.User{Name: "app", Password: password})),
			})
			if err == nil {
				_ = c.Close()
			}
			return err
		}
		for _, password := range []string{"one", "two", "one"} {
			s.RequireAuth(&fakemongo.Auth{
				Users: []fakemongo.User{{Name: "app", Password: password}},
			})
			if err := login(password); err != nil {
				t.Errorf("login with %s: %v", password, err)
			}
			if err := login("three"); err == nil {
				t.Error("login with another password is accepted")
			}
		}
	})
}
