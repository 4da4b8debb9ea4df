// Package check finds out what a connection string means: it resolves the names, connects to each
// host as the driver does, and reports their first hello and what a driver makes of it. If there
// is a credential, it logs in on each host and asks for the user there (connectionStatus). The
// result is a Report, for people (Print) and for programs (JSON). The package sends no other
// command, and keeps no connection.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/build"
	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/topology"
)

// atOnce is how many hosts are asked at the same time. A reply with more hosts only takes longer.
const atOnce = 32

// Run checks the deployment of cfg, as a client with the options sees it. It returns when ctx
// ends at the latest, with what is known then; for hosts that have not answered, the error is the
// cause of ctx.
func Run(ctx context.Context, cfg connstring.Config, opt client.Options) *Report {
	r := &Report{
		ConnectionString: cfg.String(), Credential: credential(&cfg),
		// An empty list is [] in JSON, not null.
		Hosts: []address.Address{}, Options: []Option{}, Warnings: []string{}, Servers: []Server{},
	}
	given := cfg.Settings()
	if cfg.SRV {
		r.SRV = cfg.SRVHost
		r.options(given, given)
	}
	cfg, _, err := seedlist.Resolve(ctx, nil, cfg)
	if err != nil {
		r.Error = oneLine(err.Error())
		return r
	}
	r.Hosts = cfg.Hosts
	r.Credential = credential(&cfg) // a TXT record may have named the database
	r.options(cfg.Settings(), given)

	opt.Version = build.Version()
	refused := r.refuse(cfg, opt)
	watch, err := client.TopologyConfig(&cfg, opt)
	if err == nil {
		err = r.survey(ctx, &cfg, watch)
	}
	if err == nil {
		err = cmp.Or(r.verdict(), r.loginVerdict(), refused)
	}
	if err != nil {
		r.Error = oneLine(err.Error())
	}
	return r
}

// refuse records the warnings of a client of cfg, and returns the error if the client cannot be
// made.
func (r *Report) refuse(cfg connstring.Config, opt client.Options) error {
	warnings := cfg.Warnings
	c, err := client.New(cfg, opt) // never started: there is nothing to close
	if err == nil {
		warnings = c.Warnings()
	}
	for _, w := range warnings {
		r.Warnings = append(r.Warnings, oneLine(w.String()))
	}
	if err != nil {
		r.Warnings = append(r.Warnings, oneLine(err.Error())) // Error may have a stronger reason
	}
	return err
}

// options records the settings; those that are not in given came from DNS.
func (r *Report) options(settings, given []connstring.Setting) {
	r.Options = r.Options[:0]
	for _, s := range settings {
		r.Options = append(r.Options, Option{s.Option, s.Value, !slices.Contains(given, s)})
	}
}

func credential(cfg *connstring.Config) *Credential {
	if !cfg.HasCredential {
		return nil
	}
	return &Credential{
		HasPassword: cfg.HasPassword, Mechanism: cfg.AuthMechanism,
		Database: oneLine(cfg.AuthSource),
	}
}

// survey asks the seeds, then the hosts that they name, until there are no more, and records what
// selection makes of the answers, if there are any.
func (r *Report) survey(ctx context.Context, cfg *connstring.Config, watch topology.Config) error {
	watch.Conn.LoadBalanced = cfg.LoadBalanced
	t, err := description.New(description.Settings{
		Seeds: watch.Seeds, SetName: watch.ReplicaSet, Direct: watch.DirectConnection,
		LoadBalanced:      cfg.LoadBalanced,
		HeartbeatInterval: cmp.Or(watch.HeartbeatInterval, topology.DefaultHeartbeatInterval),
	})
	if err != nil {
		return err
	}
	a := asking{
		conn: watch.Conn, auth: watch.Conn.Auth, tls: cfg.TLS, known: map[address.Address]bool{},
	}
	a.conn.Auth = nil // a server that refuses the user still answers hello
	var heard []*description.Server
	for next := a.unknown(cfg.Hosts); len(next) > 0; next = a.unknown(addresses(t.Servers)) {
		servers, described := a.all(ctx, next)
		for i, d := range described {
			servers[i].Discovered = len(heard) > 0
			t = t.Apply(d)
		}
		r.Servers = append(r.Servers, servers...)
		heard = append(heard, described...)
	}
	if !slices.ContainsFunc(heard, (*description.Server).IsAvailable) {
		return nil
	}
	rp, err := client.ReadPreference(cfg)
	if err != nil {
		return err
	}
	threshold := topology.DefaultLocalThreshold
	if watch.LocalThreshold != nil {
		threshold = *watch.LocalThreshold
	}
	r.Deployment = deployment(t, heard, rp, threshold)
	return nil
}

// asking holds what asking a host needs.
type asking struct {
	conn  conn.Config
	auth  *auth.Authenticator // nil: there is no credential
	tls   connstring.TLS
	known map[address.Address]bool // asked already
}

// unknown returns the hosts that were not asked yet, each once, and counts them as asked.
func (a *asking) unknown(hosts []address.Address) (fresh []address.Address) {
	for _, h := range hosts {
		if !a.known[h] {
			a.known[h] = true
			fresh = append(fresh, h)
		}
	}
	return fresh
}

// all asks the hosts at the same time.
func (a *asking) all(
	ctx context.Context, hosts []address.Address,
) ([]Server, []*description.Server) {
	servers, described := make([]Server, len(hosts)), make([]*description.Server, len(hosts))
	free := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, host := range hosts {
		free <- struct{}{}
		wg.Go(func() {
			servers[i], described[i] = a.one(ctx, host)
			<-free
		})
	}
	wg.Wait()
	return servers, described
}

// one asks a host.
func (a *asking) one(ctx context.Context, host address.Address) (Server, *description.Server) {
	start := time.Now()
	c, err := conn.Dial(ctx, host, a.conn)
	took := time.Since(start)
	if err != nil {
		return Server{Address: host, Error: oneLine(err.Error())}, description.Unknown(host, err)
	}
	defer func() { _ = c.Close() }()
	d := *c.Description()
	d.LastUpdateTime = time.Now()
	s := Server{
		Address: host, ConnectMS: milliseconds(took), RoundTripMS: milliseconds(d.AverageRTT),
		Hello: hello(&d), Compression: &Compression{
			Compressor: c.Compressor(), Offered: a.conn.Compressors,
		},
	}
	if state, ok := c.TLS(); ok {
		s.TLS = negotiated(state, a.tls, a.conn.Revocation)
	}
	if a.auth != nil && (a.conn.LoadBalanced || d.Kind.IsDataBearing()) {
		s.Login = a.login(ctx, host)
	}
	if a.conn.LoadBalanced {
		return s, description.LoadBalancer(host)
	}
	return s, &d
}

func addresses(servers []*description.Server) []address.Address {
	all := make([]address.Address, 0, len(servers))
	for _, s := range servers {
		all = append(all, s.Address)
	}
	return all
}

// verdict returns the reason that the deployment cannot be used, or nil.
func (r *Report) verdict() error {
	var reasons []string
	for _, s := range r.Servers {
		if s.Error == "" {
			return r.Deployment.verdict()
		}
		reason := s.Error
		if !strings.Contains(reason, string(s.Address)) {
			reason = oneLine(string(s.Address)) + ": " + reason
		}
		reasons = append(reasons, reason)
	}
	const most = 3 // the report has all of them
	if n := len(reasons); n > most {
		reasons = append(reasons[:most], fmt.Sprintf("and so on, %d in all", n))
	}
	return errors.New("no host can be reached: " + strings.Join(reasons, "; "))
}
