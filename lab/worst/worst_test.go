package worst_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
	"github.com/mooringdb/mooring/lab/internal/prometheus"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) {
	_ = os.Setenv("GOMEMLIMIT", memory) // of the gateways; this process has started without it
	os.Exit(suite.Run(m))
}

const (
	// memory is GOMEMLIMIT of the gateway, and mostRSS what it may use at the peak.
	memory  = "192MiB"
	mostRSS = 256 << 20
	// crowd is how many requests come at once.
	crowd = 16
	// patience is how long the tests wait for an answer, or for memory that is given back.
	patience = time.Minute
)

// row is one line of the table: what one shape of request costs.
type row struct {
	rpc      protoreflect.MethodDescriptor
	protocol protocol
	shape    shape
}

func (r row) String() string {
	return nameOf(r.rpc) + " | " + r.protocol.name + " | " + r.shape.name
}

// rows returns all rows: each shape of each RPC in each protocol that has it.
func rows() (all []row) {
	small := payload{text: [][]byte{[]byte(`{}`)}, bson: [][]byte{{5, 0, 0, 0, 0}}}
	for _, m := range rpcs() {
		for _, p := range protocols {
			for _, s := range shapes {
				if p.build(m, s, small) != nil {
					all = append(all, row{m, p, s})
				}
			}
			for _, s := range replyShapes() {
				if answers(m) && unanswered[nameOf(m)] == "" && p.build(m, s, small) != nil {
					all = append(all, row{m, p, s})
				}
			}
		}
	}
	return all
}

// TestRows checks that each RPC has rows in each protocol that can call it, and that the tables of
// bindings and actions name RPCs that exist.
func TestRows(t *testing.T) {
	counts := map[string]int{}
	for _, r := range rows() {
		counts[nameOf(r.rpc)+" "+r.protocol.name]++
	}
	known := map[string]bool{}
	for _, m := range rpcs() {
		name := nameOf(m)
		known[name] = true
		want := []string{"gRPC", "gRPC-Web", "Connect", "Connect, JSON", "REST"}
		if !isText(m) {
			want = append(want, "gRPC, JSON")
		}
		if m.IsStreamingClient() {
			want = slices.DeleteFunc(want, func(p string) bool { return p == "REST" })
			want = append(want, "NDJSON", "BSON")
		}
		for _, p := range want {
			if counts[name+" "+p] == 0 {
				t.Errorf("%s has no row for %s", name, p)
			}
		}
	}
	for name := range bindings {
		if !known[name] {
			t.Errorf("%s is not an RPC", name)
		}
	}
	for name := range actions {
		if !known[name] || counts[name+" Data API"] == 0 {
			t.Errorf("%s is not an RPC, or has no row for the Data API", name)
		}
	}
	t.Logf("%d RPCs, %d rows", len(known), len(rows()))
}

// ordered returns the rows in a random order in which those come first that differ most: one of
// each protocol and shape, then another one of each, and so on.
func ordered(all []row, seed uint64) []row {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // to draw a sample
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	seen, rounds := map[string]int{}, make(map[string]int, len(all))
	for _, r := range all {
		kind := r.protocol.name + "|" + r.shape.name
		rounds[r.String()] = seen[kind]
		seen[kind]++
	}
	slices.SortStableFunc(all, func(a, b row) int {
		return cmp.Compare(rounds[a.String()], rounds[b.String()])
	})
	return all
}

// shard returns piece i of n, from text such as 1/20: the first one has the rows that differ most.
func shard(t *testing.T, all []row, text string) []row {
	t.Helper()
	i, n := 0, 0
	if _, err := fmt.Sscanf(text, "%d/%d", &i, &n); err != nil || i < 1 || i > n {
		t.Fatalf("SHARD is %q, want one such as 1/20", text)
	}
	return all[(i-1)*len(all)/n : i*len(all)/n]
}

// sample returns which rows to run: those whose name has ROW, one of WORST of them, or the piece
// SHARD, all in the order that SEED gives. Without any it is a short form: rows with each protocol
// and each shape.
func sample(t *testing.T) (chosen []row) {
	t.Helper()
	seed, _ := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	only := os.Getenv("ROW")
	all := slices.DeleteFunc(ordered(rows(), seed), func(r row) bool {
		return !strings.Contains(r.String(), only)
	})
	if text := os.Getenv("SHARD"); text != "" {
		return shard(t, all, text)
	}
	if oneIn, _ := strconv.Atoi(os.Getenv("WORST")); oneIn > 0 {
		return all[:max(1, len(all)/oneIn)]
	}
	if only != "" {
		return all
	}
	seen := map[string]bool{}
	for _, r := range all {
		if !seen[r.protocol.name] && !seen[r.shape.name] {
			seen[r.protocol.name], seen[r.shape.name] = true, true
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// result is what a row has cost.
type result struct {
	alone, together int64 // peaks
	cpu             time.Duration
	sent            int
	answers         string
}

// perMiB returns the seconds of processor time for each MiB that was sent to be read, one request
// after the other, by the client and the server.
func (r result) perMiB() float64 { return r.cpu.Seconds() / (float64(r.sent) / (1 << 20)) }

func (r result) String() string {
	return fmt.Sprintf("%d MiB | %d MiB | %.3f s | %s", r.alone>>20, r.together>>20, r.perMiB(),
		r.answers)
}

const heading = "RPC | protocol | shape | peak alone | peak of 16 | CPU per MiB | answers\n" +
	"---|---|---|---|---|---|---\n"

// extremes are the highest figures of the rows of a protocol.
type extremes struct {
	rows            int
	alone, together int64
	perMiB          float64
}

func (e *extremes) add(r result) {
	e.rows++
	e.alone, e.together = max(e.alone, r.alone), max(e.together, r.together)
	e.perMiB = max(e.perMiB, r.perMiB())
}

// TestWorst sends each row's requests, one after the other and 16 at once, and checks the gateway's
// memory: at the peak, and that the account of its calls is empty afterwards.
func TestWorst(t *testing.T) {
	table, highest := heading, map[string]*extremes{}
	defer func() {
		table += "\nprotocol | rows | peak alone | peak of 16 | CPU per MiB\n---|---|---|---|---\n"
		for _, name := range slices.Sorted(maps.Keys(highest)) {
			e := highest[name]
			table += fmt.Sprintf("%s | %d | %d MiB | %d MiB | %.3f s\n", name, e.rows, e.alone>>20,
				e.together>>20, e.perMiB)
		}
		t.Log("\n" + table)
	}()
	chosen, begun := sample(t), time.Now()
	within, _ := time.ParseDuration(os.Getenv("WITHIN"))
	for i, r := range chosen {
		if within > 0 && time.Since(begun) > within {
			t.Errorf("the last %d of %d rows did not run within %s", len(chosen)-i, len(chosen),
				within)
			break
		}
		t.Run(r.String(), func(t *testing.T) {
			got := measure(t, r)
			t.Log(got)
			table += r.String() + " | " + got.String() + "\n"
			name := r.protocol.name
			if r.shape.gzip {
				name += ", gzip"
			}
			if highest[name] == nil {
				highest[name] = &extremes{}
			}
			highest[name].add(got)
			if peak := max(got.alone, got.together); peak > mostRSS {
				t.Errorf("the gateway used %d MiB at the peak, want at most %d", peak>>20,
					mostRSS>>20)
			}
		})
	}
}

func measure(t *testing.T, r row) (got result) {
	t.Helper()
	s := newScript(r.shape)
	g, err := gateway.Start(t.Context(), gateway.Config{
		Binary: suite.Gateway(t), URI: s.listen(t), Directory: t.TempDir(),
		Args: []string{
			"--admin-address", "127.0.0.1:0", "--data-api-sources", "worst",
			"--requests-queue-time", "1s", "--log-level", "error",
			// What cursors keep for their next pages is charged until they end.
			"--cursors-idle", "1s", "--cursors-unread-idle", "1s",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Stop(patience) }()
	requests := requestsOf(r)
	clients := newSender(g, r.shape.unfinished)
	defer clients.close()

	answers := map[string]int{}
	before := cpu(t, g)
	for _, q := range requests {
		answers[clients.send(t.Context(), q)]++
		got.sent += len(q.body)
	}
	got.sent += int(s.answered.Load())
	// gRPC-Web has its status in the body.
	if r.shape.reply && r.protocol.name != "gRPC-Web" && s.asked.Load() == 0 &&
		answers["status 0"]+answers["200"] > 0 {
		t.Errorf("the server was not asked: %s", tally(answers))
	}
	got.cpu = cpu(t, g) - before
	got.alone = peak(t, g)
	for _, answer := range clients.crowd(t.Context(), requests) {
		answers[answer]++
	}
	got.together = peak(t, g)
	got.answers = tally(answers)
	select {
	case <-g.Done():
		t.Fatalf("the gateway has ended: %s", g.Tail())
	default:
	}
	gatewaytest.Eventually(t, patience, func() error { return account(t, g) })
	return got
}

// requestsOf returns the requests of a row: of one document as large as a request may be, of
// documents as large as they may be, and of as many documents as there may be.
func requestsOf(r row) (requests []*request) {
	if r.shape.reply {
		return []*request{r.protocol.build(r.rpc, r.shape, payload{})}
	}
	payloads := []payload{r.shape.tooLarge(), r.shape.largestDocuments()}
	if place := roomiest(r.rpc.Input()); place != nil && place.room() == 4 {
		payloads = append(payloads, r.shape.many())
	}
	for _, p := range payloads {
		requests = append(requests, r.protocol.build(r.rpc, r.shape, p))
	}
	return requests
}

func cpu(t *testing.T, g *gateway.Gateway) time.Duration {
	t.Helper()
	used, err := proc.CPU(g.Pid())
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func peak(t *testing.T, g *gateway.Gateway) int64 {
	t.Helper()
	most, err := proc.PeakRSS(g.Pid())
	if err != nil {
		t.Fatal(err)
	}
	return most
}

// account returns an error unless calls hold no memory.
func account(t *testing.T, g *gateway.Gateway) error {
	t.Helper()
	const series = `mooring_admission_used{resource="memory"}`
	_, all, err := prometheus.Scrape(t.Context(), g.Admin+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if held, ok := all[series]; held != 0 || !ok {
		return fmt.Errorf("%s is %v (there: %v), want 0", series, held, ok)
	}
	return nil
}

func tally(answers map[string]int) string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(answers)) {
		parts = append(parts, fmt.Sprintf("%d × %s", answers[status], status))
	}
	return strings.Join(parts, ", ")
}
