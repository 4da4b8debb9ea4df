// Package ocsp finds out whether the certificate of a server was revoked, by the Online
// Certificate Status Protocol (RFC 6960) and the specification's "Suggested OCSP Behavior". It
// uses the response that the server stapled, then the cached ones, then asks the responders that
// the certificate names. It fails softly: a certificate of unknown status is accepted, unless it
// demands a staple (RFC 7633) and there is none.
//
// The caller has verified the chain. The package does not read revocation lists, and never asks
// about intermediate certificates.
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
	// DefaultTimeout bounds the requests to responders, all together, if Config.Timeout is zero.
	DefaultTimeout = 5 * time.Second

	// DefaultCacheSize is the number of responses that are kept if Config.CacheSize is zero.
	DefaultCacheSize = 1000

	// silence is how long failed responders are not asked again about the same certificate.
	// Without it, every new connection would wait for the whole timeout behind a firewall that
	// drops packets.
	silence = 30 * time.Second
)

// Config says how a Checker works. The zero value does what the specification asks for.
type Config struct {
	// DisableEndpointCheck keeps the Checker from asking responders
	// (tlsDisableOCSPEndpointCheck).
	DisableEndpointCheck bool

	// Timeout bounds the requests to responders; zero means DefaultTimeout. They have at most half
	// of the time until the context's deadline, so that the connection can go on without them.
	Timeout time.Duration

	// Transport sends the requests to responders. Nil means HTTP with the proxies that the
	// environment names.
	Transport http.RoundTripper

	// CacheSize is the number of responses that are kept; zero means DefaultCacheSize.
	CacheSize int
}

// Checker checks certificates, and keeps responses for later connections. A mutex guards it: its
// methods are safe for concurrent use.
type Checker struct {
	cfg    Config
	client *http.Client

	// mu guards the fields below. Nothing blocks while it is held.
	mu     sync.Mutex
	cache  cache
	asking map[certKey]*question // the questions in flight
	silent map[certKey]time.Time // until when failed responders are not asked
}

// New returns a Checker. It has no goroutine and needs no closing.
func New(cfg Config) *Checker {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.Transport == nil {
		// Requests are too rare to keep connections, which nothing would close.
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: new(net.Dialer).DialContext,
			DisableKeepAlives: true,
		}
	}
	return &Checker{
		cfg: cfg, client: &http.Client{Transport: cfg.Transport},
		cache: cache{
			size: cmp.Or(cfg.CacheSize, DefaultCacheSize), entries: map[certKey]Response{},
		},
		asking: map[certKey]*question{}, silent: map[certKey]time.Time{},
	}
}

// RevokedError reports a certificate that a responder called revoked.
type RevokedError struct {
	Certificate *x509.Certificate
	Response    Response
}

func (e *RevokedError) Error() string {
	return fmt.Sprintf("certificate %q (serial number %x) was revoked at %s%s",
		e.Certificate.Subject, e.Certificate.SerialNumber, stamp(e.Response.RevokedAt),
		reason(e.Response.Reason))
}

// StapleError reports a stapled response that is invalid, or missing although the certificate
// demands it.
type StapleError struct{ Err error }

func (e *StapleError) Error() string { return e.Err.Error() }

func (e *StapleError) Unwrap() error { return e.Err }

var errMissingStaple = errors.New("the server's certificate demands a stapled OCSP response " +
	"(must-staple), and the server sent none")

// Check decides whether a connection to a server with this verified chain, leaf first, may be
// used. staple is the response that the server sent, nil if none. It blocks while responders are
// asked. The error is a *RevokedError, a *StapleError, or, if ctx ended meanwhile, its cause. A
// chain of one is a certificate that is trusted by itself and cannot be revoked.
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
		return &StapleError{
			fmt.Errorf("the OCSP response that the server stapled is invalid: %w", f.invalid),
		}
	default:
		return nil
	}
}

// Known returns the cached response about the first certificate of the chain, from a staple or a
// responder, for display. It returns the zero Response if there is none, and asks no responder.
func (c *Checker) Known(chain []*x509.Certificate) Response {
	if len(chain) < 2 {
		return Response{}
	}
	return c.keep(chain[0], chain[1], Response{}, time.Now())
}

// facts holds the evidence and the details for errors.
type facts struct {
	Evidence
	invalid error         // why the staple is invalid
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

// keep offers a response to the cache and returns the response that the cache then has.
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

// question represents one round of requests to the responders. All connections that need the
// answer at the time share it.
type question struct {
	done   chan struct{} // closed once the fields below are set
	answer Response
	// cutOff: the asking goroutine was canceled before there was an answer, or had too little time
	// for its silence to count for others.
	cutOff bool
}

// ask asks the responders. If another goroutine is asking already, it waits for that answer.
func (c *Checker) ask(ctx context.Context, cert, issuer *x509.Certificate) (Response, error) {
	key, ok := keyOf(cert, issuer)
	if !ok {
		return Response{}, nil
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout(ctx))
	defer cancel()
	for {
		known, q, isNew := c.enter(key)
		switch {
		case q == nil:
			return known, nil
		case isNew:
			end, _ := limited.Deadline() // it may have waited for another question before
			left := time.Until(end)
			q.answer = askAll(limited, c.client, cert, issuer)
			q.cutOff = q.answer.Status == None && (ctx.Err() != nil || left < leastTimeout)
			c.leave(key, q)
		}
		select {
		case <-q.done:
		case <-limited.Done():
		}
		if q.isAnswered() {
			return q.answer, nil
		}
		if limited.Err() != nil {
			return Response{}, context.Cause(ctx) // nil if only the limit is over
		}
	}
}

// leastTimeout is how long responders must have been asked for their silence to count. The server
// that is checked can leave a connection less time than that.
const leastTimeout = time.Second

// timeout returns how long responders may take.
func (c *Checker) timeout(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(c.cfg.Timeout, time.Until(deadline)/2)
	}
	return c.cfg.Timeout
}

// isAnswered reports whether the question is over with an answer, which may be None.
func (q *question) isAnswered() bool {
	select {
	case <-q.done:
		return !q.cutOff
	default:
		return false
	}
}

// enter returns what became known meanwhile, or the question in flight, or a new one that the
// caller has to run.
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

// leave ends a question that its asker has filled in.
func (c *Checker) leave(key certKey, q *question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(q.done)
	delete(c.asking, key)
	c.cache.put(key, q.answer)
	if q.answer.Status == None && !q.cutOff {
		c.beSilentLocked(key, time.Now())
	}
}

// beSilentLocked records that the responders failed, unless very many records exist.
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
	1: "key compromised", 2: "authority compromised", 3: "affiliation changed", 4: "superseded",
	5: "cessation of operation",
	6: "on hold", 8: "removed from list", 9: "privilege withdrawn",
	10: "attribute authority compromised",
}

// reason returns the reason of RFC 5280 in parentheses, or nothing if none was given.
func reason(n int) string {
	if text, ok := reasons[n]; ok {
		return " (" + text + ")"
	}
	return ""
}
