package tenant

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/service/caller"
)

// sight is what a tenant may see: the documents of one tenant, or nothing.
type sight struct {
	tenant  string
	narrow  bool // only documents whose n is 0
	hidden  bool // not the secret
	nothing bool
}

// marks are in the mark and in the secret of each document, whatever protocol shows it: which of
// both it is, the tenant, n, and a name. They begin with what a search finds fast.
var marks = regexp.MustCompile(`seen:(mark|secret):([abc]):([01]):(\w+);`)

func markOf(field, tenant string, n int, name string) string {
	return fmt.Sprintf("seen:%s:%s:%d:%s;", field, tenant, n, name)
}

// allows reports whether a mark may be seen.
func (s sight) allows(mark [][]byte) bool {
	return !s.nothing && string(mark[2]) == s.tenant &&
		!(s.narrow && string(mark[3]) != "0") && !(s.hidden && string(mark[1]) == "secret")
}

// change is a change of the files, and what the tenants may see afterwards.
type change struct {
	name  string
	rules string            // empty: as before
	line  map[string]string // of the file of keys, what follows the key; without it, the first one
	gone  string            // the tenant whose key is removed
	sees  map[string]sight
}

const (
	filteredWatch = `permit (principal in Group::"key:readers", action in [Action::"read", Action::"write", Action::"watch"], ` +
		`resource in Database::"live") when { principal.claims has tenant };`
	liveRule   = ownOnly + filteredWatch
	narrowRule = `@filter("{'tenant': {'$claim': 'tenant'}, 'n': 0}") @forced("{'tenant': {'$claim': 'tenant'}, 'n': 0}") ` + filteredWatch
)

var (
	tenants   = []string{"a", "b"}
	firstLine = map[string]string{
		"a": "groups=readers claim.tenant=a", "b": "groups=readers claim.tenant=b",
	}
	firstSees = map[string]sight{"a": {tenant: "a"}, "b": {tenant: "b"}}
	noneSees  = map[string]sight{"a": {nothing: true}, "b": {nothing: true}}
	onlyB     = map[string]sight{"a": {nothing: true}, "b": {tenant: "b"}}
	unchanged = change{name: "as at first", rules: liveRule, sees: firstSees}
)

var changes = []change{
	{
		name: "a filter narrows", rules: narrowRule,
		sees: map[string]sight{"a": {tenant: "a", narrow: true}, "b": {tenant: "b", narrow: true}},
	},
	{
		name: "a field is hidden", rules: `@hidden("secret") ` + liveRule,
		sees: map[string]sight{"a": {tenant: "a", hidden: true}, "b": {tenant: "b", hidden: true}},
	},
	{name: "a permit goes", rules: `permit (principal, action in Action::"describe", resource);`, sees: noneSees},
	{
		name: "a forbid comes", sees: noneSees,
		rules: liveRule + `forbid (principal, action, resource) when { resource has collection && ["orders", "big"].contains(resource.collection) };`,
	},
	{
		name: "a group changes", sees: onlyB,
		line: map[string]string{"a": "groups=others claim.tenant=a", "b": firstLine["b"]},
	},
	{
		name: "a claim changes", sees: map[string]sight{"a": {tenant: "c"}, "b": {tenant: "b"}},
		line: map[string]string{"a": "groups=readers claim.tenant=c", "b": firstLine["b"]},
	},
	{name: "a key goes", sees: onlyB, gone: "a"},
}

// live is an experiment: tenants who work while the rules change.
type live struct {
	*testing.T
	gateway     *gatewaytest.Gateway
	log         *said
	ways        []way
	db          *mongo.Database
	policy      string            // the file
	keysFile    string            // the same
	keys, lines map[string]string // by tenant

	// mu guards the fields below.
	mu      sync.Mutex
	history []map[string]sight // what was, is, and may already be seen
	applied int                // the last of them of which the gateway has said so
	seen    int
	leaks   []string
}

// judge counts what a tenant has seen, and what it should not have seen at any of the times from
// one to another. only says which names count; nil: all.
func (l *live) judge(
	what, tenant string, from, to int, answer []byte, only func(name string) bool,
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, mark := range marks.FindAllSubmatch(answer, -1) {
		if only != nil && !only(string(mark[4])) {
			continue
		}
		l.seen++
		fine := false
		for _, sees := range l.history[from : to+1] {
			fine = fine || sees[tenant].allows(mark)
		}
		if !fine {
			l.leaks = append(l.leaks, fmt.Sprintf("%s of %s shows %s", what, tenant, mark[0]))
		}
	}
}

// times returns the last change that the gateway has said it has applied, and the last that it may
// have applied.
func (l *live) times() (applied, begun int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applied, len(l.history) - 1
}

// apply replaces the files, and returns when the gateway says that it has read them.
func (l *live) apply(c change) {
	l.Helper()
	l.mu.Lock()
	l.history = append(l.history, c.sees)
	n := len(l.history)
	l.mu.Unlock()
	replace := func(path, text, counted string) {
		l.Helper()
		// In one step: the gateway reads a file when it changes.
		if err := os.Rename(file(l.T, "new", text), path); err != nil {
			l.Fatal(err)
		}
		if err := l.gateway.Signal(syscall.SIGHUP); err != nil {
			l.Fatal(err)
		}
		gatewaytest.Eventually(l, 30*time.Second, func() error {
			if !l.log.has(counted) {
				return fmt.Errorf("the gateway does not say %q", counted)
			}
			return nil
		})
	}
	// Each file has a number of rules or keys that no earlier one has had.
	if c.rules != "" {
		text, rules := c.rules, strings.Count(c.rules, ";")
		for ; rules < 10+n; rules++ {
			text += ` permit (principal == Principal::"key:other", action == Action::"Find", resource);`
		}
		replace(l.policy, text, fmt.Sprintf("rules=%d", rules))
	}
	if c.line != nil || c.gone != "" || n > 1 && c.name == unchanged.name {
		text, keys := "", 0
		for _, tenant := range tenants {
			if tenant == c.gone {
				continue
			}
			line := c.line[tenant]
			if c.line == nil {
				line = firstLine[tenant]
			}
			text += l.lines[tenant] + " " + line + "\n"
			keys++
		}
		for ; keys < 10+n; keys++ {
			text += newLine(l.T) + "\n"
		}
		replace(l.keysFile, text, fmt.Sprintf("keys=%d", keys))
	}
	l.mu.Lock()
	l.applied = n - 1
	l.mu.Unlock()
}

func newLine(t *testing.T) string {
	t.Helper()
	_, line, err := caller.NewKey("other", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// said keeps the log of a gateway.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write keeps a part of the log.
func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

// has reports whether a line has a field.
func (s *said) has(field string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range bytes.Lines(s.text.Bytes()) {
		if bytes.HasSuffix(bytes.TrimSpace(line), []byte(" "+field)) {
			return true
		}
	}
	return false
}

// insert inserts documents past the gateway, one for each tenant and n.
func (l *live) insert(collection, name string, n ...int) {
	l.Helper()
	var docs []any
	for _, tenant := range []string{"a", "b", "c"} {
		for _, n := range n {
			docs = append(docs, l.document(tenant, n, name, 0))
		}
	}
	if _, err := l.db.Collection(collection).InsertMany(l.Context(), docs); err != nil {
		l.Fatal(err)
	}
}

func (l *live) document(tenant string, n int, name string, pad int) bson.D {
	return bson.D{
		{Key: "tenant", Value: tenant},
		{Key: "n", Value: n},
		{Key: "mark", Value: markOf("mark", tenant, n, name)},
		{Key: "pad", Value: strings.Repeat("x", pad)},
		{Key: "secret", Value: markOf("secret", tenant, n, name)},
	}
}

// fill inserts what is there from the beginning. The big collection is more than what lies between
// the gateway and a client that does not read, and its last document is known by its name.
func (l *live) fill() {
	l.Helper()
	for i := range 4 {
		l.insert("orders", fmt.Sprint("first", i), 1, 0)
	}
	for _, tenant := range tenants {
		var docs []any
		for i := range 128 {
			docs = append(docs, l.document(tenant, i%2, fmt.Sprint("big", i), 64<<10))
		}
		docs = append(docs, l.document(tenant, 1, "last", 0))
		if _, err := l.db.Collection("big").InsertMany(l.Context(), docs); err != nil {
			l.Fatal(err)
		}
	}
}

// work makes calls in all protocols until ctx ends. It returns their number.
func (l *live) work(ctx context.Context, tenant string) (calls int) {
	for ctx.Err() == nil {
		for _, w := range l.ways {
			for _, c := range reads() {
				from, _ := l.times()
				answer, _ := w.all(ctx, l.keys[tenant], c)
				_, to := l.times()
				l.judge(w.name+" "+c.rpc+c.action, tenant, from, to, answer, nil)
				calls++
				if ctx.Err() != nil {
					return calls
				}
			}
		}
	}
	return calls
}

// TestLiveChanges checks that tenants who work in all protocols see nothing that the rules, groups
// and keys of their time do not allow, while these change: by calls that begin after the gateway
// has said that it has applied a change, and by streams, pages and transactions that were opened
// before. What is still allowed goes on.
func TestLiveChanges(t *testing.T) {
	l := newLive(t)
	l.apply(unchanged)
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	var calls [2]int
	for i, tenant := range tenants {
		workers.Go(func() { calls[i] = l.work(ctx, tenant) })
	}
	opened := 0
	for i := range max(len(changes), requests(t)/50) {
		c := changes[i%len(changes)]
		open := l.openAll(i)
		opened += len(open)
		l.apply(c)
		now, _ := l.times()
		l.insert("orders", fmt.Sprint("late", now), 1, 0)
		l.insert("orders", fmt.Sprint("end", now), 0)
		for _, o := range open {
			// The other tenant's rights stay when only the keys change.
			o.check(now, c.sees[o.tenant] == firstSees[o.tenant], c.name)
		}
		l.apply(unchanged)
	}
	stop()
	workers.Wait()
	l.Logf("%d changes, %d opened before one, %d calls beside them, %d marks seen, %d leaks",
		len(l.history)-1, opened, calls[0]+calls[1], l.seen, len(l.leaks))
	report(t, l.leaks)
	if l.seen < 1000 || calls[0] == 0 || calls[1] == 0 {
		t.Error("the tenants have seen too little: the test shows nothing")
	}
}

func newLive(t *testing.T) *live {
	t.Helper()
	at := scripted(t)
	l := &live{
		T: t, log: &said{}, db: at.full.db.Client().Database("live"),
		keys: map[string]string{}, lines: map[string]string{},
	}
	var lines []string
	for _, tenant := range tenants {
		l.keys[tenant], l.lines[tenant] = suite.Key(t, "tenant-"+tenant)
		lines = append(lines, l.lines[tenant]+" "+firstLine[tenant])
	}
	directory := t.TempDir()
	l.policy, l.keysFile = filepath.Join(directory, "policy"), filepath.Join(directory, "keys")
	for path, text := range map[string]string{
		l.policy: liveRule, l.keysFile: strings.Join(lines, "\n"),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l.gateway = suite.StartLogging(t, l.log, at.uri, "--policy-file", l.policy,
		"--auth-api-keys-file", l.keysFile, "--data-api-sources", "live", "--log-format", "text")
	l.ways = ways(t, l.gateway)
	l.fill()
	return l
}
