package oidc_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/oidc"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// reauthenticationRequired is the error that asks for another token.
var reauthenticationRequired = &mongoerr.CommandError{Code: 391}

func check(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestOneStep(t *testing.T) {
	c, err := oidc.New(always("abcd1234")).Begin(t.Context(), auth.Target{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.First()
	if got := base64.StdEncoding.EncodeToString(first); err != nil ||
		got != "FwAAAAJqd3QACQAAAGFiY2QxMjM0AAA=" {
		t.Errorf("First() = %s, %v, want the specification's example", got, err)
	}
	if response, done, err := c.Next(nil); len(response) > 0 || !done || err != nil {
		t.Errorf("Next = %q, %t, %v", response, done, err)
	}
	if _, done, err := c.Next([]byte("x")); done || err == nil {
		t.Errorf("Next with a message: done %t, %v", done, err)
	}
}

// The prose tests of the specification's machine flow, on the authentication of connections
// instead of a client's finds.

func TestProse1_1CallbackIsCalledDuringAuthentication(t *testing.T) {
	s, c := newServer("good"), newClient(always("good"))
	if _, err := c.connect(t, s); err != nil || len(c.requests) != 1 {
		t.Errorf("connect: %v, %d calls", err, len(c.requests))
	}
	check(t, "saslStart", s.started(), []string{"good"})
}

func TestProse1_2CallbackIsCalledOnceForMultipleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("good")
		c := newClient(func(context.Context, oidc.Request) (oidc.Token, error) {
			time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble
			return oidc.Token{AccessToken: "good"}, nil
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 100 {
					if _, err := c.connect(t, s); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		// The first ten connections begin before there is a token; for all others hello is enough.
		if starts := len(s.started()); len(c.requests) != 1 || starts != 10 ||
			len(s.hellos) != 990 {
			t.Errorf("%d calls, %d saslStarts, %d hellos with a token, want 1, 10, 990",
				len(c.requests), starts, len(s.hellos))
		}
	})
}

func TestProse2_1ValidCallbackInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(func(ctx context.Context, _ oidc.Request) (oidc.Token, error) {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != time.Minute {
				t.Errorf("the provider has %s", time.Until(deadline))
			}
			return oidc.Token{AccessToken: "good"}, nil
		})
		if _, err := c.connect(t, newServer("good")); err != nil {
			t.Fatal(err)
		}
		if want := (oidc.Request{Username: "test_user1", Version: 1}); c.requests[0] != want {
			t.Errorf("the provider was asked with %+v, want %+v", c.requests[0], want)
		}
	})
}

func TestProse2_2And2_3CallbackReturnsMissingData(t *testing.T) {
	reason := errors.New("no identity")
	for _, tt := range []struct {
		token oidc.Token
		err   error
		want  string
	}{
		{oidc.Token{}, nil, "no access token"},
		{oidc.Token{ExpiresIn: time.Hour}, nil, "no access token"},
		{oidc.Token{AccessToken: "good", ExpiresIn: -1}, nil, "expires in -1ns"},
		{oidc.Token{AccessToken: "good"}, reason, "no identity"},
	} {
		s := newServer("good")
		c := newClient(func(context.Context, oidc.Request) (oidc.Token, error) {
			return tt.token, tt.err
		})
		_, err := c.connect(t, s)
		e, ok := errors.AsType[*auth.Error](err)
		if !ok || e.Kind != auth.KindCredential || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, %v: connect = %v, want %q", tt.token, tt.err, err, tt.want)
		}
		check(t, "saslStart", s.started(), nil)
	}
}

func TestProse3_1AuthenticationFailureWithCachedTokens(t *testing.T) {
	s, c := newServer("good"), newClient(always("good"))
	c.mechanism.Poison("invalid")
	if _, err := c.connect(t, s); err != nil || len(c.requests) != 1 {
		t.Errorf("connect: %v, %d calls", err, len(c.requests))
	}
	check(t, "hello", s.hellos, []string{"invalid"})
	check(t, "saslStart", s.started(), []string{"invalid", "good"})
}

func TestProse3_2AuthenticationFailuresWithoutCachedTokens(t *testing.T) {
	s, c := newServer("good"), newClient(always("invalid"))
	_, err := c.connect(t, s)
	if mongoerr.Code(err) != 18 || len(c.requests) != 1 || c.mechanism.HasToken() {
		t.Errorf("connect: %v, %d calls", err, len(c.requests))
	}
	check(t, "saslStart", s.started(), []string{"invalid"})
}

func TestProse3_3UnexpectedErrorCodeDoesNotClearTheCache(t *testing.T) {
	s, c := newServer("good"), newClient(always("good"))
	s.fail = []int32{20}
	if _, err := c.connect(t, s); mongoerr.Code(err) != 20 || len(c.requests) != 1 {
		t.Errorf("connect: %v, %d calls", err, len(c.requests))
	}
	if _, err := c.connect(t, s); err != nil || len(c.requests) != 1 {
		t.Errorf("connect: %v, %d calls", err, len(c.requests))
	}
	s.fail, s.unanswers = []int32{20}, true // of a cached token, too
	if _, err := c.connect(t, s); mongoerr.Code(err) != 20 || !c.mechanism.HasToken() {
		t.Errorf("connect with a cached token: %v", err)
	}
}

func TestProse4_1Reauthentication(t *testing.T) {
	s, c := newServer("first", "second"), newClient(always("first", "second"))
	state, err := c.connect(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Reauthenticate(t.Context(), s, reauthenticationRequired); err != nil ||
		len(c.requests) != 2 {
		t.Errorf("Reauthenticate: %v, %d calls", err, len(c.requests))
	}
	check(t, "saslStart", s.started(), []string{"first", "second"})
}

func TestProse4_2And4_3ReauthenticationFails(t *testing.T) {
	s, c := newServer("first"), newClient(always("first", "invalid"))
	state, err := c.connect(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Reauthenticate(t.Context(), s,
		reauthenticationRequired); mongoerr.Code(err) != 18 || len(c.requests) != 2 {
		t.Errorf("Reauthenticate: %v, %d calls", err, len(c.requests))
	}
}

// TestProse4_4NoSpeculationInReauthentication: the connection that was authenticated in hello
// sends saslStart to authenticate again.
func TestProse4_4NoSpeculationInReauthentication(t *testing.T) {
	s, c := newServer("cached", "new"), newClient(always("new"))
	c.mechanism.Poison("cached")
	state, err := c.connect(t, s)
	if err != nil || len(c.requests) != 0 {
		t.Fatalf("connect: %v, %d calls", err, len(c.requests))
	}
	check(t, "saslStart", s.started(), nil)
	if err := state.Reauthenticate(t.Context(), s, reauthenticationRequired); err != nil ||
		len(c.requests) != 1 {
		t.Errorf("Reauthenticate: %v, %d calls", err, len(c.requests))
	}
	check(t, "saslStart", s.started(), []string{"new"})
}

// TestReauthenticationOfManyConnections: one new token serves all connections whose old one the
// server refused, also if the provider returned the same text again.
func TestReauthenticationOfManyConnections(t *testing.T) {
	for _, second := range []string{"second", "first"} {
		s, c := newServer("first", "second"), newClient(always("first", second))
		var states []*auth.State
		for range 5 {
			state, err := c.connect(t, s)
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, state)
		}
		for _, state := range states {
			if err := state.Reauthenticate(t.Context(), s, reauthenticationRequired); err != nil {
				t.Error(err)
			}
		}
		if len(c.requests) != 2 {
			t.Errorf("the provider was asked %d times, want 2", len(c.requests))
		}
	}
}

// TestFailedSpeculationKeepsTheToken: only saslStart's error 18 says that a token is not valid.
func TestFailedSpeculationKeepsTheToken(t *testing.T) {
	s, c := newServer("good"), newClient(always("never"))
	c.mechanism.Poison("good")
	s.unanswers = true
	if _, err := c.connect(t, s); err != nil || len(c.requests) != 0 {
		t.Errorf("connect: %v, %d calls", err, len(c.requests))
	}
	check(t, "hello", s.hellos, []string{"good"})
	check(t, "saslStart", s.started(), []string{"good"})
}

// TestPauseBetweenCalls: a provider is called again after 100 ms at the earliest, for any caller.
func TestPauseBetweenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Duration
		start := time.Now()
		c := newClient(func(context.Context, oidc.Request) (oidc.Token, error) {
			calls = append(calls, time.Since(start))
			return oidc.Token{}, errors.New("busy")
		})
		for range 3 {
			_, _ = c.connect(t, newServer())
		}
		<-time.After(time.Second)
		_, _ = c.connect(t, newServer())
		want := []time.Duration{
			0, 100 * time.Millisecond, 200 * time.Millisecond, 1200 * time.Millisecond,
		}
		if !slices.Equal(calls, want) {
			t.Errorf("calls at %v, want %v", calls, want)
		}
	})
}

// TestOneCallAtATime: while one connection waits for the provider, others wait for its token, each
// until its own end.
func TestOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := 0
		m := oidc.New(oidc.ProviderFunc(func(
			ctx context.Context, _ oidc.Request,
		) (oidc.Token, error) {
			running++
			defer func() { running-- }()
			if running > 1 {
				t.Error("two calls at a time")
			}
			select {
			case <-time.After(3 * time.Second):
				return oidc.Token{AccessToken: "good"}, nil
			case <-ctx.Done():
				return oidc.Token{}, ctx.Err()
			}
		}))
		begin := func(patience time.Duration) error {
			ctx, cancel := context.WithTimeoutCause(t.Context(), patience,
				errors.New("out of patience"))
			defer cancel()
			_, err := m.Begin(ctx, auth.Target{})
			return err
		}
		var wg sync.WaitGroup
		for i, tt := range []struct {
			patience time.Duration
			want     string
		}{
			{time.Second, "obtain an access token: out of patience"}, // asks first
			{9 * time.Second, ""}, // asks when the first has given up
			{3 * time.Second, "wait for an access token: out of patience"}, // while that one asks
			{8 * time.Second, ""},
		} {
			wg.Go(func() {
				<-time.After(time.Duration(i)) // they begin one after the other
				if err := begin(tt.patience); tt.want == "" && err != nil ||
					tt.want != "" && fmt.Sprint(err) != tt.want {
					t.Errorf("patience of %s: %v, want %q", tt.patience, err, tt.want)
				}
			})
		}
		wg.Wait()
	})
}

// TestFailureIsShared: connections that wait for a call of the provider fail with it, so that the
// last one does not wait for as many calls as there are connections. A later one asks again.
func TestFailureIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, start := 0, time.Now()
		c := newClient(func(context.Context, oidc.Request) (oidc.Token, error) {
			calls++
			<-time.After(50 * time.Second)
			return oidc.Token{}, errors.New("busy")
		})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := c.connect(t, newServer()); err == nil ||
					!strings.Contains(err.Error(), "busy") {
					t.Errorf("connect = %v", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 50*time.Second || calls != 1 {
			t.Errorf("%d calls, %v", calls, took)
		}
		_, _ = c.connect(t, newServer())
		if calls != 2 {
			t.Errorf("%d calls after another connection", calls)
		}
	})
}

// TestProviderThatHangs: a provider that does not answer costs a minute. It has to return after
// its context has ended.
func TestProviderThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := newClient(func(ctx context.Context, _ oidc.Request) (oidc.Token, error) {
			<-ctx.Done()
			return oidc.Token{}, ctx.Err()
		})
		_, err := c.connect(t, newServer())
		if took := time.Since(start); took != time.Minute ||
			!strings.Contains(err.Error(), "did not answer in time") {
			t.Errorf("connect = %v after %s", err, took)
		}
		if _, err := c.connect(t, newServer()); err == nil {
			t.Error("no error at the second time")
		}
	})
}

// TestTokensAreNowhere: a token is in no error and no printed value, also if the server repeats it.
func TestTokensAreNowhere(t *testing.T) {
	const secret = "eyJhbGciOi.secret-token.c2ln"
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		text := fmt.Sprintf(verb,
			[]any{oidc.Token{AccessToken: secret}, &oidc.Token{AccessToken: secret}})
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("%s prints %s", verb, text)
		}
	}
	m := oidc.New(always(secret))
	a := auth.SASL("$external", nil, m)
	for _, reply := range [][]byte{
		new(builder).Int32("ok", 0).Int32("code", 18).String("errmsg", "bad token "+secret).Finish(),
		new(builder).Int32("ok", 1).Int32("conversationId", 1).Bool("done", true).Binary("payload", 0, []byte(secret)).Finish(),
		new(builder).Int32("ok", 1).Int32("conversationId", 1).Bool("done", false).Binary("payload", 0, nil).Finish(),
		new(builder).Int32("ok", 1).String("conversationId", secret).Finish(),
	} {
		state, err := a.Start(auth.Target{Address: "db:27017"})
		if err != nil {
			t.Fatal(err)
		}
		err = state.Authenticate(t.Context(), constant(reply), nil)
		if err == nil || strings.Contains(err.Error(), secret) ||
			bytes.Contains(fmt.Append(nil, errors.Unwrap(err)), []byte(secret)) {
			t.Errorf("Authenticate = %v", err)
		}
	}
}
