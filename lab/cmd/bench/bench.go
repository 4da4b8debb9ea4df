package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// subject represents a process whose cost is measured.
type subject struct {
	name   string
	suffix string // of the ratios to it
	pid    int
	debug  string // http://host:port of its /debug/vars
	rest   string // http://host:port
	grpc   string // host:port
}

// bench holds the processes of one run, and what is measured on them.
type bench struct {
	rounds  int
	turn    time.Duration // how long each side works in a round
	callers []int
	sweeps  bool           // whether the cases of the plots are measured, too
	only    *regexp.Regexp // matches the names of the cases; nil: all

	self      string // this program
	processes []*proc.Process
	directory string

	// floor and thin are the contenders. guarded is ours with an API key and a policy, traced ours
	// with traces, and audited ours with an audit log. old is another build of the gateway, and has
	// no name if there is none.
	ours, floor, thin, guarded, traced, audited, old subject

	key       string // of guarded
	collector string // the URL of what gets the traces
	auditLog  string // the file of audited
}

// newProcesses returns a bench without any process yet.
func newProcesses() (b *bench, err error) {
	b = &bench{}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	b.directory, err = os.MkdirTemp("", "mooring-bench-")
	return b, err
}

// newBench starts the server and the gateways. If old is "", there is no other build.
func newBench(ctx context.Context, binary, old string) (_ *bench, err error) {
	b, err := newProcesses()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	uri, _, err := b.start(ctx, "canned")
	if err != nil {
		return nil, err
	}
	address, err := url.QueryUnescape(strings.Trim(strings.TrimPrefix(uri, "mongodb:"), "/"))
	if err != nil {
		return nil, err
	}

	plain := gateway.Config{Binary: binary, URI: uri}
	if b.ours, err = b.startGateway(ctx, "mooring", plain); err != nil {
		return nil, err
	}
	if old != "" {
		plain.Binary = old
		if b.old, err = b.startGateway(ctx, "mooring, old", plain); err != nil {
			return nil, err
		}
		b.old.suffix = "-vs-old"
	}
	if err := b.startGuarded(ctx, binary, uri); err != nil {
		return nil, err
	}
	if err := b.startTraced(ctx, binary, uri); err != nil {
		return nil, err
	}
	if err := b.startAudited(ctx, binary, uri); err != nil {
		return nil, err
	}
	if b.thin, err = b.startContender(ctx, "thin", uri); err != nil {
		return nil, err
	}
	if b.floor, err = b.startContender(ctx, "floor", address); err != nil {
		return nil, err
	}
	b.floor.suffix = "-vs-floor"
	return b, nil
}

// startGateway starts a gateway. It adds the directory and the address of the figures.
func (b *bench) startGateway(
	ctx context.Context, name string, c gateway.Config,
) (_ subject, err error) {
	if c.Directory, err = os.MkdirTemp(b.directory, ""); err != nil {
		return subject{}, err
	}
	// The load generator has one address, and its 4,000 clients may dial more connections than they
	// use.
	c.Args = append([]string{
		"--debug-address", "127.0.0.1:0", "--connections-max", "none",
		"--connections-max-per-address", "none",
	}, c.Args...)
	g, err := gateway.Start(ctx, c)
	if err != nil {
		return subject{}, err
	}
	b.processes = append(b.processes, g.Process)
	return subject{name: name, pid: g.Pid(), debug: g.Debug, rest: g.REST, grpc: g.GRPC}, nil
}

// startContender starts a contender, whose role is its name, before a server.
func (b *bench) startContender(ctx context.Context, name, server string) (subject, error) {
	line, p, err := b.start(ctx, name, server)
	if err != nil {
		return subject{}, err
	}
	var a addresses
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		return subject{}, fmt.Errorf("%s: %w", name, err)
	}
	base := "http://" + a.REST
	return subject{name: name, pid: p.Pid(), debug: base, rest: base, grpc: a.GRPC}, nil
}

// start starts this program in a role and reads the first line that it prints.
func (b *bench) start(
	ctx context.Context, role string, args ...string,
) (string, *proc.Process, error) {
	p, err := proc.Start(proc.Config{Path: b.self, Args: append([]string{role}, args...)})
	if err != nil {
		return "", nil, err
	}
	b.processes = append(b.processes, p)
	ctx, cancel := context.WithTimeout(ctx, gateway.StartTime)
	defer cancel()
	line, err := p.Line(ctx)
	return line, p, err
}

// stop ends the processes, the last that was started first.
func (b *bench) stop() {
	for i := len(b.processes) - 1; i >= 0; i-- {
		_ = b.processes[i].Stop(10 * time.Second)
	}
	_ = os.RemoveAll(b.directory)
}
