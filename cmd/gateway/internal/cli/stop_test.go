package cli_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/cli"
)

// stopping is a gateway that ends when the test decides.
type stopping struct {
	failed  chan error
	reloads int
	stop    func(context.Context) error
}

func (s *stopping) Reload()                        { s.reloads++ }
func (s *stopping) Failed() <-chan error           { return s.failed }
func (s *stopping) Stop(ctx context.Context) error { return s.stop(ctx) }

// TestUntilStopped checks the outcome of serve: an error of the gateway and an error of stopping it
// both reach the command line, and neither hides the other.
func TestUntilStopped(t *testing.T) {
	broken, stuck := errors.New("serve grpc.address: broken"), errors.New("stuck")
	for _, row := range []struct {
		name          string
		failure, stop error
		want          []string
		log           string
	}{
		{"signal", nil, nil, nil, "msg=stopped"},
		{"signal, then an error", nil, stuck, []string{"stop: stuck"}, "signal=terminated drain_timeout=1m"},
		{"failure", broken, nil, []string{broken.Error()}, "level=ERROR msg=stopping"},
		{"failure, then an error", broken, stuck, []string{broken.Error(), "stop: stuck"}, "level=ERROR"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, hangups := make(chan os.Signal, 1), make(chan os.Signal)
				var left time.Duration
				g := &stopping{failed: make(chan error, 1), stop: func(ctx context.Context) error {
					deadline, _ := ctx.Deadline()
					left = time.Until(deadline)
					return row.stop
				}}
				go func() {
					hangups <- syscall.SIGHUP
					hangups <- syscall.SIGHUP
					if row.failure != nil {
						g.failed <- row.failure
					} else {
						signals <- syscall.SIGTERM
					}
				}()
				var log bytes.Buffer
				logger := slog.New(slog.NewTextHandler(&log, nil))
				exit := func(code int) { t.Errorf("exit(%d) without a second signal", code) }
				err := cli.UntilStopped(g, time.Minute, logger, exit, signals, hangups)
				var got []string
				if err != nil {
					got = strings.Split(err.Error(), "\n")
				}
				if strings.Join(got, "|") != strings.Join(row.want, "|") {
					t.Errorf("UntilStopped = %q, want %q", got, row.want)
				}
				if !strings.Contains(log.String(), row.log) {
					t.Errorf("log = %q, want %q", &log, row.log)
				}
				if said := strings.Contains(log.String(),
					"msg=stopped"); said != (len(row.want) == 0) {
					t.Errorf("log says that it stopped: %v; %q", said, &log)
				}
				if g.reloads != 2 {
					t.Errorf("%d reloads, want one for each of 2 hangups", g.reloads)
				}
				if left != time.Minute+8*time.Second {
					t.Errorf("Stop has %v, want the drain's minute and 8 s", left)
				}
			})
		})
	}
}

// TestUntilStoppedTwice checks that a second signal ends the process while the gateway stops.
func TestUntilStoppedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, released := make(chan os.Signal, 1), make(chan struct{})
		g := &stopping{stop: func(context.Context) error { <-released; return nil }}
		var code int
		exit := func(c int) { code = c; close(released) }
		go func() {
			signals <- syscall.SIGTERM
			synctest.Wait()
			signals <- syscall.SIGTERM
		}()
		log := slog.New(slog.DiscardHandler)
		if err := cli.UntilStopped(g, time.Hour, log, exit, signals, nil); err != nil || code != 1 {
			t.Errorf("UntilStopped = %v, exit(%d); want exit(1)", err, code)
		}
	})
}
