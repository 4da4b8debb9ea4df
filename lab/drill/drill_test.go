package drill_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// path is where the tests search.
var path = gatewaytest.Documents("shop", "orders", "find")

// quick shortens the driver's own times.
const quick = "&heartbeatFrequencyMS=500&serverSelectionTimeoutMS=500"

func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	databaseDown(t, scripted)
}

func databaseDown(t *testing.T, serve func(*testing.T) database) {
	mongo := serve(t)
	d := begin(t, mongo.URI()+quick)
	mongo.SetDown(true)
	d.wantReady(http.StatusServiceUnavailable, "no MongoDB server can be selected")
	find := func() {
		if r := d.Post(t, path, "{}"); r.Status != http.StatusServiceUnavailable {
			t.Errorf("find = %d %s", r.Status, r.Body)
		}
	}
	find()
	d.wantMetric(is(0), "mooring_server_up")
	d.wantMetric(more(0), "mooring_errors_total", `reason="NoSuitableServer"`)
	d.wantLog("server unavailable", string(mongo.Address()))
	d.wantAlerts(find, []string{"MooringErrors", "MooringNotReady", "MooringServerDown"})
}

func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	slowDatabase(t, scripted)
}

func slowDatabase(t *testing.T, serve func(*testing.T) database) {
	mongo := serve(t)
	d := begin(t, mongo.URI())
	mongo.disturb(func(c *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if c.Name != "find" {
			return next(c)
		}
		return next(c).After(1100 * time.Millisecond)
	})
	find := func() {
		if r := d.Post(t, path, "{}"); r.Status != http.StatusOK {
			t.Errorf("find = %d %s", r.Status, r.Body)
		}
	}
	find()
	d.wantMetric(more(1), "db_client_operation_duration_seconds_sum", `db_operation_name="find"`)
	d.wantLog("slow request", "shop", "orders")
	d.wantReady(http.StatusOK, "")
	d.wantAlerts(find, []string{"MooringDatabaseSlow"})
}

// keys returns a file with the API keys of so many principals, and the keys.
func keys(t *testing.T, principals ...string) (file string, all []gatewaytest.Header) {
	t.Helper()
	var lines strings.Builder
	for _, p := range principals {
		out, err := exec.CommandContext(t.Context(), suite.Gateway(t),
			"key", "api", "new", "--principal", p).Output()
		if err != nil {
			t.Fatal(err)
		}
		key := regexp.MustCompile(`mooring_\S+`).Find(out)
		line := regexp.MustCompile(`(?m)` + p + ` \S+ \S+$`).Find(out)
		if key == nil || line == nil {
			t.Fatalf("key api new printed %q", out)
		}
		lines.Write(line)
		lines.WriteByte('\n')
		all = append(all, gatewaytest.Header{Name: "Api-Key", Value: string(key)})
	}
	file = filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, all
}

// hang makes finds wait until the test ends, and returns a function that sends one and waits until
// the server has it.
func hang(t *testing.T, mongo database, d *drill) func(...gatewaytest.Header) {
	t.Helper()
	arrived, release := make(chan struct{}), make(chan struct{})
	mongo.disturb(func(c *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if c.Name != "find" {
			return next(c)
		}
		select {
		case arrived <- struct{}{}:
			<-release
		case <-release:
		}
		return next(c)
	})
	var calls sync.WaitGroup
	t.Cleanup(func() {
		close(release)
		calls.Wait()
	})
	return func(h ...gatewaytest.Header) {
		calls.Go(func() {
			// The context of t ends before its cleanup.
			r, err := http.NewRequest(http.MethodPost, d.REST+path, strings.NewReader("{}")) //nolint:noctx // see above
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			for _, h := range h {
				r.Header.Set(h.Name, h.Value)
			}
			if resp, err := http.DefaultClient.Do(r); err == nil {
				resp.Body.Close()
			}
		})
		select {
		case <-arrived:
		case <-time.After(patience):
			t.Fatal("the server has not got the find")
		}
	}
}

func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	poolExhausted(t, scripted)
}

func poolExhausted(t *testing.T, serve func(*testing.T) database) {
	mongo := serve(t)
	file, keys := keys(t, "ann", "bob", "cid")
	d := begin(t, mongo.URI()+"&maxPoolSize=2", "--auth-api-keys-file", file,
		"--requests-queue-time", "100ms")
	send := hang(t, mongo, d)
	send(keys[0])
	send(keys[1])
	find := func() {
		if r := d.Post(t, path, "{}", keys[2]); r.Status != http.StatusServiceUnavailable {
			t.Errorf("find = %d %s", r.Status, r.Body)
		}
	}
	find()
	d.wantMetric(is(2), "mooring_pool_connections{", `db_client_connection_state="used"`)
	d.wantMetric(more(0), "mooring_admission_refusals_total", `cause="full"`, `resource="calls"`)
	d.wantLog("request failed", "Overloaded")
	d.wantReady(http.StatusOK, "")
	d.wantAlerts(find, []string{"MooringErrors", "MooringOverloaded", "MooringPoolExhausted"})
}

func TestFlood(t *testing.T) {
	t.Parallel()
	flood(t, scripted)
}

func flood(t *testing.T, serve func(*testing.T) database) {
	mongo := serve(t)
	file, keys := keys(t, "ann", "bob")
	d := begin(t, mongo.URI(), "--auth-api-keys-file", file, "--requests-queue-time", "10ms",
		"--requests-max-in-flight-per-principal", "1")
	send := hang(t, mongo, d)
	send(keys[0])
	find := func() {
		if r := d.Post(t, path, "{}", keys[0]); r.Status != http.StatusTooManyRequests {
			t.Errorf("find of the client that floods = %d %s", r.Status, r.Body)
		}
	}
	for range 20 {
		find()
	}
	mongo.disturb(nil)
	if r := d.Post(t, path, "{}", keys[1]); r.Status != http.StatusOK {
		t.Errorf("find of another client = %d %s", r.Status, r.Body)
	}
	d.wantMetric(is(20), "mooring_admission_refusals_total", `cause="own_share"`)
	d.wantLog("request refused", "QuotaExceeded", "ann")
	d.wantReady(http.StatusOK, "")
	d.wantAlerts(find, []string{"MooringClientOverShare"})
}

func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	mongo := fakemongo.NewTCPServer(t, nil)
	end := time.Now().Add(3 * 24 * time.Hour).Truncate(time.Second)
	pair := certtest.Authority(t, certtest.ECDSA).Issue(t, "127.0.0.1",
		certtest.Valid(time.Now().Add(-time.Hour), end))
	d := begin(t, mongo.URI(), "--tls-key-file", certtest.File(t, "key", pair.KeyBlock(t)),
		"--tls-certificate-file", certtest.File(t, "certificate", pair.CertificateBlock()))
	d.wantMetric(is(float64(end.Unix())), "mooring_certificate_not_after_timestamp_seconds")
	d.wantReady(http.StatusOK, "")
	d.wantAlerts(nil, []string{"MooringCertificateExpires"})
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	wrongPassword(t, scripted)
}

func wrongPassword(t *testing.T, serve func(*testing.T) database) {
	mongo := serve(t)
	demand := func(password string) {
		mongo.RequireAuth(&fakemongo.Auth{
			Users: []fakemongo.User{{Name: "app", Password: password}},
		})
	}
	demand("first")
	d := begin(t, strings.Replace(mongo.URI(), "mongodb://", "mongodb://app:first@", 1)+quick)
	demand("second")
	mongo.CutConnections()
	find := func() {
		if r := d.Post(t, path, "{}"); r.Status < http.StatusInternalServerError {
			t.Errorf("find = %d %s", r.Status, r.Body)
		}
	}
	find() // on a connection that was cut
	find() // on a new one, whose login is refused
	d.wantReady(http.StatusServiceUnavailable, "AuthenticationFailed")
	d.wantMetric(is(0), "mooring_login_ok")
	d.wantLog("cannot log in to MongoDB", "AuthenticationFailed")
	d.wantMetric(is(0), "mooring_ready")
	// Each login that fails makes the server Unknown until the next check: mooring_server_up
	// changes all the time, and whether its alert fires is not certain.
	d.wantAlerts(find, []string{"MooringErrors", "MooringLoginRefused", "MooringNotReady"},
		"MooringServerDown")
}

func TestPolicyBroken(t *testing.T) {
	t.Parallel()
	policyBroken(t, scripted)
}

func policyBroken(t *testing.T, serve func(*testing.T) database) {
	mongo := serve(t)
	file := filepath.Join(t.TempDir(), "policy")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const rule = "permit (principal, action, resource);\n"
	write(rule)
	d := begin(t, mongo.URI(), "--policy-file", file)
	read := func() {
		t.Helper()
		if err := d.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	const reloaded, of = "mooring_config_last_reload_successful", `source="policy"`
	d.wantMetric(is(1), reloaded, of)
	write("permit (")
	read()
	d.wantMetric(is(0), reloaded, of)
	d.wantLog("the policy cannot be used: keeping the old rules", file)
	if r := d.Post(t, path, "{}"); r.Status != http.StatusOK {
		t.Errorf("find = %d %s", r.Status, r.Body)
	}
	d.wantReady(http.StatusOK, "")
	write(rule)
	read()
	d.wantMetric(is(1), reloaded, of)
	write("permit (")
	read()
	d.wantMetric(is(0), reloaded, of)
	d.wantAlerts(nil, []string{"MooringReloadFailed"})
}

// replicaArgs returns the options of replicas that share a key.
func replicaArgs(t *testing.T) []string {
	t.Helper()
	key, err := exec.CommandContext(t.Context(), suite.Gateway(t), "key", "new").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, key, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"--handle-keys-file", file, "--idempotency-key-file", file, "--replica-address", "127.0.0.1:0",
	}
}

func TestReplicaUnreachable(t *testing.T) {
	t.Parallel()
	replicaUnreachable(t, scripted)
}

func replicaUnreachable(t *testing.T, serve func(*testing.T) database) {
	mongo := serve(t)
	mongo.fill(fakemongo.Numbered(0, 300, 0))
	args := replicaArgs(t)
	gone := begin(t, mongo.URI(), args...)
	d := begin(t, mongo.URI(), append(args, "--replica-peers", gone.Replica)...)
	d.wantMetric(is(1), "mooring_replicas_known")
	page := gone.Post(t, path, `{"batchSize":1}`)
	var opened struct{ Cursor string }
	if err := json.Unmarshal(page.Body, &opened); err != nil || opened.Cursor == "" {
		t.Fatalf("find = %s, %v", page.Body, err)
	}
	gone.Kill(t)
	next := func() {
		r := d.Post(t, "/v1/cursors:next", `{"cursor":"`+opened.Cursor+`"}`)
		if r.Status != http.StatusConflict {
			t.Errorf("the next page = %d %s", r.Status, r.Body)
		}
	}
	next()
	d.wantMetric(more(0), "mooring_replica_unreachable_total")
	d.wantLog("replica left", gone.Replica)
	d.wantReady(http.StatusOK, "")
	d.wantAlerts(next, []string{"MooringReplicaUnreachable"})
}

// TestReplicaLeaves stops a replica in order, as a scale-down does: another one that still has its
// address does not count it as unreachable.
func TestReplicaLeaves(t *testing.T) {
	t.Parallel()
	mongo := fakemongo.NewTCPServer(t, nil)
	args := replicaArgs(t)
	leaving := begin(t, mongo.URI(), args...)
	d := begin(t, mongo.URI(), append(args, "--replica-peers", leaving.Replica)...)
	d.wantMetric(is(1), "mooring_replicas_known")
	if err := leaving.Stop(patience); err != nil {
		t.Fatal(err)
	}
	d.wantLog("replica left", leaving.Replica)
	for range 3 { // all replicas are asked
		if status, body := get(t, d.REST+"/v1/deployment/handles"); status != http.StatusOK {
			t.Errorf("the list of handles = %d %s", status, body)
		}
	}
	d.wantMetric(more(2), "mooring_replica_calls_total")
	d.wantMetric(is(0), "mooring_replica_unreachable_total")
	d.wantMetric(is(0), "mooring_replicas_known")
}

func TestMemoryNearLimit(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	t.Setenv("GOMEMLIMIT", "8MiB") // an idle gateway needs about 10 MiB
	d := begin(t, mongo.URI())
	d.wantMetric(is(8<<20), "go_gc_gomemlimit_bytes")
	d.wantReady(http.StatusOK, "")
	d.wantAlerts(nil, []string{"MooringMemoryNearLimit"})
}

func TestGatewayGone(t *testing.T) {
	t.Parallel()
	d := begin(t, fakemongo.NewTCPServer(t, nil).URI())
	d.Kill(t)
	for _, url := range []string{d.Admin + "/metrics", d.REST + "/readyz"} {
		if status, body := get(t, url); status != 0 {
			t.Errorf("%s = %d %s, want no answer", url, status, body)
		}
	}
	d.wantAlerts(nil, []string{"MooringDown"})
}

// newReplicaSet makes three members, of which the first is primary.
func newReplicaSet(t *testing.T) *fakemongo.Cluster {
	t.Helper()
	return fakemongo.NewCluster(t, fakemongo.ClusterConfig{TCP: true, Discard: true},
		fakemongo.Primary, fakemongo.Secondary, fakemongo.Secondary)
}

func TestNoPrimary(t *testing.T) {
	t.Parallel()
	noPrimary(t, newReplicaSet)
}

func noPrimary(t *testing.T, set func(*testing.T) *fakemongo.Cluster) {
	members := set(t)
	d := begin(t, members.URI("replicaSet=rs"+quick))
	members.StepDown()
	find := func() {
		if r := d.Post(t, path, "{}"); r.Status != http.StatusServiceUnavailable {
			t.Errorf("find = %d %s", r.Status, r.Body)
		}
	}
	d.wantMetric(is(1), "mooring_topology_kind", `kind="ReplicaSetNoPrimary"`)
	find()
	d.wantLog("request failed", "NoSuitableServer")
	d.wantReady(http.StatusOK, "")
	d.wantAlerts(find, []string{"MooringErrors", "MooringNoPrimary"})
}

func TestElections(t *testing.T) {
	t.Parallel()
	elections(t, newReplicaSet)
}

func elections(t *testing.T, set func(*testing.T) *fakemongo.Cluster) {
	members := set(t)
	d := begin(t, members.URI("replicaSet=rs&heartbeatFrequencyMS=500"))
	find := func() {
		if r := d.Post(t, path, "{}"); r.Status != http.StatusOK {
			t.Errorf("find = %d %s", r.Status, r.Body)
		}
	}
	n := 0
	elect := func() {
		n++
		members.Host(n % 3).Elect()
		find()
	}
	find() // by the first primary, which no election was seen to make
	elect()
	d.wantMetric(more(1), "mooring_elections_total")
	d.wantReady(http.StatusOK, "")
	d.wantAlerts(elect, []string{"MooringElections"})
}
