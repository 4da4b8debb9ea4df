// Package ocsp finds out whether the certificate of a server was revoked, by the Online Certificate Status Protocol
// (RFC 6960), as the specification's "Suggested OCSP Behavior" has it: the response that the server stapled, then those that were
// kept, then the responders that the certificate names. It fails softly: what nobody knows about is accepted, except that a
// certificate which demands a staple (RFC 7633) must come with one.
//
// It does not verify the chain, which its caller has done; it does not read revocation lists, and never asks about
// intermediate certificates.
package ocsp

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// DefaultTimeout bounds the asking of responders, all together, where Config.Timeout is zero.
	DefaultTimeout = 5 * time.Second

	// DefaultCacheSize is how many responses are kept where Config.CacheSize is zero.
	DefaultCacheSize = 1000

	// silence is for how long responders that gave no valid answer are not asked again about the same certificate. Without
	// it a firewall that swallows packets costs every new connection the whole timeout.
	silence = 30 * time.Second
)

// Config says how a Checker works. The zero value is what the specification wants.
type Config struct {
	// DisableEndpointCheck keeps it from asking responders (tlsDisableOCSPEndpointCheck).
	DisableEndpointCheck bool

	// Timeout bounds the asking of responders; zero stands for DefaultTimeout. A deadline of the context that is
	// sooner wins.
	Timeout time.Duration

	// Transport carries the requests to responders; nil is HTTP that minds the proxies which the environment names.
	Transport http.RoundTripper

	// CacheSize is how many responses are kept; zero stands for DefaultCacheSize.
	CacheSize int
}

// Checker checks certificates, and keeps what it learned for the next connection. It is a mutex: any number of
// goroutines may use it.
type Checker struct {
	cfg    Config
	client *http.Client

	// mu guards the fields below. Nothing blocks while it is held.
	mu     sync.Mutex
	cache  cache
	asking map[certKey]*question // those under way
	silent map[certKey]time.Time // until when responders that failed are left alone
}

// New makes a Checker. It has no goroutine and needs no closing.
func New(cfg Config) *Checker {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.Transport == nil {
		// Questions are too rare for connections to be kept, and nobody would close them.
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: new(net.Dialer).DialContext, DisableKeepAlives: true,
		}
	}
	return &Checker{
		cfg: cfg, client: &http.Client{Transport: cfg.Transport},
		cache:  cache{size: cmp.Or(cfg.CacheSize, DefaultCacheSize), entries: map[certKey]Response{}},
		asking: map[certKey]*question{}, silent: map[certKey]time.Time{},
	}
}

// RevokedError is a certificate that a responder called revoked.
type RevokedError struct {
	Certificate *x509.Certificate
	Response    Response
}

func (e *RevokedError) Error() string {
	return fmt.Sprintf("certificate %q (serial number %x) was revoked at %s%s",
		e.Certificate.Subject, e.Certificate.SerialNumber, stamp(e.Response.RevokedAt), reason(e.Response.Reason))
}

// StapleError is a staple that is missing though the certificate demands it, or that is invalid.
type StapleError struct{ Err error }

func (e *StapleError) Error() string { return e.Err.Error() }

func (e *StapleError) Unwrap() error { return e.Err }

var errMissingStaple = errors.New("the server's certificate demands a stapled OCSP response (must-staple), and the server sent none")

// Check says whether a connection to a server with this verified chain, leaf first, may be used. staple is what the server
// sent, nil if nothing. The error is a *RevokedError, a *StapleError, or, if ctx ended while responders were asked, why it did. A chain
// of one is a certificate that is trusted by itself: nobody could revoke it.
func (c *Checker) Check(ctx context.Context, chain []*x509.Certificate, staple []byte) error {
	if len(chain) < 2 {
		return nil
	}
	f := c.gather(chain, staple, time.Now())
	if Decide(f.Evidence) == Ask {
		r, err := c.ask(ctx, chain[0], chain[1])
		if err != nil {
			return err
		}
		f.MayAsk, f.Responder = false, r.Status
		f.blame(chain[0], r)
	}
	switch Decide(f.Evidence) {
	case RefuseRevoked:
		return f.revoked
	case RefuseMissingStaple:
		return &StapleError{errMissingStaple}
	case RefuseInvalidStaple:
		return &StapleError{fmt.Errorf("the OCSP response that the server stapled is invalid: %w", f.invalid)}
	default:
		return nil
	}
}

// Known is what is known now of a certificate, for people: the kept response about the first of the chain, from a staple
// or a responder. The zero Response stands for nothing. It asks nobody.
func (c *Checker) Known(chain []*x509.Certificate) Response {
	if len(chain) < 2 {
		return Response{}
	}
	return c.keep(chain[0], chain[1], Response{}, time.Now())
}

// facts are evidence, and what errors tell of it.
type facts struct {
	Evidence
	invalid error         // why the staple is
	revoked *RevokedError // the first that was found
}

func (f *facts) blame(cert *x509.Certificate, r Response) {
	if r.Status == Revoked && f.revoked == nil {
		f.revoked = &RevokedError{cert, r}
	}
}

// gather reads the staple and the cache, and keeps in the cache what the staple brings.
func (c *Checker) gather(chain []*x509.Certificate, staple []byte, now time.Time) facts {
	var f facts
	f.MustStaple = MustStaple(chain[0])
	f.MayAsk = !c.cfg.DisableEndpointCheck && len(responders(chain[0])) > 0
	for i, cert := range chain[:len(chain)-1] {
		issuer := chain[i+1]
		var stapled Response
		if len(staple) > 0 {
			var err error
			stapled, err = Parse(staple, cert, issuer, now)
			if err != nil && i == 0 {
				stapled.Status, f.invalid = Invalid, err
			}
		}
		kept := c.keep(cert, issuer, stapled, now)
		f.blame(cert, stapled)
		f.blame(cert, kept)
		switch {
		case i == 0:
			f.Staple, f.Cache = stapled.Status, kept.Status
		case stapled.Status == Revoked || kept.Status == Revoked:
			f.Intermediates = Revoked
		}
	}
	return f
}

// keep offers a response to the cache and gives what the cache then has.
func (c *Checker) keep(cert, issuer *x509.Certificate, r Response, now time.Time) Response {
	key, ok := keyOf(cert, issuer)
	if !ok {
		return Response{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cache.put(key, r)
	return c.cache.get(key, now)
}

// question is one asking of the responders, which all connections to the server share that need it at the time.
type question struct {
	done   chan struct{} // closed once the fields below are set
	answer Response
	cutOff bool // the context of the one who asked ended before there was an answer
}

// ask asks the responders, unless somebody else does so already: then it waits for the same answer.
func (c *Checker) ask(ctx context.Context, cert, issuer *x509.Certificate) (Response, error) {
	key, ok := keyOf(cert, issuer)
	if !ok {
		return Response{}, nil
	}
	for {
		known, q, isNew := c.enter(key)
		switch {
		case q == nil:
			return known, nil
		case isNew:
			c.run(ctx, q, key, cert, issuer)
		}
		select {
		case <-q.done:
		case <-ctx.Done():
			return Response{}, context.Cause(ctx)
		}
		if !q.cutOff {
			return q.answer, nil
		}
		if ctx.Err() != nil {
			return Response{}, context.Cause(ctx)
		}
	}
}

// enter gives what became known meanwhile, or the question under way, or a new one that its caller has to run.
func (c *Checker) enter(key certKey) (known Response, q *question, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if r := c.cache.get(key, now); r.Status != None {
		return r, nil, false
	}
	if until, ok := c.silent[key]; ok {
		if now.Before(until) {
			return Response{}, nil, false
		}
		delete(c.silent, key)
	}
	if q, ok := c.asking[key]; ok {
		return Response{}, q, false
	}
	q = &question{done: make(chan struct{})}
	c.asking[key] = q
	return Response{}, q, true
}

func (c *Checker) run(ctx context.Context, q *question, key certKey, cert, issuer *x509.Certificate) {
	limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	r := askAll(limited, c.client, cert, issuer)

	c.mu.Lock()
	defer c.mu.Unlock()
	q.answer, q.cutOff = r, r.Status == None && ctx.Err() != nil
	close(q.done)
	delete(c.asking, key)
	c.cache.put(key, r)
	if r.Status == None && !q.cutOff {
		c.beSilentLocked(key, time.Now())
	}
}

// beSilentLocked notes that the responders failed. Nothing is noted when that is already so of very many certificates.
func (c *Checker) beSilentLocked(key certKey, now time.Time) {
	for k, until := range c.silent {
		if !now.Before(until) {
			delete(c.silent, k)
		}
	}
	if len(c.silent) < c.cache.size {
		c.silent[key] = now.Add(silence)
	}
}

var reasons = map[int]string{
	1: "key compromised", 2: "authority compromised", 3: "affiliation changed", 4: "superseded", 5: "cessation of operation",
	6: "on hold", 8: "removed from list", 9: "privilege withdrawn", 10: "attribute authority compromised",
}

// reason is RFC 5280's, in parentheses; nothing where none was given.
func reason(n int) string {
	if text, ok := reasons[n]; ok {
		return " (" + text + ")"
	}
	return ""
}
