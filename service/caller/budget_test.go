package caller_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mooringdb/mooring/internal/issuertest"
	"github.com/mooringdb/mooring/service/caller"
)

// TestNeighbours checks that new tokens and API keys count, whatever comes from the same address:
// tokens that are malformed, of unknown keys, for others, or forged with a known key.
func TestNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		address := netip.MustParseAddr("192.0.2.1")
		try := func(text string) string {
			p := bearer(text)
			p.Address = address
			return outcome(w.Authenticate(t.Context(), p))
		}
		if got := try(w.Token(t, "known")); got != "jwt:known" {
			t.Fatalf("before: %s", got)
		}
		unknown, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		for name, bad := range map[string]string{
			"malformed":      "a.b.c",
			"an unknown key": issuertest.Sign(t, jose.JSONWebKey{Key: unknown, KeyID: "none"}, jose.ES256, w.Claims("eve")),
			"for others":     w.token(map[string]any{"aud": "other"}),
			"forged":         w.Forge(t, "eve"),
		} {
			told := false
			for range 300 {
				told = strings.HasPrefix(try(bad), "too many") || told
			}
			if !told {
				t.Errorf("%s: the stranger is not told to wait", name)
			}
			refused := 0
			for i := range 40 {
				for range 20 { // a thousand a second
					try(bad)
					time.Sleep(time.Millisecond) //nolint:forbidigo // fake time
				}
				if got, want := try(w.Token(t, fmt.Sprint(name, i))),
					fmt.Sprint("jwt:", name, i); got != want {
					refused++
				}
			}
			if refused > 0 {
				t.Errorf("%s: %d of 40 new tokens are refused", name, refused)
			}
		}
		if n := w.Fetches(); n > 3 {
			t.Errorf("%d fetches in 4 seconds", n)
		}
	})
}

// TestBudget checks that a flood of forged tokens from many goroutines is refused without a
// verification beyond the budget, and that it delays others only: a principal of whom a token was
// verified not at all, one of another address by the queue that the flood may fill.
func TestBudget(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		stranger, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		try := func(from netip.Addr, text string) string {
			p := bearer(text)
			p.Address = from
			return outcome(w.Authenticate(t.Context(), p))
		}
		if got := try(other, w.Token(t, "ann")); got != "jwt:ann" {
			t.Fatalf("before: %s", got)
		}
		forged := w.Forge(t, "eve")
		for range 100 {
			try(stranger, forged)
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // fake time: the lane is idle
		for range 100 {
			try(stranger, "a.b.c") // overdrawn again
		}
		var flood sync.WaitGroup
		var waited atomic.Int64
		const attempts = 5000
		for range attempts {
			flood.Go(func() {
				begun := time.Now()
				try(stranger, forged)
				if time.Since(begun) > 0 {
					waited.Add(1)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		if got := try(stranger, w.Token(t, "ann")); got != "jwt:ann" || time.Since(begun) != 0 {
			t.Errorf("a known principal at the same address: %s after %s", got, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		p := bearer(w.Token(t, "carl"))
		if _, err := w.Authenticate(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call with a deadline: %v", err)
		}
		if got := try(other, w.Token(t, "bob")); got != "jwt:bob" ||
			time.Since(begun) > 300*time.Millisecond {
			t.Errorf("a new principal elsewhere: %s after %s", got, time.Since(begun))
		}
		flood.Wait()
		// Each costs 100 µs, of a quarter of two processors, and the flood may queue for 250 ms.
		if n := waited.Load(); n != 1250 {
			t.Errorf("%d of %d forged tokens wait for a verification, want 1250", n, attempts)
		}
	})
}

// TestBusy checks that a new token is refused as one too many while those of other addresses fill
// the queue, and that it is verified at once after the second that its client is told to wait.
func TestBusy(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		home := netip.MustParseAddr("192.0.2.1")
		try := func(text string) string {
			p := bearer(text)
			p.Address = home
			return outcome(w.Authenticate(t.Context(), p))
		}
		forged := w.Forge(t, "eve")
		for range 99 { // one more failure would be allowed
			if got := try("a.b.c"); !strings.HasPrefix(got, "invalid") {
				t.Fatalf("before: %s", got)
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		for i := range 3000 { // 2,750 fill the queue
			p := bearer(forged)
			p.Address = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			flood.Go(func() { _, _ = w.Authenticate(ctx, p) })
		}
		synctest.Wait()
		if got := try(w.Token(t, "ann")); !strings.HasPrefix(got, "busy") {
			t.Errorf("a new token: %s, want busy", got)
		}
		leave()
		flood.Wait()
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		begun := time.Now()
		if got := try(w.Token(t, "ann")); got != "jwt:ann" || time.Since(begun) > time.Millisecond {
			t.Errorf("after a second: %s after %s", got, time.Since(begun))
		}
	})
}

// TestReserve checks the queue of a lane with one processor, where 1 ms costs 4.
func TestReserve(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const ms = time.Millisecond
	var l caller.Lane
	for i, row := range []struct {
		at, cost, most, wait time.Duration
		processors           int
		ok                   bool
	}{
		{0, 20 * ms, time.Second, 0, 1, true},            // of the 100 ms saved up: 80 are used
		{0, 5 * ms, time.Second, 0, 1, true},             // all are used
		{0, 10 * ms, time.Second, 0, 1, true},            // begins now, and is over the share until 40
		{0, 1 * ms, 39 * ms, 0, 1, false},                // would wait 40 ms
		{0, 1 * ms, 40 * ms, 40 * ms, 1, true},           // until 44
		{10 * ms, 2 * ms, time.Second, 34 * ms, 2, true}, // two processors: until 48
		{48 * ms, 0, 0, 0, 1, true},
		{time.Hour, 30 * ms, time.Second, 0, 1, true}, // no more than 100 ms are saved up
		{time.Hour, 1 * ms, 19 * ms, 0, 1, false},
		{time.Hour, 1 * ms, 20 * ms, 20 * ms, 1, true},
	} {
		var wait time.Duration
		var ok bool
		l, wait, ok = l.Reserve(start.Add(row.at), row.cost, row.processors, row.most)
		if wait != row.wait || ok != row.ok {
			t.Errorf("row %d: waits %s, %t, want %s, %t", i, wait, ok, row.wait, row.ok)
		}
	}
}

// TestCost checks that keys that are slow to verify with cost more, and each that is tried.
func TestCost(t *testing.T) {
	keys := map[string]any{"Ed25519": ed25519.PublicKey{}}
	for name, curve := range map[string]elliptic.Curve{
		"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521(),
	} {
		keys[name] = &ecdsa.PublicKey{Curve: curve}
	}
	for name, bits := range map[string]uint{"RSA 2048": 2048, "RSA 4096": 4096} {
		keys[name] = &rsa.PublicKey{N: new(big.Int).SetBit(new(big.Int), int(bits-1), 1)}
	}
	for name, want := range map[string]time.Duration{
		"Ed25519": 100, "P-256": 100, "P-384": 1000, "P-521": 2000, "RSA 2048": 50, "RSA 4096": 200,
	} {
		one := jose.JSONWebKey{Key: keys[name]}
		if got := caller.CostOf([]jose.JSONWebKey{one, one}); got != 2*want*time.Microsecond {
			t.Errorf("two keys of %s cost %s, want %s", name, got, 2*want*time.Microsecond)
		}
	}
}

// TestKnownToken checks that a token that was verified counts while its address fails, also when
// the keys are fetched again and are the same.
func TestKnownToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		known := w.Token(t, "ann")
		w.expect("first", known, "jwt:ann")
		time.Sleep(10 * time.Minute) //nolint:forbidigo // fake time
		w.expect("after ten minutes", known, "jwt:ann")
		synctest.Wait()
		w.wantFetches(2)
		w.expect("with the same keys", known, "jwt:ann")
	})
}
