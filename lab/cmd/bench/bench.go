package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/mooringdb/mooring/lab/internal/contender"
	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/load"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// collection is what every request reads: documents of about 500 bytes, more of them than any
// request wants.
const collection = "orders_100000"

// warmUp is how many requests each side answers before the first that counts.
const warmUp = 2000

// subject represents a process whose cost is measured, seen through one of its protocols.
type subject struct {
	name  string
	pid   int
	debug string // http://host:port of its /debug/vars
	rest  string // http://host:port with the prefix of its paths
	grpc  string
}

// bench holds the processes of one run.
type bench struct {
	rounds  int
	scale   float64
	callers int
	only    *regexp.Regexp // matches the names of the cases; nil: all

	self      string // this program
	processes []*proc.Process
	directory string

	ours, raw, maps, rpc subject
	// guarded is ours with an API key and a policy, traced ours with traces, and audited ours with
	// an audit log. old is another build of the gateway, and has no name if there is none.
	guarded, traced, audited, old subject

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

	plain := gateway.Config{Binary: binary, URI: uri}
	if b.ours, err = b.startGateway(ctx, "mooring", plain); err != nil {
		return nil, err
	}
	if old != "" {
		plain.Binary = old
		if b.old, err = b.startGateway(ctx, "mooring, old", plain); err != nil {
			return nil, err
		}
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

	line, thin, err := b.start(ctx, "contender", uri)
	if err != nil {
		return nil, err
	}
	var a addresses
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		return nil, fmt.Errorf("contender: %w", err)
	}
	base := "http://" + a.REST
	b.raw = subject{
		name: "thin, bson.Raw", pid: thin.Pid(), debug: base, rest: base + contender.RawPrefix,
	}
	b.maps = subject{
		name: "thin, bson.M", pid: thin.Pid(), debug: base, rest: base + contender.MapPrefix,
	}
	b.rpc = subject{name: "thin, grpc-go", pid: thin.Pid(), debug: base, grpc: a.GRPC}
	return b, nil
}

// startGateway starts a gateway. It adds the directory and the address of the figures.
func (b *bench) startGateway(
	ctx context.Context, name string, c gateway.Config,
) (_ subject, err error) {
	if c.Directory, err = os.MkdirTemp(b.directory, ""); err != nil {
		return subject{}, err
	}
	c.Args = append([]string{"--debug-address", "127.0.0.1:0"}, c.Args...)
	g, err := gateway.Start(ctx, c)
	if err != nil {
		return subject{}, err
	}
	b.processes = append(b.processes, g.Process)
	return subject{name: name, pid: g.Pid(), debug: g.Debug, rest: g.REST, grpc: g.GRPC}, nil
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

// scenario holds one request, and the servers that answer it.
type scenario struct {
	side     subject
	name     string
	requests int   // in a round
	limit    int64 // 0: findOne
	rest     bool
	insert   bool // insertOne over REST
	// contenders: the first is what the plain ratio compares with; the others are named in theirs.
	contenders []subject
	suffixes   []string
	key        string // the API key in all requests, also to a gateway that does not ask for it
	// added says that the side does more than the contender: what it adds is printed, too.
	added bool
}

func (b *bench) scenarios() []scenario {
	find := []scenario{
		{name: "rest-find-one", requests: 20000, rest: true},
		{name: "rest-find-100", requests: 2000, limit: 100, rest: true},
		{name: "grpc-find-one", requests: 20000},
		{name: "grpc-find-100", requests: 4000, limit: 100},
	}
	var all []scenario
	for _, s := range find {
		s.side = b.ours
		s.contenders, s.suffixes = []subject{b.rpc}, []string{""}
		if s.rest {
			s.contenders, s.suffixes = []subject{b.raw, b.maps}, []string{"", "-vs-bsonm"}
		}
		if b.old.name != "" {
			s.contenders, s.suffixes = []subject{b.old}, []string{"-vs-old"}
		}
		all = append(all, s)
	}
	all = append(all, b.guardedScenarios(find)...)
	all = append(all, b.tracedScenarios(find)...)
	all = append(all, b.auditedScenarios()...)
	return slices.DeleteFunc(all, func(s scenario) bool {
		return b.only != nil && !b.only.MatchString(s.name)
	})
}

// uses reports whether a scenario measures a gateway.
func (b *bench) uses(side subject) bool {
	return slices.ContainsFunc(b.scenarios(), func(s scenario) bool { return s.side == side })
}

// job returns the scenario's request for one side.
func (s scenario) job(to subject) load.Job {
	const id = 42
	job := load.GRPC(to.grpc, collection, id, s.limit)
	switch {
	case s.insert:
		job = load.Insert(to.rest, collection)
	case s.rest:
		job = load.REST(to.rest, collection, id, s.limit)
	}
	job.Key = s.key
	return job
}

// run measures every scenario and prints the table, then the ratios.
func (b *bench) run(ctx context.Context, w io.Writer) error {
	if err := b.verify(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w,
		"%d rounds, medians; %d callers; %s, %d processors; documents of %d bytes from a "+
			"canned-reply server\n\n",
		b.rounds, b.callers, runtime.Version(), runtime.NumCPU(), documentSize())
	fmt.Fprintf(w, "%-20s %-15s %14s %15s %15s %12s\n",
		"case", "gateway", "CPU µs/request", "(least … most)", "allocs/request", "requests/s")
	var ratios []string
	for _, s := range b.scenarios() {
		results, err := b.measure(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for i, r := range results {
			fmt.Fprintf(w, "%-20s %-15s %14.1f %15s %15.1f %12.0f\n", s.name, r.name,
				r.cpu.median(),
				fmt.Sprintf("(%.1f … %.1f)", r.cpu.least(),
					r.cpu.most()), r.allocations.median(), r.rate.median())
			if i == 0 {
				continue
			}
			ours, suffix := results[0], s.suffixes[i-1]
			ratios = append(ratios,
				fmt.Sprintf("ratio %s-cpu%s %.3f", s.name, suffix,
					ours.cpu.median()/r.cpu.median()),
				fmt.Sprintf("ratio %s-allocs%s %.3f", s.name, suffix,
					ours.allocations.median()/r.allocations.median()))
			if s.added {
				cpu := ours.cpu.minus(r.cpu)
				ratios = append(ratios, fmt.Sprintf(
					"difference %s %+.1f µs (%+.1f … %+.1f) %+.1f allocations", s.name,
					cpu.median(), cpu.least(), cpu.most(),
					ours.allocations.minus(r.allocations).median()))
			}
		}
	}
	if b.uses(b.traced) {
		if err := b.checkCollector(ctx); err != nil {
			return err
		}
	}
	if b.uses(b.audited) {
		if err := b.checkAudit(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, line := range ratios {
		fmt.Fprintln(w, line)
	}
	return nil
}
