// Package login keeps the gateway logged in to the deployment. It holds the user for new
// connections, reads it again when its files change, and finds out whether the deployment accepts
// it: a wrong password is reported at the start, and the gateway becomes ready once the password
// is right.
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
	"github.com/mooringdb/mooring/core/mongoerr"
)

// The times of the probe: the interval while no server accepts the user, and the time limit of
// one attempt.
const (
	interval = 5 * time.Second
	patience = 5 * time.Second
)

// formerFor is how long the passwords before a new one are tried, too. In that time the new one
// gets to all replicas, and then to MongoDB.
const formerFor = 15 * time.Minute

// Login holds the user and the outcome of logins. Its methods are safe for concurrent use.
type Login struct {
	cfg   *config.Config
	log   *slog.Logger
	user  atomic.Pointer[user]
	files *watch.Watcher
	news  func() // called when Err may have changed

	poke    chan struct{} // requests a probe; capacity 1
	stop    context.CancelFunc
	running sync.WaitGroup
	bad     string // the last logged problem of the files; belongs to the watching goroutine

	// mu guards the fields below.
	mu       sync.Mutex
	outcomes map[address.Address]error // the last login on each server; nil: accepted
	// pinged says that a ping has succeeded since the last login that failed.
	pinged bool
}

// user holds what logs in, and until when its former passwords count.
type user struct {
	auth.User

	until time.Time
}

// New returns the login of a configuration. news is called without a lock when Err may have
// changed.
func New(cfg *config.Config, log *slog.Logger, news func()) *Login {
	l := &Login{
		cfg: cfg, log: log, news: news, poke: make(chan struct{}, 1), stop: func() {},
		outcomes: map[address.Address]error{},
	}
	l.user.Store(&user{User: cfg.User()})
	l.files = watch.New(cfg.UserFiles(), watch.Sum(cfg.UserTexts()...), l.changed)
	return l
}

// User returns the current user. If its password has changed lately, the user has the former ones,
// too.
func (l *Login) User() (auth.User, error) {
	u := *l.user.Load()
	if !time.Now().Before(u.until) {
		u.Former = [2]string{}
	}
	return u.User, nil
}

// use makes u the current user.
func (l *Login) use(u auth.User) {
	before, _ := l.User()
	now := user{User: u, until: l.user.Load().until}
	switch {
	case u.Name != before.Name:
	case u.Password == before.Password:
		now.Former = before.Former
	default:
		now.Former[0], now.until = before.Password, time.Now().Add(formerFor)
		// MongoDB still has the oldest if the one after it was wrong, and u corrects that.
		for _, password := range before.Former {
			if password != "" && password != u.Password {
				now.Former[1] = password
			}
		}
	}
	l.user.Store(&now)
}

// Start watches the files. It also calls ping until a server accepts the user, and again while
// none does. It does not block. It uses only the values of ctx; Close ends both.
func (l *Login) Start(ctx context.Context, ping func(context.Context) error) error {
	if !l.cfg.MongoDB.HasCredential {
		return nil
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.running.Go(func() { l.probe(ctx, ping) })
	return l.files.Start(ctx)
}

// Close stops the watching and the probe, and waits for their goroutines.
func (l *Login) Close(ctx context.Context) error {
	err := l.files.Close(ctx)
	l.stop()
	l.running.Wait()
	return err
}

// Reload reads the files now, and logs the result.
func (l *Login) Reload() { l.files.Reload() }

// Outcome says whether the user of the files is in use. It reports false if there are no files.
func (l *Login) Outcome() (watch.Outcome, bool) { return l.files.Outcome() }

// Err returns the reason that operations cannot log in, with advice. It returns nil if they can,
// or need not.
func (l *Login) Err() error {
	if !l.cfg.MongoDB.HasCredential {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pinged {
		return nil
	}
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

// Sink returns a sink for the events of logins.
func (l *Login) Sink() *event.Sink {
	if !l.cfg.MongoDB.HasCredential {
		return nil
	}
	return &event.Sink{
		ConnectionReady: func(e event.ConnectionReady) { l.learn(e.Address, nil) },
		ConnectionClosed: func(e event.ConnectionClosed) {
			failed, ok := errors.AsType[*auth.Error](e.Err)
			if ok && !mongoerr.IsCanceled(failed) { // canceled: the caller gave up
				l.learn(e.Address, failed)
			}
		},
		ServerClosed: func(e event.ServerClosed) { l.forget(e.Address) },
	}
}

// learn records the outcome of a login, and logs it if it differs from the previous one.
func (l *Login) learn(addr address.Address, failed *auth.Error) {
	l.mu.Lock()
	before, known := l.outcomes[addr]
	var now error
	lost := failed != nil && l.pinged
	if failed != nil {
		now, l.pinged = &Error{failed}, false
	}
	l.outcomes[addr] = now
	l.mu.Unlock()
	if known && text(before) == text(now) && !lost {
		return
	}
	switch {
	case now != nil:
		l.log.Warn("cannot log in to MongoDB", "server", addr.String(), "err", failed, "advice",
			failed.Advice())
	case known:
		l.log.Info("logged in to MongoDB", "server", addr.String())
	}
	l.news()
}

// accepted records that a ping has succeeded, perhaps on a connection from before the failure.
func (l *Login) accepted() {
	if l.Err() == nil { // the ping made a connection
		return
	}
	l.mu.Lock()
	l.pinged = true
	l.mu.Unlock()
	l.log.Info("operations can log in to MongoDB again")
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

// Error reports a login that failed, with advice.
type Error struct{ Err *auth.Error }

func (e *Error) Error() string {
	return fmt.Sprintf("cannot log in to MongoDB: %v. %s", e.Err, e.Err.Advice())
}

// Unwrap returns the error of the driver.
func (e *Error) Unwrap() error { return e.Err }

// changed uses the user that the files define now, and reports whether they define one.
func (l *Login) changed(texts []string, err error, asked bool) (used bool) {
	var now auth.User
	if err == nil {
		now, err = l.cfg.ReadUser(texts)
	}
	switch {
	case err == nil:
		l.bad = ""
		l.use(now)
		l.log.Info("the MongoDB user was read", "files", l.cfg.UserFiles())
		l.wake()
	case err.Error() != l.bad || asked:
		l.bad = err.Error()
		l.log.Error("the MongoDB user cannot be read: keeping the old one", "files",
			l.cfg.UserFiles(), "err", err)
	}
	return err == nil
}

func (l *Login) wake() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// probe pings the deployment while no server accepts the user. The sink gets the outcome.
func (l *Login) probe(ctx context.Context, ping func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if l.Err() != nil {
			asking, cancel := context.WithTimeout(ctx, patience)
			if ping(asking) == nil { // the sink gets the details of an error
				l.accepted()
			}
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
