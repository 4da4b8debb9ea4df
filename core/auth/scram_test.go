package auth_test

import (
	"encoding/base64"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/xdg-go/scram"

	"github.com/mooringdb/mooring/core/auth"
)

func begin(t testing.TB, m auth.Mechanism, name, password string) auth.Conversation {
	t.Helper()
	c, err := m.Begin(t.Context(), auth.Target{User: auth.User{Name: name, Password: password}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The example conversations of RFC 5802, section 5, and RFC 7677, section 3.
func TestSCRAMExamplesOfTheRFCs(t *testing.T) {
	tests := []struct {
		mechanism                                    *auth.SCRAM
		nonce, serverFirst, clientFinal, serverFinal string
	}{
		{
			auth.SCRAMSHA1(), "fyko+d2lbbFgONRv9qkxdawL",
			"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
			"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
			"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
		},
		{
			auth.SCRAMSHA256(), "rOprNGfwEbeRWgbNEkqO",
			"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
			"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
			"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
		},
	}
	for _, tt := range tests {
		t.Run(tt.mechanism.Name(), func(t *testing.T) {
			tt.mechanism.SetNonce(tt.nonce)
			tt.mechanism.SetRawPassword()
			c := begin(t, tt.mechanism, "user", "pencil")
			first, err := c.First()
			if want := "n,,n=user,r=" + tt.nonce; err != nil || string(first) != want {
				t.Errorf("First() = %q, %v, want %q", first, err, want)
			}
			final, done, err := c.Next([]byte(tt.serverFirst))
			if err != nil || done || string(final) != tt.clientFinal {
				t.Errorf("Next(server-first) = %q, %v, %v, want %q", final, done, err,
					tt.clientFinal)
			}
			last, done, err := c.Next([]byte(tt.serverFinal))
			if err != nil || !done || len(last) != 0 {
				t.Errorf("Next(server-final) = %q, %v, %v, want the end", last, done, err)
			}
		})
	}
}

// The vector of the specification: MongoDB's SCRAM-SHA-1 digests the password first
// (Authentication, "SCRAM-SHA-1").
func TestSCRAMSHA1DigestsThePassword(t *testing.T) {
	m := auth.SCRAMSHA1()
	m.SetNonce("fyko+d2lbbFgONRv9qkxdawL")
	c := begin(t, m, "user", "pencil")
	_, _ = c.First()
	final, _, err := c.Next([]byte("r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,s=rQ9ZY3MntBeuP3E1TDVC4w==,i=10000"))
	if want := ",p=MC2T8BvbmWRckDw8oWl5IVghwCY="; err != nil ||
		!strings.HasSuffix(string(final), want) {
		t.Fatalf("Next() = %q, %v, want …%s", final, err, want)
	}
	if _, done, err := c.Next([]byte("v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0=")); err != nil || !done {
		t.Errorf("Next() = %v, %v, want the end", done, err)
	}
}

// independent is the server side of another implementation, for one user.
func independent(
	t testing.TB, mechanism string, stored map[string]string, iterations int,
) *scram.Server {
	t.Helper()
	hash := map[string]scram.HashGeneratorFcn{
		"SCRAM-SHA-1": scram.SHA1, "SCRAM-SHA-256": scram.SHA256,
	}[mechanism]
	credentials := map[string]scram.StoredCredentials{}
	for name, password := range stored {
		client, err := hash.NewClientUnprepped(name, password, "")
		if err != nil {
			t.Fatal(err)
		}
		credentials[name], err = client.GetStoredCredentialsWithError(scram.KeyFactors{
			Salt: "salt of " + mechanism, Iters: iterations,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := hash.NewServer(func(name string) (scram.StoredCredentials, error) {
		c, ok := credentials[name]
		if !ok {
			return c, errUnknownUser
		}
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type unknownUser struct{}

func (unknownUser) Error() string { return "no such user" }

var errUnknownUser = unknownUser{}

// converse plays a conversation against the independent server.
func converse(c auth.Conversation, s *scram.Server) error {
	server := s.NewConversation()
	payload, err := c.First()
	for err == nil {
		var answer string
		if answer, err = server.Step(string(payload)); err != nil {
			return err
		}
		var done bool
		if payload, done, err = c.Next([]byte(answer)); done {
			return err
		}
	}
	return err
}

func TestSCRAMWithIndependentServer(t *testing.T) {
	sha1 := func(name, password string) string { return auth.Digest(name, password) }
	tests := []struct {
		name, mechanism, user, password, stored string
		fails                                   bool
	}{
		{"SHA-1", "SCRAM-SHA-1", "app", "pencil", sha1("app", "pencil"), false},
		{"SHA-256", "SCRAM-SHA-256", "app", "pencil", "pencil", false},
		{"wrong password", "SCRAM-SHA-256", "app", "pencil", "pen", true},
		{"wrong password, SHA-1", "SCRAM-SHA-1", "app", "pencil", sha1("app", "pen"), true},
		{"name with = and ,", "SCRAM-SHA-256", "a=b,c", "pencil", "pencil", false},
		// The specification's users for SASLprep: names are not prepared, passwords are.
		{"IX", "SCRAM-SHA-256", "IX", "IX", "IX", false},
		{"I-soft-hyphen-X", "SCRAM-SHA-256", "IX", "I\u00ADX", "IX", false},
		{"Roman nine", "SCRAM-SHA-256", "\u2168", "IV", "IV", false},
		{"Roman nine, soft hyphen", "SCRAM-SHA-256", "\u2168", "I\u00ADV", "IV", false},
		{"Roman four prepared", "SCRAM-SHA-256", "\u2168", "\u2163", "IV", false},
		{"SHA-1 does not prepare", "SCRAM-SHA-1", "IX", "I\u00ADX", sha1("IX", "IX"), true},
		{"empty password", "SCRAM-SHA-256", "app", "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := auth.SCRAMSHA256()
			if tt.mechanism == "SCRAM-SHA-1" {
				m = auth.SCRAMSHA1()
			}
			s := independent(t, tt.mechanism, map[string]string{tt.user: tt.stored},
				auth.MinIterations)
			if err := converse(begin(t, m, tt.user, tt.password), s); err != nil != tt.fails {
				t.Errorf("conversation ends with %v, want an error: %v", err, tt.fails)
			}
		})
	}
}

func TestSASLprepRefusesPassword(t *testing.T) {
	m := auth.SCRAMSHA256()
	to := auth.Target{User: auth.User{Name: "app", Password: "s3cret\u0007"}}
	_, err := m.Begin(t.Context(), to)
	if err == nil || strings.Contains(err.Error(), "s3cret") ||
		strings.Contains(err.Error(), "07") {
		t.Errorf("Begin() = %v, want an error without the password", err)
	}
	if c := m.Speculate(to); c != nil {
		t.Errorf("Speculate() = %v, want nil", c)
	}
}

func TestHostileServerFirst(t *testing.T) {
	const nonce = "abcdef"
	salt := base64.StdEncoding.EncodeToString([]byte("salt"))
	tests := []struct{ name, message, want string }{
		{"empty", "", `no "r="`},
		{"mandatory extension", "m=x,r=abcdefg,s=" + salt + ",i=4096", `no "r="`},
		{"no salt", "r=abcdefg,i=4096", `no "s="`},
		{"no iterations", "r=abcdefg,s=" + salt, `no "i="`},
		{"another nonce", "r=xyz,s=" + salt + ",i=4096", "nonce"},
		{"nonce not extended", "r=abcdef,s=" + salt + ",i=4096", "nonce"},
		{"salt not base64", "r=abcdefg,s=***,i=4096", "salt"},
		{"empty salt", "r=abcdefg,s=,i=4096", "salt"},
		{"one iteration", "r=abcdefg,s=" + salt + ",i=1", "at least 4096"},
		{"one iteration too few", "r=abcdefg,s=" + salt + ",i=4095", "at least 4096"},
		{"no number", "r=abcdefg,s=" + salt + ",i=", "at least 4096"},
		{"words", "r=abcdefg,s=" + salt + ",i=many", "not a number"},
		{"negative", "r=abcdefg,s=" + salt + ",i=-4096", "not a number"},
		{"two billion iterations", "r=abcdefg,s=" + salt + ",i=2000000000", "more than 1000000"},
		{"overflow", "r=abcdefg,s=" + salt + ",i=18446744073709555712", "more than 1000000"},
		{"an error", "e=unknown-user", "rejected the user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := auth.SCRAMSHA256()
			m.SetNonce(nonce)
			c := begin(t, m, "app", "pencil")
			_, _ = c.First()
			response, done, err := c.Next([]byte(tt.message))
			if err == nil || !strings.Contains(err.Error(), tt.want) || done || response != nil {
				t.Errorf("Next(%q) = %q, %v, %v, want an error with %q", tt.message, response, done,
					err, tt.want)
			}
			if m.Derived() != 0 {
				t.Error("keys were derived for a server that is refused")
			}
		})
	}
}

func TestIterationLimitsAreInclusive(t *testing.T) {
	if testing.Short() {
		t.Skip("a million iterations")
	}
	for _, n := range []int{auth.MinIterations, auth.MaxIterations} {
		m := auth.SCRAMSHA256()
		m.SetNonce("a")
		c := begin(t, m, "app", "pencil")
		_, _ = c.First()
		if _, _, err := c.Next([]byte("r=ab,s=c2FsdA==,i=" + strconv.Itoa(n))); err != nil {
			t.Errorf("Next() with %d iterations: %v", n, err)
		}
	}
}

func TestHostileServerFinal(t *testing.T) {
	tests := []struct{ name, message, want string }{
		{"empty", "", "no signature"},
		{"wrong signature", "v=" + base64.StdEncoding.EncodeToString(make([]byte, 32)), "signature is wrong"},
		{"empty signature", "v=", "signature is wrong"},
		{"not base64", "v=***", "signature is wrong"},
		{"an error", "e=invalid-proof", "rejected the user"},
		{"a long error", "e=" + strings.Repeat("x", auth.MaxPayload-2), "rejected the user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := auth.SCRAMSHA256()
			m.SetNonce("a")
			c := begin(t, m, "app", "pencil")
			_, _ = c.First()
			if _, _, err := c.Next([]byte("r=ab,s=c2FsdA==,i=4096")); err != nil {
				t.Fatal(err)
			}
			_, _, err := c.Next([]byte(tt.message))
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 512 {
				t.Errorf("Next() = %v, want a short error with %q", err, tt.want)
			}
		})
	}
}

// A thousand connections at once need the keys of one password: they are computed once.
func TestKeysAreDerivedOnce(t *testing.T) {
	m := auth.SCRAMSHA256()
	s := independent(t, m.Name(), map[string]string{"app": "pencil"}, 15_000)
	var wg sync.WaitGroup
	for range 1000 {
		c := begin(t, m, "app", "pencil")
		wg.Go(func() {
			if err := converse(c, s); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := m.Derived(); n != 1 {
		t.Errorf("keys were derived %d times, want once", n)
	}
}

func TestKeysOfHostileServerAreBounded(t *testing.T) {
	m := auth.SCRAMSHA256()
	m.SetNonce("a")
	for i := range 20 {
		c := begin(t, m, "app", "pencil")
		_, _ = c.First()
		salt := base64.StdEncoding.EncodeToString([]byte{byte(i)})
		if _, _, err := c.Next([]byte("r=ab,s=" + salt + ",i=4096")); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.Keys(); n != 8 {
		t.Errorf("%d keys are cached, want 8", n)
	}
}
