package client_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// rateLimiter stands before a server. While it is on, it accepts all connections, as
// ingressConnectionEstablishmentRateLimiterEnabled does, but closes at once those beyond its rate.
type rateLimiter struct {
	server *fakemongo.Server
	rate   int // connections per second

	mu     sync.Mutex
	on     bool
	second time.Time
	passed int // in this second
}

func (l *rateLimiter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if l.admits() {
		return l.server.Dial(ctx, network, addr)
	}
	client, server := net.Pipe()
	_ = server.Close()
	return client, nil
}

func (l *rateLimiter) admits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now().Truncate(time.Second); now != l.second {
		l.second, l.passed = now, 0
	}
	l.passed++
	return !l.on || l.passed <= l.rate
}

func (l *rateLimiter) turn(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = on
}

// TestConnectionPoolBackpressure is the prose test of that name (Server Discovery and Monitoring):
// 100 finds at once against a rate limiter fail 10 check-outs or more, and clear no pool.
func TestConnectionPoolBackpressure(t *testing.T) {
	for name, encrypted := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := &rateLimiter{rate: 20}
				limiter.server = fakemongo.NewServer(t, fakemongo.Handlers{"find": func(
					cmd *fakemongo.Command,
				) fakemongo.Reply {
					return limiter.server.Default(cmd).After(2 * time.Second)
				}})
				options := "maxConnecting=100&directConnection=true"
				if encrypted {
					ca := certtest.Authority(t, certtest.ECDSA)
					options += "&tls=true&tlsCAFile=" +
						url.QueryEscape(certtest.File(t, "ca.pem", ca.CertificateBlock()))
					limiter.server.UseTLS(&tls.Config{
						Certificates: []tls.Certificate{ca.Issue(t, "fakemongo").TLS(nil)},
					})
				}
				var failed, cleared, unlabeled atomic.Int64
				c := startURI(t, "mongodb://fakemongo:27017/?"+options, client.Options{Dialer: limiter.Dial, Sink: &event.Sink{
					ConnectionCheckOutFailed: func(e event.ConnectionCheckOutFailed) {
						failed.Add(1)
						if !slices.Equal(mongoerr.Labels(e.Err),
							[]string{"SystemOverloadedError", "RetryableError"}) {
							unlabeled.Add(1)
						}
					},
					PoolCleared: func(event.PoolCleared) { cleared.Add(1) },
				}})
				if _, err := c.InsertOne(t.Context(), items, doc(t, `{"a": 1}`),
					client.InsertOneOptions{}); err != nil {
					t.Fatal(err)
				}
				limiter.turn(true)
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						_, _, err := c.FindOne(t.Context(), items, client.FindOptions{})
						if err != nil && !strings.Contains(err.Error(), "network error") {
							t.Errorf("FindOne() = %v", err)
						}
					})
				}
				all.Wait()
				limiter.turn(false)
				if failed.Load() < 10 || unlabeled.Load() > 0 || cleared.Load() > 0 {
					t.Errorf("%d check-outs failed, %d of them without labels, %d pools were "+
						"cleared; want 10 or more, none, and none",
						failed.Load(), unlabeled.Load(), cleared.Load())
				}
				if _, _, err := c.FindOne(t.Context(), items, client.FindOptions{}); err != nil {
					t.Errorf("FindOne() without the rate limiter = %v", err)
				}
			})
		})
	}
}
