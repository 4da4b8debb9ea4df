package wire_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// fault says what happens to a command.
type fault string

const (
	lost       fault = "lost"     // the connection is closed, and the command is not run
	unanswered fault = "no reply" // it is run, and the connection is closed in place of a reply
	elected    fault = "election" // it reaches a primary that is deposed
)

var faults = []fault{lost, unanswered, elected}

// plan has the faults of one run of an operation, by the number of the command from 1.
type plan map[int]fault

func (p plan) String() string {
	var all []string
	for n := range 20 {
		if f, ok := p[n]; ok {
			all = append(all, fmt.Sprintf("%s at %d", f, n))
		}
	}
	return strings.Join(all, ", ")
}

// plainly are the operations without sessions of their own.
var plainly = []string{
	"insertOne", "insertMany", "updateOne", "updateMany", "deleteOne", "findOneAndUpdate with options",
	"find in batches", "aggregate", "countDocuments", "distinct",
}

// The plans of every operation, and those of the operations of more commands besides.
var (
	fixed        = []plan{{1: lost}, {1: unanswered}, {1: elected}, {1: unanswered, 2: unanswered}}
	transactions = []plan{
		{2: elected},
		{3: lost},
		{3: unanswered},
		{3: elected},
		{3: unanswered, 4: unanswered},
		{3: unanswered, 4: elected},
	}
	streams = []plan{{3: lost}, {3: elected}, {5: unanswered}, {7: unanswered}, {9: lost}}
)

// disturbedRun is an operation with the faults that its commands meet.
type disturbedRun struct {
	operation
	plan plan
}

// runs returns the operations that a topology has, with the fixed plans and as many drawn ones. On
// a sharded cluster they are the transactions.
func runs(topology deployment.Topology, seed uint64, drawn int) (all []disturbedRun) {
	random := rand.New(rand.NewPCG(seed, 0))
	add := func(op operation, plans []plan) {
		for range drawn {
			p := plan{}
			for range 1 + random.IntN(2) {
				p[1+random.IntN(6)] = faults[random.IntN(len(faults))]
			}
			plans = append(plans, p)
		}
		seen := map[string]bool{}
		for _, p := range plans {
			if !seen[p.String()] {
				seen[p.String()] = true
				run := disturbedRun{op, p}
				run.name += ": " + p.String()
				all = append(all, run)
			}
		}
	}
	for _, op := range slices.Concat(finds, reads, writes) {
		if topology == deployment.ReplicaSet && slices.Contains(plainly, op.name) {
			add(op, slices.Clone(fixed))
		}
	}
	for _, op := range disturbed {
		switch {
		case strings.Contains(strings.ToLower(op.name), "transaction"):
			add(op, slices.Concat(fixed, transactions))
		case topology == deployment.ReplicaSet:
			add(op, slices.Concat(fixed, streams))
		}
	}
	return all
}

// proxy stands before the hosts of a deployment: it records the commands of one run at a time, and
// lets happen to them what the run's plan says.
type proxy struct {
	on *deployment.Deployment

	// mu guards the fields below.
	mu       sync.Mutex
	plan     plan
	commands []command
	sessions []string         // the ids of sessions, in the order in which they came
	first    map[string]int64 // the first txnNumber of each
	token    int64            // the first resume token; -1: none came yet
	cursors  map[int64]bool   // that the run has been given
}

// begin has the next run begin.
func (p *proxy) begin(next plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan, p.commands, p.sessions, p.first, p.token = next, []command{}, nil, map[string]int64{},
		-1
	p.cursors = map[int64]bool{}
}

// end returns what the run has sent.
func (p *proxy) end() []command {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = nil
	return p.commands
}

// disturb has the signature of deployment.Disturbance.
func (p *proxy) disturb(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
	if slices.Contains([]string{"hello", "isMaster", "ismaster"}, cmd.Name) {
		return next(cmd)
	}
	p.mu.Lock()
	if p.isLateLocked(cmd) {
		p.mu.Unlock()
		return next(cmd)
	}
	p.commands = append(p.commands, p.describeLocked(*cmd))
	what := p.plan[len(p.commands)]
	p.mu.Unlock()
	switch what {
	case lost:
		return fakemongo.Drop()
	case unanswered:
		next(cmd)
		return fakemongo.Drop()
	case elected:
		if c := p.on.Cluster(); c.Primary() != nil {
			c.Elect(c.Host((slices.Index(c.Hosts(), c.Primary()) + 1) % len(c.Hosts())))
			return fakemongo.Error(10107, "NotWritablePrimary", "not primary", labels(cmd)...)
		}
		p.on.FailOver() // of a shard; its mongos stays
	}
	reply := next(cmd)
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, ok := reply.Document().Lookup("cursor", "id"); ok {
		n, _ := id.AsInt64()
		p.cursors[n] = true
	}
	if token, ok := reply.Document().Lookup("cursor", "postBatchResumeToken", "_data"); ok &&
		p.token < 0 {
		text, _ := token.Str()
		p.token, _ = strconv.ParseInt(text, 16, 64)
	}
	return reply
}

// isLateLocked reports whether a command is one of an earlier run: pymongo kills a cursor that its
// caller has left up to a second later, from a thread of its own.
func (p *proxy) isLateLocked(cmd *fakemongo.Command) bool {
	id, ok := cmd.Body.Lookup("cursors", "0")
	n, _ := id.AsInt64()
	return ok && cmd.Name == "killCursors" && !p.cursors[n]
}

// labels returns those that a primary that steps down gives the error of a command.
func labels(cmd *fakemongo.Command) []string {
	switch {
	case cmd.Body.Has("autocommit") && !strings.HasSuffix(cmd.Name, "Transaction"):
		return []string{"TransientTransactionError"}
	case cmd.Body.Has("txnNumber"):
		return []string{"RetryableWriteError"}
	case cmd.Name == "getMore":
		return []string{"ResumableChangeStreamError"}
	}
	return nil
}

// describeLocked returns a command with what its attempts have in common: which session of the run
// it names, and which number of that, and how many events behind the stream's start it goes on.
func (p *proxy) describeLocked(cmd fakemongo.Command) command {
	c := describe(cmd)
	if id, ok := cmd.Body.Lookup("lsid", "id"); ok {
		_, name, _ := id.Binary()
		if !slices.Contains(p.sessions, string(name)) {
			p.sessions = append(p.sessions, string(name))
		}
		c.fields["lsid.id"] = fmt.Sprintf("session %d", slices.Index(p.sessions, string(name)))
		if number, ok := cmd.Body.Lookup("txnNumber"); ok {
			n, _ := number.AsInt64()
			if _, known := p.first[string(name)]; !known {
				p.first[string(name)] = n
			}
			c.fields["txnNumber"] = fmt.Sprintf("%v %d", number.Type, n-p.first[string(name)])
		}
	}
	for path, v := range c.fields {
		if text, ok := strings.CutSuffix(path, "._data"); ok {
			delete(c.fields, path)
			n, err := strconv.ParseInt(strings.Trim(v, `"`), 16, 64)
			c.fields[text] = fmt.Sprintf("event %d", (n-p.token)/2)
			if err != nil {
				c.fields[text] = v
			}
		}
	}
	if _, ok := c.fields["maxTimeMS"]; ok && cmd.Name == "abortTransaction" {
		c.fields["maxTimeMS"] = "what is left of 5 seconds"
	}
	return c
}

// warm is an operation that succeeds.
var warm = operation{
	"", func(ctx context.Context, m mooring) error {
		_, err := m.UpdateOne(ctx, ns, d(`{}`), value(set), client.UpdateOptions{})
		return err
	},
	func(ctx context.Context, o official) error {
		_, err := o.c.UpdateOne(ctx, od(`{}`), od(set))
		return err
	},
	`c.update_one({}, {'$set': {'a': 9}})`,
}

// attempts runs all on a driver.
func attempts(
	t *testing.T, topology deployment.Topology, open func(context.Context, string) (driver, error),
	all []disturbedRun,
) recording {
	on := deployment.Listen(t, topology, "7.0.0")
	p := &proxy{on: on}
	p.begin(nil)
	on.Disturb(p.disturb)
	driver, err := open(t.Context(), on.URI(false, nil))
	if err != nil {
		t.Error(err)
		return nil
	}
	out := recording{}
	for _, run := range all {
		// It learns of the last election, and what the last run has left of its connections.
		p.begin(nil)
		if _, err := driver.run(t.Context(), warm); err != nil {
			t.Errorf("before %s: %v", run.name, err)
		}
		on.SetDocuments(database+"."+things, documents()...)
		p.begin(run.plan)
		known, err := driver.run(t.Context(), run.operation)
		if known {
			out[run.name] = p.end()
			if os.Getenv("WIRE_SEED") != "" { // else hundreds of lines hide what is wrong
				t.Logf("%s: %s: %v", run.name, names(out[run.name]), err)
			}
		}
	}
	if err := driver.close(t.Context()); err != nil {
		t.Error(err)
	}
	return out
}

// TestSameAttempts has four drivers run the same operations while commands and replies are lost
// and primaries elected, and compares all that they send: how many attempts, and each field of
// each. The second table of differences.md explains the differences, and each of its rows explains
// one, but for those of what happens sometimes, and of Node's driver where it is not installed.
// WIRE_SEED is the seed of the plans that are drawn, and has each run logged.
func TestSameAttempts(t *testing.T) {
	skipWithoutPymongo(t)
	if !suite.IsEmbedded() {
		t.Skip("MOORING_TEST_URI names a server that the scripted hosts do not need")
	}
	seed, drawn := uint64(1), 1
	if text := os.Getenv("WIRE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		drawn = 5
	}
	contenders, dir := drivers, t.TempDir()
	t.Run("node", func(t *testing.T) {
		contenders = append(slices.Clone(drivers), contender{"node", installNode(t, dir)})
	})
	plain, again := section(t, "| driver"), section(t, "## Attempts")
	rows, known := explanations(t, again), explanations(t, strings.TrimSuffix(plain, again))
	for _, topology := range []deployment.Topology{deployment.ReplicaSet, deployment.Sharded} {
		all := runs(topology, seed, drawn)
		var order []string
		for _, r := range all {
			order = append(order, r.name)
		}
		recordings := make([]recording, len(contenders))
		var running sync.WaitGroup
		for i, driver := range contenders {
			running.Go(func() { recordings[i] = attempts(t, topology, driver.open, all) })
		}
		running.Wait()
		if slices.ContainsFunc(recordings, func(r recording) bool { return r == nil }) {
			return
		}
		total := 0
		for i, driver := range contenders[1:] {
			for _, d := range compare(driver.name, order, recordings[0], recordings[i+1]) {
				total++
				if !explain(d, known) && !explain(d, rows) {
					t.Errorf("%s: not explained: %v", topology, d)
				}
			}
		}
		t.Logf("%s: %d runs, %d differences", topology, len(order), total)
	}
	for _, row := range rows {
		ran := slices.ContainsFunc(contenders, func(c contender) bool {
			return matches(row.patterns[0], c.name)
		})
		if ran && !row.used && !row.sometimes {
			t.Errorf("the row explains nothing: %v: %s", row.patterns, row.why)
		}
	}
}

// explain reports whether a row is about a difference, and marks the rows that are.
func explain(d difference, rows []*explanation) (explained bool) {
	for _, row := range rows {
		if row.explains(d) {
			row.used, explained = true, true
		}
	}
	return explained
}

// section returns differences.md from a text on.
func section(t *testing.T, from string) string {
	t.Helper()
	i := strings.Index(differences, from)
	if i < 0 {
		t.Fatalf("differences.md has no %q", from)
	}
	return differences[i:]
}
