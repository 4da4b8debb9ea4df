package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/seedlist"
)

// lookingUp is a client whose Start fails with each of the errors in turn, and succeeds then. An
// error that is nil hangs until the context ends.
type lookingUp struct {
	errs     []error
	started  int
	closed   bool
	attempts []time.Duration // since begin
	begin    time.Time
}

func (c *lookingUp) Start(ctx context.Context) error {
	c.attempts = append(c.attempts, time.Since(c.begin))
	if len(c.errs) == 0 {
		c.started++
		return nil
	}
	err := c.errs[0]
	c.errs = c.errs[1:]
	if err == nil {
		<-ctx.Done()
		err = &seedlist.LookupError{Err: context.Cause(ctx)}
	}
	return err
}

func (c *lookingUp) Close(context.Context) error {
	c.closed = true
	return nil
}

// TestStarter checks that the gateway comes up without DNS and goes on trying, that a wrong
// configuration ends the start, and that stop ends the attempts.
func TestStarter(t *testing.T) {
	dns := &seedlist.LookupError{Err: errors.New("server failure")}
	wrong := errors.New("loadBalanced=true needs exactly one host")
	for name, test := range map[string]struct {
		errs     []error
		err      error // of start
		attempts []time.Duration
		started  int
		logged   string
	}{
		"at once":             {nil, nil, []time.Duration{0}, 1, ""},
		"wrong configuration": {[]error{wrong}, wrong, []time.Duration{0}, 0, ""},
		"after two failures":  {[]error{dns, dns}, nil, []time.Duration{0, 10 * time.Second, 20 * time.Second}, 1, "the MongoDB servers were looked up"},
		"records that contradict the string later": {
			[]error{dns, wrong}, nil, []time.Duration{0, 10 * time.Second, 20 * time.Second}, 1, "needs exactly one host",
		},
		"DNS hangs":           {[]error{nil}, nil, []time.Duration{0, 15 * time.Second}, 1, "retrying"},
		"DNS hangs until end": {[]error{dns, nil}, nil, []time.Duration{0, 10 * time.Second}, 0, "server failure"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				c := &lookingUp{errs: test.errs, begin: time.Now()}
				s := newStarter(nil, slog.New(slog.NewTextHandler(&log, nil)))
				s.client = c
				if err := s.start(t.Context()); !errors.Is(err, test.err) {
					t.Fatalf("start = %v, want %v", err, test.err)
				}
				time.Sleep(time.Minute) //nolint:forbidigo // fake time
				if err := s.stop(t.Context()); err != nil || !c.closed {
					t.Errorf("stop = %v, closed %v", err, c.closed)
				}
				if c.started != test.started || len(c.attempts) != len(test.attempts) {
					t.Fatalf("started %d times after %v, want %d after %v", c.started, c.attempts,
						test.started, test.attempts)
				}
				for i, at := range c.attempts {
					if at != test.attempts[i] {
						t.Errorf("attempt %d after %v, want %v", i, at, test.attempts[i])
					}
				}
				if !strings.Contains(log.String(), test.logged) {
					t.Errorf("log %q, want %q", &log, test.logged)
				}
			})
		})
	}
}
