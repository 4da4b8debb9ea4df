// Package login keeps the gateway logged in to the deployment: it holds the user that new connections log in as, reads it
// again when its files change, and finds out whether the deployment accepts it, so that a wrong password is told at the start
// and the gateway becomes ready by itself once it is right.
package login

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/event"
)

// The times of the probe: how often the deployment is asked while no server accepts the user, and how long it has.
const (
	interval = 5 * time.Second
	patience = 5 * time.Second
)

// Login is the gateway's login. Its methods may be called at any time.
type Login struct {
	cfg   *config.Config
	log   *slog.Logger
	user  atomic.Pointer[auth.User]
	files *watch.Watcher
	news  func() // is called when Err may have changed

	poke    chan struct{} // asks to probe now; capacity 1
	stop    context.CancelFunc
	running sync.WaitGroup
	bad     string // what is wrong with the files, and has been said; of the goroutine that watches

	// mu guards the field below.
	mu       sync.Mutex
	outcomes map[address.Address]error // of the last login on each server; nil: it was accepted
}

// New returns the login of a configuration. news is called without a lock when Err may have changed.
func New(cfg *config.Config, log *slog.Logger, news func()) *Login {
	l := &Login{
		cfg: cfg, log: log, news: news, poke: make(chan struct{}, 1), stop: func() {},
		outcomes: map[address.Address]error{},
	}
	user := cfg.User()
	l.user.Store(&user)
	l.files = watch.New(cfg.UserFiles(), watch.Sum(cfg.UserTexts()...), l.changed)
	return l
}

// User returns the user as the files have it now.
func (l *Login) User() (auth.User, error) { return *l.user.Load(), nil }

// Start watches the files, and asks the deployment with ping until a server accepts the user, and again whenever none does
// any more. It does not wait. ctx is for its values only; Close ends it.
func (l *Login) Start(ctx context.Context, ping func(context.Context) error) error {
	if !l.cfg.MongoDB.HasCredential {
		return nil
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.running.Go(func() { l.probe(ctx, ping) })
	return l.files.Start(ctx)
}

// Close ends it, and waits for its goroutines.
func (l *Login) Close(ctx context.Context) error {
	err := l.files.Close(ctx)
	l.stop()
	l.running.Wait()
	return err
}

// Reload reads the files now, and says in the log what it found.
func (l *Login) Reload() { l.files.Reload() }

// Err returns why operations cannot log in, with what to do about it; nil if they can, or need not.
func (l *Login) Err() error {
	if !l.cfg.MongoDB.HasCredential {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var first *address.Address
	for addr, err := range l.outcomes {
		if err == nil {
			return nil
		}
		if first == nil || addr < *first { // the same one each time
			first = &addr
		}
	}
	if first == nil {
		return errPending
	}
	return l.outcomes[*first]
}

var errPending = errors.New("the gateway has not logged in to MongoDB yet")

// Sink returns what hears of logins.
func (l *Login) Sink() *event.Sink {
	if !l.cfg.MongoDB.HasCredential {
		return nil
	}
	return &event.Sink{
		ConnectionReady: func(e event.ConnectionReady) { l.learn(e.Address, nil) },
		ConnectionClosed: func(e event.ConnectionClosed) {
			if failed, ok := errors.AsType[*auth.Error](e.Err); ok {
				l.learn(e.Address, failed)
			}
		},
		ServerClosed: func(e event.ServerClosed) { l.forget(e.Address) },
	}
}

// learn takes note of the outcome of a login, and logs it if it is another one than before.
func (l *Login) learn(addr address.Address, failed *auth.Error) {
	l.mu.Lock()
	before, known := l.outcomes[addr]
	var now error
	if failed != nil {
		now = &Error{failed}
	}
	l.outcomes[addr] = now
	l.mu.Unlock()
	if known && text(before) == text(now) {
		return
	}
	switch {
	case now != nil:
		l.log.Warn("cannot log in to MongoDB", "server", addr.String(), "err", failed, "advice", failed.Advice())
	case known:
		l.log.Info("logged in to MongoDB", "server", addr.String())
	}
	l.news()
}

func (l *Login) forget(addr address.Address) {
	l.mu.Lock()
	delete(l.outcomes, addr)
	l.mu.Unlock()
	l.news()
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Error is a login that failed, with what to do about it.
type Error struct{ Err *auth.Error }

func (e *Error) Error() string {
	return fmt.Sprintf("cannot log in to MongoDB: %v. %s", e.Err, e.Err.Advice())
}

// Unwrap returns the error of the driver.
func (e *Error) Unwrap() error { return e.Err }

// changed uses the user that the files hold now.
func (l *Login) changed(texts []string, err error, asked bool) {
	var user auth.User
	if err == nil {
		user, err = l.cfg.ReadUser(texts)
	}
	switch {
	case err == nil:
		l.bad = ""
		l.user.Store(&user)
		l.log.Info("the MongoDB user was read", "files", l.cfg.UserFiles())
		l.wake()
	case err.Error() != l.bad || asked:
		l.bad = err.Error()
		l.log.Error("the MongoDB user cannot be read: the old one stays", "files", l.cfg.UserFiles(), "err", err)
	}
}

func (l *Login) wake() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// probe asks the deployment while no server accepts the user. What comes of it, the sink hears.
func (l *Login) probe(ctx context.Context, ping func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if l.Err() != nil {
			asking, cancel := context.WithTimeout(ctx, patience)
			_ = ping(asking) // the sink hears more than the error says
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-l.poke:
		}
	}
}
