package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/build"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/login"
	"github.com/mooringdb/mooring/cmd/gateway/internal/token"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/service/admission"
)

// deployment provides the client of the MongoDB deployment.
var deployment = fx.Module("deployment", fx.Provide(newClient, newMongoTLS))

// mongoTLS holds what encrypts the connections to MongoDB, if anything does.
type mongoTLS struct {
	*conn.TLS

	sum string // watch.Sum of the files; they were read, or have changed since
}

func newMongoTLS(cfg *config.Config) (*mongoTLS, error) {
	m := &mongoTLS{}
	if !cfg.MongoDB.UseTLS() {
		return m, nil
	}
	opt := cfg.MongoDB.TLS
	var err error
	m.sum = sumOf(opt.CertificateKeyFile, opt.CAFile)
	if m.TLS, err = conn.NewTLS(opt); err != nil {
		return nil, cfg.WrongURI(err)
	}
	return m, nil
}

// sumOf returns watch.Sum of the regular files among paths: a pipe can be read only once. It leaves
// an error to what uses the files.
func sumOf(paths ...string) string {
	var texts []string
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			text, _ := watch.Read(path)
			texts = append(texts, text)
		}
	}
	return watch.Sum(texts...)
}

func newClient(
	lc fx.Lifecycle, cfg *config.Config, log *slog.Logger, sink *event.Sink, l *login.Login,
	admitted *admission.Admission, secure *mongoTLS,
) (*client.Client, error) {
	c, err := makeClient(cfg, secure, client.Options{
		Sink: sink, User: l.User, MaxPinnedShare: cfg.Cursors.MaxPinned,
		MaxRunOnShare: cfg.MaxAbandoned,
		AdmitReply:    admitted.AdmitReply,
		AdmitMessage:  admitted.AdmitMessage,
		Spare:         admitted.SpareFor,
		Turn: func(ctx context.Context) conn.Turn {
			turn := admission.From(ctx).Turn()
			return &turn
		},
		Caller: admission.CallerOf,
		// A call without a deadline must not wait forever for a connection that hangs.
		WaitLimit: admitted.Patience,
	})
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings() {
		log.Warn("connection string", "option", w.Option, "problem", w.Problem)
	}
	s := newStarter(c, log)
	lc.Append(fx.Hook{OnStart: s.start, OnStop: s.stop})
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error { return l.Start(ctx, c.Ping) },
		OnStop:  l.Close,
	})
	return c, nil
}

// makeClient returns a client that is not started. It completes the options with what follows from
// the configuration alone.
func makeClient(
	cfg *config.Config, secure *mongoTLS, opt client.Options,
) (*client.Client, error) {
	opt.Version, opt.OIDC, opt.TLS = build.Version(), token.Provider(cfg.Token), secure.TLS
	c, err := client.New(cfg.MongoDB, opt)
	if err != nil {
		return nil, cfg.WrongURI(err)
	}
	return c, nil
}

// CheckDeployment returns the warnings of the connection string, or the error with which New would
// refuse it or one of the files that it names.
func CheckDeployment(cfg *config.Config) ([]connstring.Warning, error) {
	secure, err := newMongoTLS(cfg)
	if err != nil {
		return nil, err
	}
	c, err := makeClient(cfg, secure, client.Options{})
	if err != nil {
		return nil, err
	}
	return c.Warnings(), nil // c was never started: there is nothing to close
}

const (
	// firstLookup limits how long the start of the gateway waits for DNS.
	firstLookup = 5 * time.Second
	// lookupInterval is the time between two attempts after DNS has failed at the start.
	lookupInterval = 10 * time.Second
)

// starter starts a client. If DNS fails, the gateway starts without the deployment and is not
// ready; the starter tries again on a goroutine that stop waits for.
type starter struct {
	client interface {
		Start(ctx context.Context) error
		Close(ctx context.Context) error
	}
	log *slog.Logger

	cancel context.CancelFunc // ends the goroutine
	done   chan struct{}      // closed when it has ended; nil if there is none
}

func newStarter(c *client.Client,
	log *slog.Logger,
) *starter {
	return &starter{client: c, log: log}
}

// start returns an error only if another attempt cannot succeed.
func (s *starter) start(ctx context.Context) error {
	first, cancel := context.WithTimeout(ctx, firstLookup)
	defer cancel()
	err := s.client.Start(first)
	if _, isDNS := errors.AsType[*seedlist.LookupError](err); !isDNS {
		return err
	}
	s.log.Warn("cannot look up the MongoDB servers; retrying", "err", err)
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.done = make(chan struct{})
	go s.retry(ctx)
	return nil
}

// retry runs until the client is started or ctx ends. It also tries again after records that
// contradict the connection string, since they may be corrected.
func (s *starter) retry(ctx context.Context) {
	defer close(s.done)
	timer := time.NewTimer(lookupInterval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		err := s.client.Start(ctx)
		if err == nil {
			s.log.Info("the MongoDB servers were looked up")
			return
		}
		if ctx.Err() == nil {
			s.log.Warn("cannot look up the MongoDB servers; retrying", "err", err)
		}
		timer.Reset(lookupInterval)
	}
}

func (s *starter) stop(ctx context.Context) error {
	if s.done != nil {
		s.cancel()
		<-s.done // a lookup ends with its context
	}
	return s.client.Close(ctx)
}
