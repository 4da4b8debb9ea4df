package aws_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

var (
	webIdentity = []string{
		"AWS_WEB_IDENTITY_TOKEN_FILE", "/token", "AWS_ROLE_ARN", "arn:aws:iam::1:role/r",
	}
	ecs = []string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/1"}
	eks = []string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v2/credentials/1",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/pod",
	}
	keys = []string{
		"AWS_ACCESS_KEY_ID", regular.AccessKeyID, "AWS_SECRET_ACCESS_KEY", regular.SecretAccessKey,
	}
)

const (
	askSTS = "POST sts.amazonaws.com/"
	askECS = "GET 169.254.170.2/v2/credentials/1"
	askEKS = "GET 169.254.170.23/v2/credentials/1"
)

var askEC2 = []string{
	"PUT 169.254.169.254/latest/api/token",
	"GET 169.254.169.254/latest/meta-data/iam/security-credentials/",
	"GET 169.254.169.254/latest/meta-data/iam/security-credentials/my-role",
}

// authenticate is one connection's authentication, as core/auth does it: a refusal clears the
// cache.
func authenticate(t *testing.T, c *cloud, s *aws.Source) error {
	t.Helper()
	m := aws.New(s)
	conversation, err := m.Begin(t.Context(), auth.Target{})
	if err != nil {
		return err
	}
	if _, err = converse(c.server, conversation); err != nil && m.Refused(conversation, err) {
		t.Error("the mechanism would try again")
	}
	return err
}

// TestScenarios are the scenarios of the specification's test plan, and the order of the sources
// where several are there.
func TestScenarios(t *testing.T) {
	for _, tt := range []struct {
		name  string
		env   []string
		user  string
		asked []string
	}{
		{"Regular Credentials", keys, "AKIDREGULAR", nil},
		{"EC2 Credentials", nil, "ASIA1", askEC2},
		{"ECS Credentials", ecs, "ASIA1", []string{askECS}},
		{"EKS Pod Identity", eks, "ASIA1", []string{askEKS}},
		{"ECS Credentials with a token", append(ecs, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "x"), "ASIA1", []string{askECS}},
		{"Assume Role with Web Identity", webIdentity, "ASIA1", []string{askSTS}},
		{"Assume Role with Web Identity and a name", append(webIdentity, "AWS_ROLE_SESSION_NAME", "n"), "ASIA1", []string{askSTS}},
		{"AWS Lambda without a token", keys, "AKIDREGULAR", nil},
		{"AWS Lambda with a token", []string{
			"AWS_ACCESS_KEY_ID", temporary.AccessKeyID, "AWS_SECRET_ACCESS_KEY", temporary.SecretAccessKey,
			"AWS_SESSION_TOKEN", temporary.SessionToken,
		}, "ASIATEMP", nil},
		{"environment before web identity", append(keys, webIdentity...), "AKIDREGULAR", nil},
		{"web identity before ECS", append(ecs, webIdentity...), "ASIA1", []string{askSTS}},
		{"ECS before EKS", append(eks, ecs...), "ASIA1", []string{askECS}},
		{"a role without a token file is EC2's", webIdentity[2:], "ASIA1", askEC2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(t)
				c.server = newServer(regular, temporary)
				c.setenv(tt.env...)
				conversation, err := aws.New(c.source()).Begin(t.Context(), auth.Target{})
				if err != nil {
					t.Fatal(err)
				}
				got, err := converse(c.server, conversation)
				if asked := c.requests(); err != nil || got.AccessKeyID != tt.user ||
					!slices.Equal(asked, tt.asked) {
					t.Errorf("authenticated as %s, %v, asking %q, want %s and %q", got.AccessKeyID,
						err, asked, tt.user, tt.asked)
				}
				if name := c.getenv("AWS_ROLE_SESSION_NAME"); name != "" && c.session != name {
					t.Errorf("the session's name is %q, want %q", c.session, name)
				}
			})
		})
	}
}

// TestWebIdentityAnswers: STS nests its answer and counts seconds, the specification shows neither.
func TestWebIdentityAnswers(t *testing.T) {
	for _, tt := range []struct{ flat, epoch bool }{
		{false, false}, {false, true}, {true, false}, {true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(t)
			c.flat, c.epoch = tt.flat, tt.epoch
			c.setenv(webIdentity...)
			got, err := c.source().Credentials(t.Context())
			if want := time.Now().Add(time.Hour); err != nil ||
				got.SessionToken != "issued-token-1" || !got.Expires.Equal(want) {
				t.Errorf("flat %t, seconds %t: %v, expires %s, %v, want %s", tt.flat, tt.epoch, got,
					got.Expires, err, want)
			}
		})
	}
}

// TestSessionNamesDiffer: without AWS_ROLE_SESSION_NAME each exchange gets a name that AWS accepts.
func TestSessionNamesDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		c.setenv(webIdentity...)
		var names []string
		for range 2 {
			if _, err := c.source().Credentials(t.Context()); err != nil {
				t.Fatal(err)
			}
			names = append(names, c.session)
		}
		if names[0] == names[1] || !strings.HasPrefix(names[0], "mooring-") || len(names[0]) > 64 {
			t.Errorf("the names are %q", names)
		}
	})
}

// TestCachedCredentials is the specification's test of that name, 12 steps, on a source instead of
// a client.
func TestCachedCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		s := c.source()
		find := func() error { return authenticate(t, c, s) }
		cached := func() aws.Credentials { return s.Cached() }

		s.Clear()                                                    // 1
		if err := find(); err != nil || cached().AccessKeyID == "" { // 2, 3
			t.Fatalf("after the first find: cached %v, %v", cached(), err)
		}
		first := cached()
		soon := first
		soon.Expires = time.Now().Add(time.Minute)
		s.SetCached(soon)                                                           // 4
		if err := find(); err != nil || cached().AccessKeyID == first.AccessKeyID { // 5, 6
			t.Fatalf("after credentials that expire soon: cached %v, %v", cached(), err)
		}
		poisoned := cached()
		poisoned.AccessKeyID = "POISONED"
		s.SetCached(poisoned)          // 7
		if err := find(); err == nil { // 8, 9
			t.Fatal("a find with a poisoned cache has no error")
		}
		if cached() != (aws.Credentials{}) { // 10
			t.Fatalf("the cache was not cleared: %v", cached())
		}
		if err := find(); err != nil { // 11
			t.Fatal(err)
		}
		if cached() == (aws.Credentials{}) { // 12
			t.Fatal("the cache was not set")
		}
	})
}

// TestEnvironmentAndCache is the specification's test of their interplay, 18 steps.
func TestEnvironmentAndCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		s := c.source()
		find := func() error { return authenticate(t, c, s) }
		isCached := func() bool { return s.Cached() != (aws.Credentials{}) }
		invalid := []string{"AWS_ACCESS_KEY_ID", "INVALID", "AWS_SECRET_ACCESS_KEY", "invalid"}

		s.Clear()                                     // 1
		if err := find(); err != nil || !isCached() { // 2, 3
			t.Fatalf("step 3: cached %t, %v", isCached(), err)
		}
		got := s.Cached()
		c.setenv("AWS_ACCESS_KEY_ID", got.AccessKeyID, "AWS_SECRET_ACCESS_KEY", got.SecretAccessKey,
			"AWS_SESSION_TOKEN", got.SessionToken) // 4
		s.Clear()                                    // 5
		if err := find(); err != nil || isCached() { // 6, 7
			t.Fatalf("step 7: cached %t, %v", isCached(), err)
		}
		c.setenv(invalid...)           // 8
		if err := find(); err == nil { // 9, 10
			t.Fatal("step 10: no error")
		}
		c.setenv()                                    // 11
		s.Clear()                                     // 12
		if err := find(); err != nil || !isCached() { // 13, 14
			t.Fatalf("step 14: cached %t, %v", isCached(), err)
		}
		c.setenv(invalid...)           // 15
		if err := find(); err != nil { // 16, 17
			t.Fatalf("step 17: %v", err)
		}
		c.setenv() // 18
	})
}

// TestCacheMargin: cached credentials are used as long as they are more than five minutes from
// expiring, and then refreshed where they came from, even if the environment has others by then.
func TestCacheMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		s := c.source()
		ask := func() string {
			t.Helper()
			got, err := s.Credentials(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return got.AccessKeyID
		}
		for _, tt := range []struct {
			after time.Duration
			env   []string
			want  string
		}{
			{0, nil, "ASIA1"},
			{55*time.Minute - time.Second, nil, "ASIA1"},
			{time.Second, keys, "ASIA2"},
			{time.Minute, nil, "ASIA2"},
		} {
			<-time.After(tt.after)
			c.setenv(tt.env...)
			if got := ask(); got != tt.want {
				t.Errorf("after %s with %q: %s, want %s", tt.after, tt.env, got, tt.want)
			}
		}
		c.setenv(keys...)
		s.Clear()
		if got := ask(); got != regular.AccessKeyID {
			t.Errorf("after Clear: %s, want the environment's", got)
		}
	})
}

// TestNothingIsLockedWhileFetching: as many connections as begin at once may ask at once.
func TestNothingIsLockedWhileFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		c.setenv(ecs...)
		s := c.source()
		go_ := make(chan struct{})
		c.answer = func(w http.ResponseWriter, _ *http.Request) {
			<-go_
			fmt.Fprint(w,
				`{"AccessKeyId": "A", "SecretAccessKey": "S", "Expiration": "2000-01-01T09:00:00Z"}`)
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := s.Credentials(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := len(c.requests()); n != 5 {
			t.Errorf("%d requests are under way, want 5", n)
		}
		close(go_)
		wg.Wait()
	})
}

type provider func(context.Context) (aws.Credentials, error)

func (p provider) Credentials(ctx context.Context) (aws.Credentials, error) { return p(ctx) }

// TestCustomCredentialProvider is the specification's test "Custom Credential Provider
// Authenticates", and its case 2: it takes precedence over environment variables. (Case 1 cannot
// occur: nothing comes from the URI.)
func TestCustomCredentialProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		c.setenv(keys...)
		know(c.server, temporary)
		calls := 0
		cfg := c.config()
		cfg.Provider = provider(func(context.Context) (aws.Credentials, error) {
			calls++
			return temporary, nil
		})
		s := aws.NewSource(cfg)
		for range 2 {
			if err := authenticate(t, c, s); err != nil {
				t.Fatal(err)
			}
		}
		if calls != 2 || s.Cached() != (aws.Credentials{}) || len(c.requests()) != 0 {
			t.Errorf("the provider was called %d times, cached is %v", calls, s.Cached())
		}
		reason := errors.New("vault is sealed")
		cfg.Provider = provider(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, reason
		})
		if _, err := aws.NewSource(cfg).Credentials(t.Context()); !errors.Is(err, reason) {
			t.Errorf("Credentials = %v, want the provider's error", err)
		}
	})
}

// TestFailures: what cannot be obtained is an error that says why, there is no falling through to
// another source, and nothing secret is in the error.
func TestFailures(t *testing.T) {
	with := func(env []string, more ...string) []string {
		return append(slices.Clone(env), more...)
	}
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" {
			fmt.Fprint(w, imdsToken)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, r.Header, r.PostForm, r.PostForm.Encode())
	}
	where := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, id, _ := strings.Cut(r.URL.Path, "/credentials/")
		fmt.Fprint(w, r.URL, r.URL.Path, id, r.URL.RawQuery)
	}
	for _, tt := range []struct {
		name   string
		env    []string
		answer http.HandlerFunc
		want   string
	}{
		{"a key without its secret", keys[:2], nil, "no secret access key"},
		{"a secret without its key", keys[2:], nil, "no access key id"},
		{"a token only", []string{"AWS_SESSION_TOKEN", temporary.SessionToken}, nil, "no access key id and no secret"},
		{"no token file", []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "/none", "AWS_ROLE_ARN", "r"}, nil, "/none"},
		{"no authorization file", with(ecs, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/none"), nil, "/none"},
		{"STS refuses", []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token", "AWS_ROLE_ARN", "other"}, nil, "refused"},
		{"STS says what it was asked", webIdentity, echo, "status 403"},
		{"STS answers an HTML page", webIdentity, status(200, "<html>"), "not JSON"},
		{"STS answers nothing of use", webIdentity, status(200, "{}"), "no Credentials"},
		{"STS has no key", webIdentity, status(200, `{"Credentials": {}}`), "no access key id"},
		{"STS is busy", webIdentity, status(503, "busy"), `status 503: "busy"`},
		{"ECS is busy", ecs, status(503, "busy"), `status 503: "busy"`},
		{"ECS says what it was asked", with(ecs, "AWS_CONTAINER_AUTHORIZATION_TOKEN", podToken), echo, "status 403"},
		{"ECS says what path it was asked for", []string{
			"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/s3cret-1c8f",
		}, where, "status 404"},
		{"EKS says what path it was asked for", []string{
			"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/s3cret/of?a=s3cret%20b",
		}, where, "GET http://127.0.0.1: status 404"},
		{"ECS answers half", ecs, status(200, `{"AccessKeyId": "A"}`), "no secret access key"},
		{"ECS answers a wrong type", ecs, status(200, `{"AccessKeyId": 1}`), "not JSON"},
		{"ECS answers an odd time", ecs, status(200, `{"AccessKeyId":"A","SecretAccessKey":"S","Expiration":true}`), "not JSON"},
		{"ECS answers a time of no calendar", ecs, status(200, `{"AccessKeyId":"A","SecretAccessKey":"S","Expiration":1e300}`), "not JSON"},
		{"ECS redirects", ecs, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		}, "status 302"},
		{"EC2 says what it was asked", nil, echo, "status 403"},
		{"EC2 has no role", nil, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "PUT" {
				fmt.Fprintln(w, imdsToken)
			}
		}, "no IAM role"},
		{"EC2 gives no token", nil, status(200, " \n"), "no session token"},
		{"EC2 reports a failure", nil, status(200, `{"Code": "Failed", "Message": "try later"}`), `"Failed": "try later"`},
		{"EKS in the clear", []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/s3cret"}, nil, "without TLS"},
		{"EKS of another scheme", []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "ftp://127.0.0.1/"}, nil, "must be http or https"},
		{"EKS without a URL", []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://s3cret\x7f"}, nil, "cannot be parsed"},
		{"ECS without a URL", []string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "s3cret\x7f"}, nil, "cannot be parsed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(t)
				c.setenv(tt.env...)
				c.answer = tt.answer
				got, err := c.source().Credentials(t.Context())
				if err == nil || !strings.Contains(err.Error(), tt.want) ||
					got != (aws.Credentials{}) {
					t.Fatalf("Credentials = %v, %v, want an error with %q", got, err, tt.want)
				}
				for _, secret := range []string{
					jwt, imdsToken, podToken, "s3cret", temporary.SessionToken, regular.SecretAccessKey,
				} {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("the error has a secret in it: %v", err)
					}
				}
			})
		})
	}
}

// TestContainerURLs: credentials come in the clear only from the machine itself and the agents'
// addresses.
func TestContainerURLs(t *testing.T) {
	for url, want := range map[string]bool{
		"https://example.com/x": true, "http://localhost:80/x": true, "http://127.0.0.1/x": true, "http://127.9.9.9/x": true,
		"http://[::1]/x": true, "http://169.254.170.2/x": true, "http://169.254.170.23/x": true, "http://[fd00:ec2::23]/x": true,
		"http://169.254.169.254/x": false, "http://10.0.0.1/x": false, "http://localhost.example.com/x": false, "/x": false,
	} {
		if err := aws.CheckContainerURL(url); (err == nil) != want {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestEndpointsThatHang: an endpoint that never answers, or never ends its answer, costs ten
// seconds and no more; an instance's metadata three questions, and still ten seconds.
func TestEndpointsThatHang(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	drip := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(" ")); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(time.Second):
			}
		}
	}
	slow := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(4 * time.Second):
			fmt.Fprint(w, "x")
		case <-r.Context().Done():
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"hang": hang, "drip": drip, "slow": slow,
	} {
		for _, env := range [][]string{nil, ecs, webIdentity} {
			if name == "slow" && env != nil {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(t)
				c.setenv(env...)
				c.answer = answer
				start := time.Now()
				_, err := c.source().Credentials(t.Context())
				if took := time.Since(start); err == nil || took != 10*time.Second {
					t.Errorf("%s with %q: %v after %s", name, env, err, took)
				}
			})
		}
	}
}

// TestEndpointsThatSendTooMuch: ten gigabytes are cut after 64 KiB, in the body and in the header.
func TestEndpointsThatSendTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		c.setenv(ecs...)
		sent := 0
		c.answer = func(w http.ResponseWriter, _ *http.Request) {
			chunk := []byte(strings.Repeat(" ", 1<<20))
			for sent = 0; sent < 10<<30; sent += len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}
		_, err := c.source().Credentials(t.Context())
		if err == nil || !strings.Contains(err.Error(), "larger than 65536 bytes") {
			t.Errorf("Credentials = %v", err)
		}
		synctest.Wait()
		if sent > 16<<20 {
			t.Errorf("%d bytes were taken", sent)
		}
	})
}

// TestCallerThatGivesUp: the caller's end ends the request, with its cause.
func TestCallerThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		c.answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		reason := errors.New("the pool was closed")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(reason) })
		if _, err := c.source().Credentials(ctx); !errors.Is(err, reason) {
			t.Errorf("Credentials = %v, want %v", err, reason)
		}
	})
}

// broken is a connection that ends after the client's first message.
type broken struct{}

func (broken) Run(context.Context, string, bson.Raw) (bson.Raw, error) {
	return nil, &mongoerr.NetworkError{Err: io.EOF}
}

// TestAnyFailureClearsTheCache: the specification excepts none, not even a connection that breaks.
func TestAnyFailureClearsTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		s := c.source()
		if _, err := s.Credentials(t.Context()); err != nil || s.Cached() == (aws.Credentials{}) {
			t.Fatalf("cached is %v, %v", s.Cached(), err)
		}
		state, err := auth.SASL("$external", nil, aws.New(s)).
			Start(auth.Target{Address: "db:27017"})
		if err != nil {
			t.Fatal(err)
		}
		if err := state.Authenticate(t.Context(), broken{}, nil); !errors.Is(err, io.EOF) {
			t.Errorf("Authenticate = %v", err)
		}
		if s.Cached() != (aws.Credentials{}) {
			t.Errorf("cached is %v", s.Cached())
		}
	})
}

// TestMechanism: a conversation has a fresh nonce each time, and none begins in hello.
func TestMechanism(t *testing.T) {
	cfg := aws.Config{Getenv: func(name string) string {
		return map[string]string{keys[0]: keys[1], keys[2]: keys[3]}[name]
	}}
	m := aws.New(aws.NewSource(cfg))
	if m.Name() != "MONGODB-AWS" || m.Speculate(auth.Target{}) != nil {
		t.Errorf("%s begins in hello", m.Name())
	}
	var firsts [2][]byte
	for i := range firsts {
		c, err := m.Begin(t.Context(), auth.Target{})
		if err != nil {
			t.Fatal(err)
		}
		if firsts[i], err = c.First(); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(firsts[0], firsts[1]) || bytes.Contains(firsts[0], make([]byte, 16)) {
		t.Errorf("the nonces are %x", firsts)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"AccessKeyId":"A","SecretAccessKey":"S","Token":"T","Expiration":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"Code":"Failed","Message":"m","Expiration":1.7e9}`))
	f.Add([]byte(`{"AssumeRoleWithWebIdentityResponse":{"AssumeRoleWithWebIdentityResult":{"Credentials":{"SessionToken":"T"}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte) (aws.Credentials, error){
			aws.ParseRole,
			aws.ParseWebIdentity,
		} {
			if c, err := parse(body); err != nil && c != (aws.Credentials{}) {
				t.Errorf("credentials %v beside the error %v", c, err)
			}
		}
	})
}
