package login_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/login"
	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/event"
)

func load(t *testing.T, args ...string) *config.Config {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(flags, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// deployment accepts the password "right".
type deployment struct {
	login *login.Login
	sink  *event.Sink

	mu    sync.Mutex // guards the field below
	pings int
}

func (d *deployment) ping(context.Context) error {
	d.mu.Lock()
	d.pings++
	d.mu.Unlock()
	return d.connect("db:27017")
}

// connect makes a connection, as a pool does.
func (d *deployment) connect(addr address.Address) error {
	if u, _ := d.login.User(); u.Password == "right" {
		d.sink.ConnectionReady(event.ConnectionReady{Address: addr})
		return nil
	}
	err := &auth.Error{
		Address: addr, Kind: auth.KindRejected, Source: "admin", Err: errors.New("no"),
	}
	d.sink.ConnectionClosed(event.ConnectionClosed{
		Address: addr, Reason: event.ClosedError, Err: err,
	})
	return err
}

func (d *deployment) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pings
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
	synctest.Wait()
}

// buffer is a log.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "password")
		write(t, file, "s3cret\n")
		var log buffer
		changes := 0
		l := login.New(load(t, "--uri=mongodb://app@db", "--mongodb-password-file", file), slog.New(slog.NewTextHandler(&log, nil)),
			func() { changes++ })
		err := l.Err()
		if _, ok := errors.AsType[*auth.Error](err); err == nil || ok {
			t.Errorf("Err() before a login = %v, want that there was none yet", err)
		}
		d := &deployment{login: l, sink: l.Sink()}
		if err := l.Start(t.Context(), d.ping); err != nil {
			t.Fatal(err)
		}
		pass(21 * time.Second) // at once, and every five seconds
		failed, ok := errors.AsType[*auth.Error](l.Err())
		if !ok || d.asked() != 5 || !strings.Contains(l.Err().Error(), failed.Advice()) {
			t.Errorf("Err() = %v after %d pings, want the reason and the advice", l.Err(),
				d.asked())
		}
		if n := strings.Count(log.String(), "cannot log in"); n != 1 || changes != 1 {
			t.Errorf("said %d times, %d changes, want 1 each", n, changes)
		}
		write(t, file, "right\n")
		pass(11 * time.Second)
		asked := d.asked()
		if err := l.Err(); err != nil || changes != 2 {
			t.Errorf("Err() with the right password = %v, %d changes", err, changes)
		}
		pass(time.Minute)
		if d.asked() != asked {
			t.Errorf("%d pings after the login", d.asked()-asked)
		}
		// One server refuses the user, the other accepts it: operations can use the latter.
		write(t, file, "wrong\n")
		pass(11 * time.Second)
		_ = d.connect("other:27017")
		if err := l.Err(); err != nil {
			t.Errorf("Err() while a server accepts the user = %v", err)
		}
		_ = d.connect("db:27017")
		if err := l.Err(); err == nil || !strings.Contains(err.Error(), "db:27017") {
			t.Errorf("Err() = %v, want the first server's", err)
		}
		d.sink.ServerClosed(event.ServerClosed{Address: "db:27017"})
		if err := l.Err(); err == nil || !strings.Contains(err.Error(), "other:27017") {
			t.Errorf("Err() = %v, want the other server's", err)
		}
		asked = d.asked()
		pass(6 * time.Second)
		if d.asked() == asked {
			t.Error("no ping after the login was lost")
		}
		// A bad file is logged once, and the user stays.
		write(t, file, "\n")
		pass(time.Minute)
		if u, _ := l.User(); u.Password != "wrong" ||
			strings.Count(log.String(), "keeping the old one") != 1 {
			t.Errorf("User() = %v; log %s", u, log.String())
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, secret := range []string{"s3cret", "right"} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log shows %s: %s", secret, log.String())
			}
		}
	})
}

// TestFormerPassword: the password before a new one is tried for a quarter of an hour, for the same
// user only. If there is another new one in that time, the oldest is tried, too.
func TestFormerPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		name, password := filepath.Join(dir, "name"), filepath.Join(dir, "password")
		write(t, name, "app")
		write(t, password, "first")
		l := login.New(load(t, "--uri=mongodb://db", "--mongodb-username-file", name, "--mongodb-password-file", password),
			slog.New(slog.DiscardHandler), func() {})
		if err := l.Start(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		want := func(want auth.User) {
			t.Helper()
			if got, err := l.User(); got != want || err != nil {
				t.Errorf("User() = %q %q %q, %v, want %q %q %q", got.Name, got.Password, got.Former,
					err, want.Name, want.Password, want.Former)
			}
		}
		change := func(file, text string) {
			t.Helper()
			write(t, file, text)
			l.Reload()
			synctest.Wait()
		}
		want(auth.User{Name: "app", Password: "first"})
		change(password, "second")
		want(auth.User{Name: "app", Password: "second", Former: [2]string{"first"}})
		change(password, "second") // a SIGHUP without a change
		pass(15*time.Minute - time.Second)
		want(auth.User{Name: "app", Password: "second", Former: [2]string{"first"}})
		pass(time.Second)
		want(auth.User{Name: "app", Password: "second"})
		change(password, "third")
		want(auth.User{Name: "app", Password: "third", Former: [2]string{"second"}})
		// MongoDB may still have a password from before one that was corrected.
		pass(15*time.Minute - time.Second)
		change(password, "fourth")
		want(auth.User{Name: "app", Password: "fourth", Former: [2]string{"third", "second"}})
		change(password, "fifth")
		want(auth.User{Name: "app", Password: "fifth", Former: [2]string{"fourth", "second"}})
		change(password, "second")
		want(auth.User{Name: "app", Password: "second", Former: [2]string{"fifth", "fourth"}})
		pass(15 * time.Minute)
		want(auth.User{Name: "app", Password: "second"})
		change(password, "sixth")
		want(auth.User{Name: "app", Password: "sixth", Former: [2]string{"second"}})
		change(name, "other")
		want(auth.User{Name: "other", Password: "sixth"})
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestPingOnAnOldConnection: a connection that could not be authenticated again is closed, and the
// pool has others. A ping that succeeds on one of those ends the failure, since no new connection
// has to be made.
func TestPingOnAnOldConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int32
		var refuses atomic.Bool
		l := login.New(load(t, "--uri=mongodb://app:right@db"), slog.New(slog.DiscardHandler), func() { changes.Add(1) })
		d := &deployment{login: l, sink: l.Sink()}
		_ = d.connect("db:27017")
		err := l.Start(t.Context(), func(context.Context) error {
			if refuses.Load() {
				return errors.New("no")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			refuses.Store(true)
			failed := &auth.Error{
				Address: "db:27017", Kind: auth.KindCredential, Err: errors.New("no token"),
			}
			d.sink.ConnectionClosed(event.ConnectionClosed{
				Address: "db:27017", Reason: event.ClosedError, Err: failed,
			})
			changes.Store(0)
			pass(11 * time.Second)
			if l.Err() == nil || changes.Load() != 0 {
				t.Errorf("Err() = %v after %d changes, want that there is no token", l.Err(),
					changes.Load())
			}
			refuses.Store(false)
			pass(6 * time.Second)
			if l.Err() != nil || changes.Load() != 1 {
				t.Errorf("Err() after a ping = %v, %d changes", l.Err(), changes.Load())
			}
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCallerThatGoesAway: a caller that gives up while its connection is authenticated again says
// nothing about the user.
func TestCallerThatGoesAway(t *testing.T) {
	l := login.New(load(t, "--uri=mongodb://app:right@db"), slog.New(slog.DiscardHandler), func() {})
	d := &deployment{login: l, sink: l.Sink()}
	_ = d.connect("db:27017")
	gone := &auth.Error{Address: "db:27017", Kind: auth.KindCredential, Err: context.Canceled}
	d.sink.ConnectionClosed(event.ConnectionClosed{
		Address: "db:27017", Reason: event.ClosedError, Err: gone,
	})
	if err := l.Err(); err != nil {
		t.Errorf("Err() = %v", err)
	}
}

func TestWithoutCredential(t *testing.T) {
	l := login.New(load(t, "--uri=mongodb://db"), slog.New(slog.DiscardHandler), func() {})
	if l.Sink() != nil || l.Err() != nil {
		t.Errorf("Sink() = %v, Err() = %v, want none", l.Sink(), l.Err())
	}
	if err := l.Start(t.Context(), func(context.Context) error {
		panic("bug: pinged")
	}); err != nil {
		t.Error(err)
	}
	l.Reload()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
