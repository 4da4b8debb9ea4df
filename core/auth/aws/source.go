package aws

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/core/auth/internal/fetch"
)

// margin is how far from expiring cached credentials must be: the server verifies them later than
// they are used here.
const margin = 5 * time.Minute

// timeout bounds a request to an endpoint.
const timeout = 10 * time.Second

// Config says where credentials come from. Its zero value searches the process's environment and
// the network.
type Config struct {
	// Provider is asked before, and instead of, all other sources if it is not nil.
	Provider Provider

	// Getenv reads an environment variable; nil stands for os.Getenv.
	Getenv func(name string) string

	// ReadFile reads a token file that the environment names; nil stands for os.ReadFile.
	ReadFile func(name string) ([]byte, error)

	// Transport carries the requests to endpoints. Nil stands for the network: STS through the
	// environment's proxy, the endpoints of the machine directly.
	Transport http.RoundTripper

	// Now tells the time; nil stands for time.Now.
	Now func() time.Time
}

// Source obtains credentials for the connections of a client, and caches those that an endpoint
// gave until shortly before they expire. Its methods may be called at any time: the cache is one
// atomic value, and nothing is locked while an endpoint is asked.
type Source struct {
	config Config
	cached atomic.Pointer[Credentials]
}

// NewSource returns a source with an empty cache.
func NewSource(cfg Config) *Source {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	if cfg.ReadFile == nil {
		cfg.ReadFile = fetch.File
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Source{config: cfg}
}

// Credentials returns what to sign with. It blocks while an endpoint is asked, at most until ctx
// ends.
//
// The order is the specification's: an application's provider; what an endpoint gave and is still
// valid; the environment; AssumeRoleWithWebIdentity; the container's endpoint, or else the
// instance's. Once an endpoint has given credentials, they are refreshed there until Clear, even
// if the environment has some by then.
func (s *Source) Credentials(ctx context.Context) (Credentials, error) {
	c, err := s.obtain(ctx)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Credentials{}, fmt.Errorf("obtain AWS credentials: %w", err)
	}
	return c, nil
}

func (s *Source) obtain(ctx context.Context) (Credentials, error) {
	if s.config.Provider != nil {
		return s.config.Provider.Credentials(ctx)
	}
	if cached := s.cached.Load(); cached == nil {
		if c := s.environment(); c != (Credentials{}) {
			return c, nil
		}
	} else if cached.Expires.Sub(s.config.Now()) > margin {
		return *cached, nil
	}
	c, err := s.fetch(ctx)
	if err != nil {
		return Credentials{}, err
	}
	s.cached.Store(&c)
	return c, nil
}

// environment returns what the environment holds now. It is never cached, since a running process
// may change it.
func (s *Source) environment() Credentials {
	return Credentials{
		AccessKeyID:     s.config.Getenv("AWS_ACCESS_KEY_ID"),
		SecretAccessKey: s.config.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken:    s.config.Getenv("AWS_SESSION_TOKEN"),
	}
}

// Clear empties the cache. Every failed authentication calls it, whatever the reason.
func (s *Source) Clear() { s.cached.Store(nil) }

// sessionName returns what AWS's logs show where the environment names no session.
func sessionName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "mooring-" + hex.EncodeToString(b[:])
}
