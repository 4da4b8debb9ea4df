package ocsp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	xocsp "golang.org/x/crypto/ocsp"

	"github.com/mooringdb/mooring/core/conn/ocsp"
	"github.com/mooringdb/mooring/internal/certtest"
)

const responderURL = "http://responder.example/ocsp"

// roundTrip is the transport of a test.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// mustNotAsk returns the transport of a Checker that has no reason to ask.
func mustNotAsk(t *testing.T) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		t.Errorf("a responder is asked: %s", req.URL)
		return nil, errors.New("not here")
	})
}

// hang answers nothing until the request is canceled.
func hang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func wantRevoked(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*ocsp.RevokedError](err); !ok {
		t.Errorf("Check() = %v, want a *RevokedError", err)
	}
}

func wantAccepted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
}

func TestCheckReadsTheStaple(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	server := ca.Issue(t, "server", certtest.Responders(responderURL), certtest.MustStaple)
	c := ocsp.New(ocsp.Config{Transport: mustNotAsk(t)})
	wantAccepted(t, c.Check(t.Context(), server.Chain(), server.Respond(t, ca, xocsp.Response{})))

	err := c.Check(t.Context(), server.Chain(), nil)
	if _, ok := errors.AsType[*ocsp.StapleError](err); !ok ||
		!strings.Contains(err.Error(), "must-staple") {
		t.Errorf("Check() without a staple = %v, want a *StapleError about must-staple", err)
	}
	err = c.Check(t.Context(), server.Chain(), []byte("garbage"))
	if _, ok := errors.AsType[*ocsp.StapleError](err); !ok ||
		!strings.Contains(err.Error(), "invalid") {
		t.Errorf("Check() with garbage = %v, want a *StapleError about an invalid staple", err)
	}
	revoked := xocsp.Response{Status: xocsp.Revoked, RevocationReason: xocsp.KeyCompromise}
	err = c.Check(t.Context(), server.Chain(), server.Respond(t, ca, revoked))
	wantRevoked(t, err)
	for _, part := range []string{"CN=server", "revoked at 2", "key compromised"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Check() = %q, want %q in it", err, part)
		}
	}
}

func TestCheckAcceptsTrustAnchors(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	c := ocsp.New(ocsp.Config{Transport: mustNotAsk(t)})
	wantAccepted(t, c.Check(t.Context(), ca.Chain(), []byte("garbage")))
}

func TestCheckAsksResponders(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	long := responderURL + "/" + strings.Repeat("x", 200)
	for _, tt := range []struct {
		name    string
		url     string
		r       *certtest.Responder
		methods []string
		revoked bool
	}{
		{"good", responderURL, &certtest.Responder{}, []string{"GET"}, false},
		{"URL ends in a slash", responderURL + "/", &certtest.Responder{}, []string{"GET"}, false},
		{"revoked", responderURL, &certtest.Responder{Response: xocsp.Response{Status: xocsp.Revoked}}, []string{"GET"}, true},
		{"delegate", responderURL, &certtest.Responder{
			Signer: ca.Delegate(t), Response: xocsp.Response{Status: xocsp.Revoked},
		}, []string{"GET"}, true},
		{"only POST", responderURL, &certtest.Responder{
			NoGet: true, Response: xocsp.Response{Status: xocsp.Revoked},
		}, []string{"GET", "POST"}, true},
		{"too long for GET", long, &certtest.Responder{Response: xocsp.Response{Status: xocsp.Revoked}}, []string{"POST"}, true},
		{"answer by somebody who may not", responderURL, &certtest.Responder{
			Signer: ca.Issue(t, "other"), Response: xocsp.Response{Status: xocsp.Revoked},
		}, []string{"GET"}, false},
		{"answer has expired", responderURL, &certtest.Responder{Response: xocsp.Response{
			Status: xocsp.Revoked, ThisUpdate: time.Now().Add(-2 * time.Hour),
			NextUpdate: time.Now().Add(-time.Hour),
		}}, []string{"GET"}, false},
		{"no HTTP", "ldap://responder.example/", &certtest.Responder{}, nil, false},
		{"no URL", "http://%zz/", &certtest.Responder{}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.r.Authority = ca
			server := ca.Issue(t, "server", certtest.Responders(tt.url))
			err := ocsp.New(ocsp.Config{Transport: tt.r}).Check(t.Context(), server.Chain(), nil)
			if tt.revoked {
				wantRevoked(t, err)
			} else {
				wantAccepted(t, err)
			}
			if got := tt.r.Methods(); !slices.Equal(got, tt.methods) {
				t.Errorf("the responder saw %v, want %v", got, tt.methods)
			}
		})
	}
}

func TestDisableEndpointCheck(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	server := ca.Issue(t, "server", certtest.Responders(responderURL))
	c := ocsp.New(ocsp.Config{DisableEndpointCheck: true, Transport: mustNotAsk(t)})
	wantAccepted(t, c.Check(t.Context(), server.Chain(), nil))
	wantRevoked(t,
		c.Check(t.Context(), server.Chain(),
			server.Respond(t, ca, xocsp.Response{Status: xocsp.Revoked})))
	wantRevoked(t, c.Check(t.Context(), server.Chain(), nil)) // the cache is still used
}

func TestIntermediatesAreNotAskedAbout(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	between := ca.Intermediate(t, certtest.Responders("http://responder.example/intermediate"))
	server := between.Issue(t, "server")
	c := ocsp.New(ocsp.Config{Transport: mustNotAsk(t)})
	wantAccepted(t, c.Check(t.Context(), server.Chain(), nil))
	wantAccepted(t,
		c.Check(t.Context(), server.Chain(),
			server.Respond(t, between.Delegate(t), xocsp.Response{})))
	if len(server.Chain()) != 3 {
		t.Errorf("the chain has %d certificates, want 3", len(server.Chain()))
	}
}

// TestIntermediateRevoked checks a staple that calls the intermediate revoked, stapled on a
// connection to another server.
func TestIntermediateRevoked(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	between := ca.Intermediate(t)
	server := between.Issue(t, "server")
	c := ocsp.New(ocsp.Config{Transport: mustNotAsk(t)})
	wantRevoked(t,
		c.Check(t.Context(), between.Chain(),
			between.Respond(t, ca, xocsp.Response{Status: xocsp.Revoked})))
	wantRevoked(t,
		c.Check(t.Context(), server.Chain(), server.Respond(t, between, xocsp.Response{})))
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ca := certtest.Authority(t, certtest.ECDSA)
		responder := &certtest.Responder{
			Authority: ca,
			Response:  xocsp.Response{ThisUpdate: start, NextUpdate: start.Add(time.Hour)},
		}
		server := ca.Issue(t, "server", certtest.Responders(responderURL))
		c := ocsp.New(ocsp.Config{Transport: responder})
		asked := func(want int) {
			t.Helper()
			if got := len(responder.Methods()); got != want {
				t.Errorf("after %v the responder was asked %d times, want %d", time.Since(start),
					got, want)
			}
		}
		wantAccepted(t, c.Check(t.Context(), server.Chain(), nil))
		asked(1)
		time.Sleep(time.Hour - time.Nanosecond) //nolint:forbidigo // fake time
		wantAccepted(t, c.Check(t.Context(), server.Chain(), nil))
		asked(1)
		time.Sleep(time.Nanosecond) //nolint:forbidigo // fake time
		responder.Response = xocsp.Response{
			Status: xocsp.Revoked, ThisUpdate: start.Add(time.Hour),
			NextUpdate: start.Add(3 * time.Hour),
		}
		wantRevoked(t, c.Check(t.Context(), server.Chain(), nil))
		wantRevoked(t, c.Check(t.Context(), server.Chain(), nil))
		asked(2)

		// An older response that is still valid does not replace the kept one; a newer one does.
		older := xocsp.Response{ThisUpdate: start, NextUpdate: start.Add(2 * time.Hour)}
		wantRevoked(t, c.Check(t.Context(), server.Chain(), server.Respond(t, ca, older)))
		newer := xocsp.Response{
			ThisUpdate: start.Add(time.Hour), NextUpdate: start.Add(4 * time.Hour),
		}
		wantAccepted(t, c.Check(t.Context(), server.Chain(), server.Respond(t, ca, newer)))
		wantAccepted(t, c.Check(t.Context(), server.Chain(), nil))
		asked(2)
	})
}

func TestWhatIsNotKept(t *testing.T) {
	for name, r := range map[string]xocsp.Response{
		"unknown":       {Status: xocsp.Unknown},
		"no nextUpdate": {Status: xocsp.Good, ThisUpdate: time.Now().Add(-time.Minute)},
	} {
		ca := certtest.Authority(t, certtest.ECDSA)
		responder := &certtest.Responder{Authority: ca, Response: r}
		server := ca.Issue(t, "server", certtest.Responders(responderURL))
		c := ocsp.New(ocsp.Config{Transport: responder})
		for range 3 {
			wantAccepted(t, c.Check(t.Context(), server.Chain(), nil))
		}
		if got := len(responder.Methods()); got != 3 {
			t.Errorf("%s: the responder was asked %d times, want 3", name, got)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	c := ocsp.New(ocsp.Config{CacheSize: 2, DisableEndpointCheck: true})
	now := time.Now()
	servers := make([]*certtest.Pair, 3)
	for i := range servers {
		servers[i] = ca.Issue(t, "server")
		wantRevoked(t,
			c.Check(t.Context(), servers[i].Chain(), servers[i].Respond(t, ca, xocsp.Response{
				Status: xocsp.Revoked, ThisUpdate: now.Add(-time.Hour),
				NextUpdate: now.Add(time.Duration(i+1) * time.Hour),
			})))
	}
	wantAccepted(t, c.Check(t.Context(), servers[0].Chain(), nil)) // it would have expired first
	wantRevoked(t, c.Check(t.Context(), servers[1].Chain(), nil))
	wantRevoked(t, c.Check(t.Context(), servers[2].Chain(), nil))
}

func TestRespondersAreAskedInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := certtest.Authority(t, certtest.ECDSA)
		says := func(status int) *certtest.Responder {
			return &certtest.Responder{Authority: ca, Response: xocsp.Response{Status: status}}
		}
		server := ca.Issue(t, "server", certtest.Responders(
			"http://hangs.example", "http://down.example", "http://unknown.example", "http://revoked.example"))
		var underWay atomic.Int32
		c := ocsp.New(ocsp.Config{Transport: roundTrip(func(
			req *http.Request,
		) (*http.Response, error) {
			underWay.Add(1)
			defer underWay.Add(-1)
			switch req.URL.Host {
			case "hangs.example":
				return hang(req)
			case "unknown.example":
				return says(xocsp.Unknown).RoundTrip(req)
			case "revoked.example":
				time.Sleep(time.Second) //nolint:forbidigo // fake time
				return says(xocsp.Revoked).RoundTrip(req)
			default:
				return nil, errors.New("connection refused")
			}
		})})
		start := time.Now()
		wantRevoked(t, c.Check(t.Context(), server.Chain(), nil))
		if took := time.Since(start); took != time.Second {
			t.Errorf("Check() took %v, want 1s: as long as the first conclusive answer", took)
		}
		if n := underWay.Load(); n != 0 {
			t.Errorf("%d requests are still under way", n)
		}
	})
}

// TestTimeout checks that responders that do not answer leave the connection time to go on.
func TestTimeout(t *testing.T) {
	for _, tt := range []struct {
		name     string
		timeout  time.Duration
		deadline time.Duration
		want     time.Duration
	}{
		{"default", 0, time.Minute, 5 * time.Second},
		{"its own", time.Second, time.Minute, time.Second},
		{"half of the context's", 0, 3 * time.Second, 1500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := certtest.Authority(t, certtest.ECDSA)
				server := ca.Issue(t, "server", certtest.Responders(responderURL))
				c := ocsp.New(ocsp.Config{Timeout: tt.timeout, Transport: roundTrip(hang)})
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				start := time.Now()
				wantAccepted(t, c.Check(ctx, server.Chain(), nil))
				if took := time.Since(start); took != tt.want {
					t.Errorf("Check() took %v, want %v", took, tt.want)
				}
			})
		})
	}
}

// TestTimeoutOfOneThatWaits checks that a connection that waits for the question of another one,
// which has more time, waits no longer than if it asked itself.
func TestTimeoutOfOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := certtest.Authority(t, certtest.ECDSA)
		server := ca.Issue(t, "server", certtest.Responders(responderURL))
		c := ocsp.New(ocsp.Config{Transport: roundTrip(hang)})
		var wg sync.WaitGroup
		wg.Go(func() { wantAccepted(t, c.Check(t.Context(), server.Chain(), nil)) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		wantAccepted(t, c.Check(ctx, server.Chain(), nil))
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("Check() took %v, want 1.5s", took)
		}
		wg.Wait()
	})
}

// TestNoDialOutlivesACheck checks that a responder that cannot be reached keeps no goroutine.
func TestNoDialOutlivesACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := certtest.Authority(t, certtest.ECDSA)
		server := ca.Issue(t, "server", certtest.Responders(responderURL))
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := ocsp.New(ocsp.Config{
			Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		})
		wantAccepted(t, c.Check(t.Context(), server.Chain(), nil))
	}) // which fails if a goroutine is left
}

// TestSilence checks that responders which do not answer delay one connection in half a minute,
// not each.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := certtest.Authority(t, certtest.ECDSA)
		server := ca.Issue(t, "server", certtest.Responders(responderURL))
		var asked atomic.Int32
		c := ocsp.New(ocsp.Config{Transport: roundTrip(func(
			req *http.Request,
		) (*http.Response, error) {
			asked.Add(1)
			return hang(req)
		})})
		for range 3 {
			wantAccepted(t, c.Check(t.Context(), server.Chain(), nil))
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("the responder was asked %d times, want once", n)
		}
		time.Sleep(30 * time.Second) //nolint:forbidigo // fake time
		wantAccepted(t, c.Check(t.Context(), server.Chain(), nil))
		if n := asked.Load(); n != 2 {
			t.Errorf("after half a minute the responder was asked %d times, want twice", n)
		}
	})
}

func TestConnectionsShareAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := certtest.Authority(t, certtest.ECDSA)
		responder := &certtest.Responder{
			Authority: ca, Response: xocsp.Response{Status: xocsp.Unknown},
			Hook: func(*http.Request) { time.Sleep(time.Second) }, //nolint:forbidigo // fake time
		}
		server := ca.Issue(t, "server", certtest.Responders(responderURL))
		c := ocsp.New(ocsp.Config{Transport: responder})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { wantAccepted(t, c.Check(t.Context(), server.Chain(), nil)) })
		}
		wg.Wait()
		if n := len(responder.Methods()); n != 1 {
			t.Errorf("the responder was asked %d times, want once", n)
		}
	})
}

// TestAskerGivesUp checks that a connection which gives up does not decide for those that wait
// with it.
func TestAskerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := certtest.Authority(t, certtest.ECDSA)
		server := ca.Issue(t, "server", certtest.Responders(responderURL))
		responder := &certtest.Responder{
			Authority: ca, Response: xocsp.Response{Status: xocsp.Revoked},
		}
		var asked atomic.Int32
		c := ocsp.New(ocsp.Config{Transport: roundTrip(func(
			req *http.Request,
		) (*http.Response, error) {
			if asked.Add(1) == 1 {
				return hang(req)
			}
			return responder.RoundTrip(req)
		})})
		first, cancelFirst := context.WithCancelCause(t.Context())
		second, cancelSecond := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		var wg sync.WaitGroup
		for _, ctx := range []context.Context{first, second} {
			wg.Go(func() {
				if err := c.Check(ctx, server.Chain(), nil); !errors.Is(err, gone) {
					t.Errorf("Check() = %v, want the cause of the end", err)
				}
			})
			synctest.Wait()
		}
		wg.Go(func() { wantRevoked(t, c.Check(t.Context(), server.Chain(), nil)) })
		synctest.Wait()
		cancelSecond(gone)
		synctest.Wait()
		cancelFirst(gone)
		wg.Wait()
	})
}

// TestShortQuestion checks that a connection with hardly any time, which the server that is checked
// can leave it with, decides neither for those that wait with it nor for later ones.
func TestShortQuestion(t *testing.T) {
	const latency = 1500 * time.Millisecond
	for _, short := range [][]time.Duration{
		{20 * time.Millisecond},
		{1900 * time.Millisecond, 2100 * time.Millisecond}, // the second asks with what is left
	} {
		synctest.Test(t, func(t *testing.T) { testShortQuestion(t, latency, short) })
	}
}

func testShortQuestion(t *testing.T, latency time.Duration, short []time.Duration) {
	t.Helper()
	ca := certtest.Authority(t, certtest.ECDSA)
	server := ca.Issue(t, "server", certtest.Responders(responderURL))
	responder := &certtest.Responder{
		Authority: ca, Response: xocsp.Response{Status: xocsp.Revoked},
	}
	c := ocsp.New(ocsp.Config{Transport: roundTrip(func(
		req *http.Request,
	) (*http.Response, error) {
		select {
		case <-time.After(latency):
			return responder.RoundTrip(req)
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	})})
	var wg sync.WaitGroup
	for _, left := range append(short, 10*time.Second) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			err := c.Check(ctx, server.Chain(), nil)
			if left == 10*time.Second {
				wantRevoked(t, err)
			} else {
				wantAccepted(t, err)
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	wantRevoked(t, c.Check(t.Context(), server.Chain(), nil))
}
