package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/issuertest"
	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/prometheus"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

const (
	// patience is the most that a test waits for something that takes milliseconds.
	patience = 30 * time.Second
	// rate is how many requests are sent in a second.
	rate = 50
	// noPromtool is the message of tests that are skipped where promtool is not installed.
	noPromtool = "promtool is not installed (apt-get install prometheus)"
	// principals is how many API keys there are. Each token has a principal of its own.
	principals = 40
)

// policy returns a policy that refuses what is in the database secret.
func policy() string {
	return fmt.Sprintf("permit (principal, action, resource)\n"+
		"unless { resource in Database::\"secret\" };\n"+
		"@commands(%q)\npermit (principal, action in Action::\"command\", resource);\n",
		strings.Join(commands(), ", "))
}

// TestSeries sends requests of random principals for random databases and collections on all paths,
// SERIES=10m long or a few seconds. Meanwhile /metrics can be parsed. Afterwards no series has been
// added since each kind of request was sent once, and the counters agree with what was sent, and
// with the commands that the servers have received.
func TestSeries(t *testing.T) {
	d := deployment.ListenUnrecorded(t, deployment.ReplicaSet, "8.0.0")
	d.SetDocuments("many.documents", fakemongo.Numbered(0, 5, 0)...)
	received := &tally{}
	d.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		received.add(cmd.Name)
		return next(cmd)
	})
	c := newCrowd(t, d.URI(false, nil))
	at := c.gateway.Admin
	for range 2 { // the second finds the pools as the first left them
		for i := range kinds {
			c.send(&kinds[i])
		}
	}
	c.agree(at, received)
	_, before := scrape(t, at)
	var p *prometheus.Server
	if prometheus.Installed() {
		p = prometheus.Start(t, prometheus.Config{
			Interval: time.Second, Targets: []string{strings.TrimPrefix(at, "http://")},
		})
	}
	first := seriesOf(t, p)

	began, tick := time.Now(), time.NewTicker(time.Second/rate)
	defer tick.Stop()
	for n := 0; time.Since(began) < duration(t); n++ {
		<-tick.C
		c.send(&kinds[rand.IntN(len(kinds))])
		if n%(10*rate) == 0 {
			text, _ := scrape(t, at)
			parse(t, text)
		}
	}
	c.agree(at, received)
	_, after := scrape(t, at)
	for series := range after {
		if _, ok := before[series]; !ok {
			t.Errorf("a new series: %s", series)
		}
	}
	last := seriesOf(t, p)
	if first != last {
		t.Errorf("Prometheus has %d series, and had %d", last, first)
	}
	t.Logf("%d requests of %d principals, of which %d tokens, on %d namespaces in %v: %d series "+
		"before, %d "+
		"after; on Prometheus %d and %d (0: not installed)", c.requests, principals+c.tokens,
		c.tokens,
		len(c.namespaces), time.Since(began).Round(time.Second), len(before), len(after), first,
		last)
	if p == nil {
		t.Skip(prometheus.Missing)
	}
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip(noPromtool)
	}
}

// duration returns how long requests are sent: SERIES, or a few seconds.
func duration(t *testing.T) time.Duration {
	text := os.Getenv("SERIES")
	if text == "" {
		return 4 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SERIES: %v", err)
	}
	return d
}

func scrape(t *testing.T, admin string) (string, map[string]float64) {
	t.Helper()
	text, all, err := prometheus.Scrape(t.Context(), admin+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	return text, all
}

// parse has promtool parse metrics and comment on them.
func parse(t *testing.T, text string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		return // the test says so at its end
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// seriesOf returns how many series of the gateway Prometheus has now; 0: there is no Prometheus.
func seriesOf(t *testing.T, p *prometheus.Server) (n int) {
	t.Helper()
	if p == nil {
		return 0
	}
	gatewaytest.Eventually(t, patience, func() error {
		all, err := p.Query(t.Context(), `count({job="mooring"})`)
		if err == nil && len(all) == 1 && all[0].Values[0] > 10 { // the scrape has succeeded
			n = int(all[0].Values[0])
			return nil
		}
		return errors.Join(err, fmt.Errorf("there are the series %v", all))
	})
	return n
}

// tally counts by name. It is safe for concurrent use.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

func (c *tally) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// crowd represents the clients, and counts what they send.
type crowd struct {
	t       *testing.T
	gateway *gateway.Gateway
	conn    *grpc.ClientConn
	keys    []string
	issuer  *issuertest.Issuer

	requests, tokens         int
	namespaces               map[string]bool
	calls, streams, failures map[string]int
}

// newCrowd starts the gateway, with API keys, an issuer of tokens and a policy.
func newCrowd(t *testing.T, uri string) *crowd {
	t.Helper()
	c := &crowd{
		t: t, calls: map[string]int{}, streams: map[string]int{}, failures: map[string]int{},
		namespaces: map[string]bool{}, issuer: issuertest.New(t, ""),
	}
	server := httptest.NewServer(c.issuer)
	t.Cleanup(server.Close)
	c.issuer.SetURL(server.URL)
	var lines strings.Builder
	for i := range principals {
		out, err := exec.CommandContext(t.Context(), suite.Gateway(t), "key", "api", "new",
			"--principal", fmt.Sprintf("p%d", i)).Output()
		if err != nil {
			t.Fatal(err)
		}
		c.keys = append(c.keys, string(regexp.MustCompile(`mooring_\S+`).Find(out)))
		fmt.Fprintf(&lines, "%s\n", regexp.MustCompile(`(?m)p\d+ \S+ \S+$`).Find(out))
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"keys": lines.String(), "policy": policy()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := gateway.Start(t.Context(), gateway.Config{
		Binary: suite.Gateway(t), URI: uri, Directory: dir, Args: []string{
			"--admin-address", "127.0.0.1:0", "--auth-api-keys-file", filepath.Join(dir, "keys"),
			"--policy-file", filepath.Join(dir, "policy"), "--auth-jwt-issuer", server.URL,
			"--auth-jwt-audience", issuertest.Audience, "--data-api-sources", "cluster",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.Stop(gateway.StartTime) // it may take its time
		if t.Failed() {
			t.Logf("end of the gateway's log:\n%s", g.Tail())
		}
	})
	c.gateway = g
	c.conn, err = grpc.NewClient(g.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.conn.Close() })
	return c
}

// credential returns a key or a token of a random principal.
func (c *crowd) credential() string {
	if rand.IntN(2) == 0 {
		return "Bearer " + c.keys[rand.IntN(len(c.keys))]
	}
	c.tokens++
	return "Bearer " + c.issuer.Token(c.t, fmt.Sprintf("user-%x", rand.Uint64()))
}

// send sends one request and counts what it should be counted as.
func (c *crowd) send(k *kind) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	r := &request{
		crowd: c, ctx: ctx, database: fmt.Sprintf("db-%x", rand.Uint64()),
		collection: fmt.Sprintf("c-%x", rand.Uint64()), credential: c.credential(),
	}
	if err := k.send(r); err != nil {
		c.t.Fatalf("%s: %v", k.name, err)
	}
	c.namespaces[r.database+"."+r.collection] = true
	c.requests += max(1, len(k.calls))
	for _, call := range k.calls {
		code := call.code
		labels := fmt.Sprintf(`rpc_method="mooring.v1.%s",rpc_response_status_code=%q`, call.method,
			spell(code))
		if call.method == unknown {
			labels = strings.Replace(labels, "mooring.v1.", "", 1)
		}
		if call.stream {
			c.streams[labels]++
		} else {
			c.calls[labels]++
		}
	}
	if k.reason != "" {
		c.failures[fmt.Sprintf("reason=%q,rpc_response_status_code=%q", k.reason, spell(k.code))]++
	}
}

// spell returns a code as the semantic conventions do.
func spell(c codes.Code) string {
	words := regexp.MustCompile(`[A-Z][a-z]+`).FindAllString(c.String(), -1)
	if len(words) == 0 {
		return "OK"
	}
	return strings.ToUpper(strings.Join(words, "_"))
}

// agree waits until the gateway's counters are what was sent and what the servers have received.
func (c *crowd) agree(admin string, received *tally) {
	c.t.Helper()
	gatewaytest.Eventually(c.t, patience, func() error {
		_, all := scrape(c.t, admin)
		commands := map[string]int{}
		for name, n := range received.all() {
			switch {
			case isHandshake(name):
				continue
			case !hasSeries(name):
				name = unknown
			}
			commands[name] += n
		}
		return errors.Join(
			differ("calls", c.calls, labeled(all, "rpc_server_call_duration_seconds_count")),
			differ("streams", c.streams, labeled(all, "mooring_streams_ended_total")),
			differ("failures", c.failures, labeled(all, "mooring_errors_total")),
			differ("commands", commands, byOperation(all)),
		)
	})
}

// isHandshake reports whether a command is one of the handshake or a check, which are not commands
// of clients.
func isHandshake(name string) bool { return strings.EqualFold(name, "hello") || name == "isMaster" }

// hasSeries reports whether a command that the crowd sends has series of its own.
func hasSeries(name string) bool { return !strings.HasPrefix(name, "command") }

// labeled returns the values of a metric's series by their labels.
func labeled(all map[string]float64, name string) map[string]int {
	values := map[string]int{}
	for series, v := range all {
		if labels, ok := strings.CutPrefix(series, name+"{"); ok {
			values[strings.TrimSuffix(labels, "}")] += int(v)
		}
	}
	return values
}

var operationName = regexp.MustCompile(`db_operation_name="(\w+)"`)

// byOperation returns how many commands were counted by name.
func byOperation(all map[string]float64) map[string]int {
	values := map[string]int{}
	for labels, n := range labeled(all, "db_client_operation_duration_seconds_count") {
		values[operationName.FindStringSubmatch(labels)[1]] += n
	}
	return values
}

// differ returns an error that lists what was sent and was not counted as often, or that says that
// nothing was.
func differ(what string, sent, counted map[string]int) error {
	if len(sent) == 0 || slices.Min(slices.Collect(maps.Values(sent))) == 0 {
		return fmt.Errorf("%s: there is nothing to count: %v", what, sent)
	}
	var list []string
	for _, of := range []map[string]int{sent, counted} {
		for name := range of {
			if sent[name] != counted[name] {
				list = append(list,
					fmt.Sprintf("%s %s: %d sent, %d counted", what, name, sent[name],
						counted[name]))
			}
		}
	}
	slices.Sort(list)
	if len(list) == 0 {
		return nil
	}
	return errors.New(strings.Join(slices.Compact(list), "\n"))
}

// post sends a request to the REST port and returns the body of the response, if its status is the
// wanted one.
func (r *request) post(status int, path, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(r.ctx, http.MethodPost, r.gateway.REST+path,
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	if r.credential != "" {
		req.Header.Set("Authorization", r.credential)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != status {
		err = fmt.Errorf("%s = %d %s, want %d", path, resp.StatusCode, b, status)
	}
	return b, err
}

// TestAlertRules has promtool check which alerts fire on made-up series, and that none fires on
// those of a healthy gateway, one that stops included.
func TestAlertRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip(noPromtool)
	}
	cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", "alerts_test.yaml")
	cmd.Dir = filepath.Join("..", "..", "deploy", "prometheus")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
