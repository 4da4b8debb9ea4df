package bank_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/history"
	"github.com/mooringdb/mooring/lab/internal/mischief"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

const (
	// There are count accounts, each with start at the beginning.
	count   = 100
	start   = 100
	tellers = 32
	// replicas is the number of the gateway's.
	replicas = 2
	// term is how long a primary has its role, and vacancy how long there is none then.
	term, vacancy = 3 * time.Second, 200 * time.Millisecond
	// impatience is the share of calls that a teller leaves before it has the answer.
	impatience = 0.02
	// grace is how long the tellers may take to learn what became of their last transfers.
	grace = time.Minute
	seed  = 14
)

// bank is one run of the experiment.
type bank struct {
	t          *testing.T
	deployment *deployment.Deployment
	replicas   *gatewaytest.Replicas
	tally      *tally
	tellers    []*teller
	clerks     []*clerk
	recorder   *history.Recorder // of the clerks

	time, uptime     time.Duration
	elections, kills int // on a sharded cluster, changes of shards
	dropped, refused int
	acknowledged     int // known after the audit
	ways             map[string]int
}

// open opens a bank on a scripted deployment behind two replicas of the gateway.
func open(t *testing.T, topology deployment.Topology, engine server) *bank {
	return openOn(t, suite, topology, engine)
}

// openOn opens one on the gateways of another suite, with more flags.
func openOn(
	t *testing.T, suite *gatewaytest.Suite, topology deployment.Topology,
	engine server, args ...string,
) *bank {
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	d := deployment.ListenUnrecorded(t, topology, deployment.Versions[0])
	engine(t, d)
	var docs []bson.Raw
	for i := range count {
		docs = append(docs, bson.NewBuilder(nil).Int32("_id", int32(i)).Int32("balance", start).
			Finish())
	}
	if err := d.SetCollection(database, accounts, nil, docs); err != nil {
		t.Fatal(err)
	}
	b := &bank{
		t: t, deployment: d, replicas: suite.StartReplicas(t, replicas, d.URI(true, nil), args...),
		tally: &tally{
			reasons: map[string]int{}, texts: map[string]string{}, ends: map[string]int{},
		},
		ways:   map[string]int{},
		time:   10 * time.Second,
		uptime: 3 * time.Second,
	}
	if text := os.Getenv("LAB_BANK"); text != "" {
		var err error
		if b.time, err = time.ParseDuration(text); err != nil {
			t.Fatalf("LAB_BANK: %v", err)
		}
		b.uptime = 20 * time.Second
	}
	for i := range tellers {
		b.tellers = append(b.tellers, &teller{
			id: i, tally: b.tally, replica: b.protocol(i), runs: i%4 >= 2, impatience: impatience,
		})
	}
	return b
}

// protocol returns REST for even numbers and gRPC for odd ones, each at a replica by chance.
func (b *bank) protocol(i int) func() api {
	if i%2 == 0 {
		return func() api { return overREST{b.replicas.Any().REST} }
	}
	return func() api { return overGRPC{b.replicas.Any().Conn} }
}

// run has the tellers work and the readers read until the time is over.
func (b *bank) run() {
	over, stop := context.WithTimeout(b.t.Context(), b.time)
	defer stop()
	patience, cancel := context.WithTimeout(b.t.Context(), b.time+grace)
	defer cancel()
	var working sync.WaitGroup
	for _, t := range b.tellers {
		working.Go(func() { t.work(over, patience) })
	}
	for _, c := range b.clerks {
		working.Go(func() { c.work(over, patience) })
	}
	for i := range 2 {
		working.Go(func() { b.read(over, b.protocol(i)) })
	}
	working.Wait()
}

// disturb has everything happen to the bank that may, until the function that it returns is called.
func (b *bank) disturb() (calm func()) {
	d := mischief.New(mischief.Config{
		Seed1: seed, Drops: 0.02, Overloads: 0.02, Commands: []string{
			"find", "insert", "update", "delete", "findAndModify", "commitTransaction",
			"abortTransaction",
		},
	})
	b.deployment.Disturb(d.Disturb)
	over, stop := context.WithTimeout(b.t.Context(), b.time)
	var background, kills sync.WaitGroup
	background.Go(func() {
		// The transactions of a replica that was killed, and on a sharded cluster those whose
		// connection was dropped, hold their documents for a minute. The last election, or
		// failover, ends them.
		last := b.deployment.FailOver
		if cluster := b.deployment.Cluster(); cluster.Primary() != nil {
			b.elections = mischief.Elect(over, cluster, term, vacancy)
			last = func() { cluster.Elect(cluster.Primary()) }
		} else {
			b.elections = b.changeShards(over)
		}
		d.Stop()
		kills.Wait()
		last()
	})
	kills.Go(func() {
		for ; ; b.kills++ {
			select {
			case <-time.After(b.uptime):
			case <-over.Done():
				return
			}
			b.replicas.Replace(over, b.kills%replicas, true)
		}
	})
	return func() {
		stop()
		background.Wait()
		dropped, refused := d.Counts()
		b.dropped, b.refused = dropped.Before+dropped.Between+dropped.After, refused
		b.t.Logf("%d elections, %d kills; connections dropped %+v, %d commands refused",
			b.elections, b.kills, dropped, refused)
	}
}

// changeShards has shards fail over, and the accounts move to another shard, by turns until ctx
// ends. It returns how often.
func (b *bank) changeShards(ctx context.Context) (changes int) {
	for ; ; changes++ {
		select {
		case <-time.After(term / 2):
		case <-ctx.Done():
			return changes
		}
		if changes%2 == 0 {
			b.deployment.FailOver()
		} else {
			b.deployment.MoveShard(database + "." + accounts)
		}
	}
}

// read sums the money of all accounts, by calls of one snapshot, again and again: in a transaction
// and in a snapshot session by turns.
func (b *bank) read(ctx context.Context, replica func() api) {
	for turn := 0; ctx.Err() == nil; turn++ {
		var s statement
		var session string
		var err error
		if turn%2 == 0 {
			s.transaction, err = replica().begin(ctx)
		} else {
			session, err = replica().snapshot(ctx)
		}
		var found, money int
		if err == nil {
			found, money, err = sum(ctx, replica, s, session)
		}
		if s.transaction != "" {
			_ = replica().abort(ctx, s.transaction) // it has read only
		}
		if err != nil {
			b.tally.failed(err)
			continue
		}
		b.tally.add(&b.tally.reads)
		if found != count || money != count*start {
			b.tally.add(&b.tally.wrong)
			b.t.Logf("%d accounts have %d, by transaction %q or session %q", found, money,
				s.transaction, session)
		}
	}
}

// sum returns the number of the accounts and their money. It reads two halves, each of one page or
// of several.
func sum(
	ctx context.Context, replica func() api, s statement, session string,
) (found, money int, err error) {
	number := func() statement {
		if s.transaction != "" {
			s.number++
		}
		return s
	}
	for _, half := range []string{`{"_id": {"$lt": 50}}`, `{"_id": {"$gte": 50}}`} {
		p, err := replica().find(ctx, number(), session, half)
		for ; err == nil; p, err = replica().next(ctx, number(), p) {
			found, money, session = found+p.accounts, money+p.money, p.session
			if p.cursor == "" {
				break
			}
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return found, money, nil
}

// audit compares the accounts and the ledgers with what the tellers know.
func (b *bank) audit() (wrong []string) {
	b.replicas.Stop() // a call that its client left may still run
	complain := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	balances, written := map[int]int{}, map[string]bson.Raw{}
	for i := range count {
		balances[i] = start
	}
	results := map[outcome]int{}
	for _, t := range b.tellers {
		for i, f := range t.done {
			if i%perLedger == 0 {
				for _, doc := range b.contents(f.ledger()) {
					id, _ := doc.Lookup("_id")
					name, _ := id.Str()
					written[name] = doc
				}
			}
			result := t.outcomes[i]
			results[result]++
			if result == acknowledged {
				b.ways[t.way()]++
			}
			doc, is := written[f.id()]
			if is && result == poor || !is && result == acknowledged {
				complain("transfer %s: outcome %d, in the ledger: %t", f.id(), result, is)
			}
			delete(written, f.id())
			if !is {
				continue
			}
			from, to, amount := integer(doc, "from"), integer(doc, "to"), integer(doc, "amount")
			if (transfer{f.teller, f.number, from, to, amount}) != f {
				complain("transfer %+v is %v in the ledger", f, doc)
			}
			balances[from] -= amount
			balances[to] += amount
		}
	}
	if len(written) > 0 {
		complain("%d transfers of the ledgers are unknown", len(written))
	}
	docs := b.contents(accounts)
	if len(docs) != count {
		complain("there are %d accounts", len(docs))
	}
	for _, doc := range docs {
		if id, has := integer(doc, "_id"), integer(doc, "balance"); has != balances[id] {
			complain("account %d has %d, and by the ledgers %d", id, has, balances[id])
		}
	}
	b.t.Logf("transfers: %d acknowledged, %d without the money, %d without it now; %d unfinished; "+
		"run again %d times", results[acknowledged], results[poor], results[unsure],
		results[unfinished], b.tally.again)
	b.t.Logf("unknown commits: %d committed and %d aborted by repeating Commit; %d of a Run or "+
		"Commit that cannot be repeated, of which %d are there by their document; %d "+
		"calls left by "+
		"their client", b.tally.byCommit, b.tally.byAbort, b.tally.unknown, b.tally.byLedger,
		b.tally.left)
	b.t.Logf("%d sums of a snapshot, %d of them wrong", b.tally.reads, b.tally.wrong)
	for reason, n := range b.tally.reasons {
		b.t.Logf("%d times %s: %s", n, reason, b.tally.texts[reason])
	}
	b.t.Logf("acknowledged by way: %v", b.ways)
	if results[unfinished] > 0 {
		complain("of %d transfers it is not known what became of them", results[unfinished])
	}
	for text, n := range b.tally.ends {
		complain("%d transfers could not go on: %s", n, text)
	}
	b.acknowledged = results[acknowledged]
	return wrong
}

// contents returns the documents of a collection, past the gateway.
func (b *bank) contents(name string) []bson.Raw {
	b.t.Helper()
	docs, err := b.deployment.Contents(database, name)
	if err != nil {
		b.t.Fatal(err)
	}
	return docs
}

// happened complains about what happened too seldom for the time that the bank was open. The rates
// are about a quarter of those of two processors that have other work besides.
func (b *bank) happened() (wrong []string) {
	unknown := b.tally.byCommit + b.tally.byAbort + b.tally.unknown
	for _, row := range []struct {
		what      string
		n         int
		perMinute float64
	}{
		{"transfers", b.acknowledged, 300},
		{"sums of a snapshot", b.tally.reads, 40},
		{"elections", b.elections, float64(time.Minute / (term + vacancy) / 2)},
		{"kills", b.kills, float64(time.Minute / b.uptime / 2)},
		{"dropped connections", b.dropped, 60},
		{"refused commands", b.refused, 60},
		{"calls that their client left", b.tally.left, 40},
		{"unknown commits", unknown, 3},
	} {
		if least := int(row.perMinute * b.time.Minutes()); row.n < least {
			wrong = append(wrong, fmt.Sprintf("%d %s, want %d or more", row.n, row.what, least))
		}
	}
	for _, way := range []string{"REST", "gRPC", "REST by Run", "gRPC by Run"} {
		if n := b.ways[way]; n < b.acknowledged/40 {
			wrong = append(wrong, fmt.Sprintf("%d of %d transfers by %s", n, b.acknowledged, way))
		}
	}
	return wrong
}

func integer(doc bson.Raw, name string) int {
	v, _ := doc.Lookup(name)
	n, _ := v.AsInt64()
	return int(n)
}

// TestBank has the bank on a replica set, TestShardedBank on two mongoses, TestBankOnEngine on a
// replica set with PostgreSQL and DocumentDB behind it. LAB_BANK is how long.
func TestBank(t *testing.T) { test(t, deployment.ReplicaSet, scripted, desks*perDesk) }

func TestShardedBank(t *testing.T) { test(t, deployment.Sharded, scripted, desks*perDesk) }

func TestBankOnEngine(t *testing.T) {
	test(t, deployment.ReplicaSet, docdb.Serve, desks*perDesk)
}

// server puts what serves a deployment behind it, for a test, which it may skip.
type server func(testing.TB, *deployment.Deployment)

// scripted leaves a deployment its own data.
func scripted(testing.TB, *deployment.Deployment) {}

// test moves money between accounts in transactions, by REST and gRPC through two replicas, of
// which one is killed now and then, over connections that are dropped, to primaries that are
// elected.
func test(
	t *testing.T, topology deployment.Topology, engine server, clerks int,
) {
	b := open(t, topology, engine)
	b.employ(clerks)
	calm := b.disturb()
	b.run()
	calm()
	for _, complaint := range slices.Concat(b.audit(), b.judge(), b.happened()) {
		t.Error(complaint)
	}
	if b.tally.wrong > 0 {
		t.Errorf("%d snapshots have another sum", b.tally.wrong)
	}
	for _, bug := range []string{"Internal", "InvalidArgument", "Unimplemented"} {
		if n := b.tally.reasons[bug]; n > 0 {
			t.Errorf("%d times %s: %s", n, bug, b.tally.texts[bug])
		}
	}
}

// TestControl moves money without transactions: the readers must find sums that are wrong.
func TestControl(t *testing.T) { testControl(t, scripted, 2*time.Second) }

func TestControlOnEngine(t *testing.T) {
	testControl(t, docdb.Serve, 10*time.Second)
}

func testControl(t *testing.T, engine server, spell time.Duration) {
	b := open(t, deployment.ReplicaSet, engine)
	b.time = spell
	for _, teller := range b.tellers {
		teller.careless, teller.impatience = true, 0
	}
	b.run()
	_ = b.audit()
	if b.tally.wrong == 0 {
		t.Error("all snapshots have the right sum, though the money is on its way")
	}
}

// TestControlOfStatements repeats statements that have no numbers: the audit must find money that
// was moved twice.
func TestControlOfStatements(t *testing.T) {
	b := open(t, deployment.ReplicaSet, scripted)
	b.time = 3 * time.Second
	for _, teller := range b.tellers {
		teller.runs, teller.uncounted, teller.impatience = false, true, 0.3
	}
	b.run()
	if !slices.ContainsFunc(b.audit(), func(complaint string) bool {
		t.Log(complaint)
		return strings.Contains(complaint, "by the ledgers")
	}) {
		t.Error("no statement was run twice, though many were repeated")
	}
}

// TestControlOfTheJudge has clerks work on gateways that lack a safeguard each: porcupine must find
// that no order explains what they see. On one that lacks none it must find nothing. Half of the
// commits are answered after the gateway's deadline.
func TestControlOfTheJudge(t *testing.T) { testControlOfTheJudge(t, scripted, 3*time.Second) }

// TestControlOfTheJudgeOnEngine has PostgreSQL with DocumentDB behind the gateways.
func TestControlOfTheJudgeOnEngine(t *testing.T) {
	testControlOfTheJudge(t, docdb.Serve, 10*time.Second)
}

func testControlOfTheJudge(
	t *testing.T, engine server, spell time.Duration,
) {
	const (
		timeout     = 400 * time.Millisecond
		alwaysTried = "the result of a statement is remembered"
	)
	for _, without := range []string{
		"", "the session of a key comes from the key",
		alwaysTried,
		"a Run of unknown outcome is not repeated",
	} {
		t.Run("without "+without, func(t *testing.T) {
			if os.Getenv("LAB_BANK") == "" && without != "" && without != alwaysTried {
				t.Skip("takes the time to build another gateway: make bank-control")
			}
			gateways := suite
			if without != "" {
				gateways = gatewaytest.Without(t, without)
			}
			b := openOn(t, gateways, deployment.ReplicaSet, engine, "--requests-timeout",
				timeout.String())
			b.time, b.tellers = spell, nil
			b.employ(desks * perDesk)
			b.deployment.Disturb(
				func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
					if cmd.Name == "commitTransaction" && rand.IntN(2) == 0 {
						return next(cmd).After(timeout * 3 / 2)
					}
					return next(cmd)
				})
			b.run()
			b.replicas.Stop()
			v := b.recorder.Judge(history.Contents{}, verdictTime)
			t.Log(v)
			if found := len(v.Violations) > 0; found != (without != "") {
				t.Errorf("the judge has found violations: %t", found)
			}
			if len(v.Violations) > 0 {
				t.Log(v.Violations[0])
			}
		})
	}
}
