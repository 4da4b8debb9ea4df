package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/cmd/gateway/internal/metrics"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/topology"
	_ "github.com/mooringdb/mooring/gen/mooring/v1" // the methods
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/hub"
	"github.com/mooringdb/mooring/service/replica"
)

const find = "/mooring.v1.DocumentService/Find"

// text returns what a scraper gets.
func text(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// scrape returns what a scraper gets, by the name of the metric.
func scrape(t *testing.T, m *metrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value returns the value of the series that has all these labels, each as name=value; of a
// histogram, the number of observations; -1: there is no such series.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	for _, m := range families[name].GetMetric() {
		has := func(label string) bool {
			return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
				return l.GetName()+"="+l.GetValue() == label
			})
		}
		if !slices.ContainsFunc(labels, func(l string) bool { return !has(l) }) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

func series(families map[string]*dto.MetricFamily) (n int) {
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

func TestBuildAndRuntime(t *testing.T) {
	families := scrape(t, metrics.New(metrics.Options{Version: "v1.2.3"}))
	for _, name := range []string{
		"go_goroutines", "go_gc_heap_live_bytes", "process_resident_memory_bytes",
	} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	if value(families, "mooring_build_info", "version=v1.2.3") != 1 {
		t.Errorf("%v", families["mooring_build_info"])
	}
}

func TestCalls(t *testing.T) {
	m := metrics.New(metrics.Options{})
	for range 3 {
		m.Ended(find, false, codes.OK, "", time.Millisecond)
	}
	m.Ended(find, false, codes.NotFound, "NamespaceNotFound", time.Millisecond)
	m.Ended("/mooring.v1.ChangeStreamService/Watch", true, codes.OK, "", time.Hour)
	m.Ended("/a.client/Chose", false, codes.Unimplemented, "Unimplemented", 0)
	m.Ended(find, false, codes.Code(99), "ReasonOfTomorrow", 0)
	m.Refused(codes.Unauthenticated, "Unauthenticated")
	families := scrape(t, m)
	for _, row := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"rpc_server_call_duration_seconds", []string{"rpc_method=mooring.v1.DocumentService/Find", "rpc_response_status_code=OK"}, 3},
		{"rpc_server_call_duration_seconds", []string{"rpc_method=mooring.v1.DocumentService/Find", "rpc_response_status_code=NOT_FOUND"}, 1},
		{"rpc_server_call_duration_seconds", []string{"rpc_method=mooring.v1.DocumentService/Find", "rpc_response_status_code=UNKNOWN"}, 1},
		{"rpc_server_call_duration_seconds", []string{"rpc_method=_OTHER"}, 1},
		{"mooring_streams_ended_total", []string{"rpc_method=mooring.v1.ChangeStreamService/Watch"}, 1},
		{"mooring_errors_total", []string{"reason=NamespaceNotFound", "rpc_response_status_code=NOT_FOUND"}, 1},
		{"mooring_errors_total", []string{"reason=_OTHER", "rpc_response_status_code=UNKNOWN"}, 1},
		{"mooring_errors_total", []string{"reason=Unauthenticated", "rpc_response_status_code=UNAUTHENTICATED"}, 1},
	} {
		if got := value(families, row.name, row.labels...); got != row.want {
			t.Errorf("%s%v = %v, want %v", row.name, row.labels, got, row.want)
		}
	}
}

// emitAll emits one event of each kind for a server.
func emitAll(s *event.Sink, a address.Address) {
	command := event.Command{Name: "find", Address: a}
	s.CommandSucceeded(event.CommandSucceeded{Command: command, Duration: time.Millisecond})
	for _, err := range []error{
		&mongoerr.CommandError{Code: 1}, &mongoerr.NetworkError{Err: io.EOF},
		context.DeadlineExceeded, context.Canceled,
	} {
		s.CommandFailed(event.CommandFailed{Command: command, Err: err})
	}
	command.Name = "made by a client"
	s.CommandSucceeded(event.CommandSucceeded{Command: command})
	s.ConnectionCheckedOut(event.ConnectionCheckedOut{Address: a})
	s.ConnectionCheckOutFailed(event.ConnectionCheckOutFailed{
		Address: a, Reason: event.CheckOutTimeout,
	})
	s.ConnectionReady(event.ConnectionReady{Address: a})
	s.ConnectionClosed(event.ConnectionClosed{Address: a, Reason: event.ClosedIdle})
	s.PoolCleared(event.PoolCleared{Address: a})
	s.ServerHeartbeatFailed(event.ServerHeartbeatFailed{
		Heartbeat: event.Heartbeat{Address: a}, Err: io.EOF,
	})
}

func TestDriver(t *testing.T) {
	m := metrics.New(metrics.Options{})
	s := m.Sink()
	emitAll(s, "early:27017") // of no server of the deployment
	s.ServerOpening(event.ServerOpening{Address: "a:27017"})
	emitAll(s, "a:27017")
	s.OperationRetried(event.OperationRetried{Wait: 2 * time.Second})
	now := time.Now()
	s.ChangesReceived(event.ChangesReceived{
		Events: 5, WallTime: now.Add(-time.Second), ReceivedAt: now,
	})
	s.ChangesReceived(event.ChangesReceived{Events: 2}) // of an old server
	s.ChangeStreamResumed(event.ChangeStreamResumed{})
	s.SeedlistProblem(event.SeedlistProblem{})
	s.MessageCompressed(event.MessageCompressed{Compressor: "zstd", Original: 100, Compressed: 30})
	s.MessageCompressed(event.MessageCompressed{
		Compressor: "zstd", Received: true, Original: 90, Compressed: 20,
	})
	families := scrape(t, m)
	for _, row := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"db_client_operation_duration_seconds", []string{"db_operation_name=find", "server_address=a:27017", "error_type="}, 1},
		{"db_client_operation_duration_seconds", []string{"error_type=server"}, 1},
		{"db_client_operation_duration_seconds", []string{"error_type=network"}, 1},
		{"db_client_operation_duration_seconds", []string{"error_type=timeout"}, 1},
		{"db_client_operation_duration_seconds", []string{"error_type=canceled"}, 1},
		{"db_client_operation_duration_seconds", []string{"db_operation_name=_OTHER"}, 1},
		{"db_client_connection_wait_time_seconds", []string{"db_client_connection_pool_name=a:27017"}, 1},
		{"db_client_connection_timeouts_total", nil, 1},
		{"mooring_pool_checkout_failures_total", []string{"reason=timeout"}, 1},
		{"db_client_connection_create_time_seconds", nil, 1},
		{"mooring_pool_connections_closed_total", []string{"reason=idle"}, 1},
		{"mooring_pool_cleared_total", nil, 1},
		{"mooring_server_heartbeat_failures_total", []string{"server_address=a:27017"}, 1},
		{"mooring_operation_retries_total", nil, 1},
		{"mooring_operation_backoff_seconds_total", nil, 2},
		{"mooring_change_events_total", nil, 7},
		{"mooring_change_stream_lag_seconds", nil, 1},
		{"mooring_change_stream_resumes_total", nil, 1},
		{"mooring_seedlist_problems_total", nil, 1},
		{"mooring_compression_original_bytes_total", []string{"compressor=zstd", "direction=sent"}, 100},
		{"mooring_compression_wire_bytes_total", []string{"compressor=zstd", "direction=received"}, 20},
	} {
		if got := value(families, row.name, row.labels...); got != row.want {
			t.Errorf("%s%v = %v, want %v", row.name, row.labels, got, row.want)
		}
	}
	if strings.Contains(text(t, m), "early:27017") {
		t.Error("there are series of a server that is not of the deployment")
	}
}

// TestServersLeave checks that a server that leaves takes its series with it, and that what comes
// later makes no new ones.
func TestServersLeave(t *testing.T) {
	m := metrics.New(metrics.Options{})
	s := m.Sink()
	s.ServerOpening(event.ServerOpening{Address: "a:27017"})
	emitAll(s, "a:27017")
	before := series(scrape(t, m))
	s.ServerOpening(event.ServerOpening{Address: "b:27017"})
	emitAll(s, "b:27017")
	s.ServerClosed(event.ServerClosed{Address: "b:27017"})
	emitAll(s, "b:27017")
	if after := series(scrape(t, m)); after != before || strings.Contains(text(t, m), "b:27017") {
		t.Errorf("%d series, %d before the server came", after, before)
	}
}

// TestServersLeaveMeanwhile checks that events that arrive while their server leaves make no series
// that stay.
func TestServersLeaveMeanwhile(t *testing.T) {
	m := metrics.New(metrics.Options{})
	s := m.Sink()
	before := series(scrape(t, m))
	for i := range 300 {
		a := address.Address(fmt.Sprintf("left%d:27017", i))
		s.ServerOpening(event.ServerOpening{Address: a})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { emitAll(s, a) })
		}
		s.ServerClosed(event.ServerClosed{Address: a})
		wg.Wait()
	}
	if after := series(scrape(t, m)); after != before {
		t.Errorf("%d series after all servers have left, %d before they came", after, before)
	}
}

func TestElections(t *testing.T) {
	m := metrics.New(metrics.Options{})
	s := m.Sink()
	primary := func(a address.Address, election byte) description.Topology {
		return description.Topology{Servers: []*description.Server{{
			Address: a, Kind: description.ServerRSPrimary, ElectionID: bson.ObjectID{election},
		}}}
	}
	none := description.Topology{}
	lost := description.Topology{MaxElectionID: bson.ObjectID{3}} // by the gateway alone
	for _, row := range []struct {
		name          string
		previous, now description.Topology
		want          float64
	}{
		{"the first", none, primary("a:1", 1), 1},
		{"other news", primary("a:1", 1), primary("a:1", 1), 1},
		{"elected again", primary("a:1", 1), primary("a:1", 2), 2},
		{"another", primary("a:1", 2), primary("b:1", 3), 3},
		{"lost", primary("b:1", 3), lost, 3},
		{"found again", lost, primary("b:1", 3), 3},
		{"elected meanwhile", lost, primary("a:1", 4), 4},
	} {
		s.TopologyDescriptionChanged(event.TopologyDescriptionChanged{
			Previous: row.previous,
			New:      row.now,
		})
		if got := value(scrape(t, m), "mooring_elections_total"); got != row.want {
			t.Errorf("%s: %v elections, want %v", row.name, got, row.want)
		}
	}
}

func sources() metrics.Sources {
	return metrics.Sources{
		Topology: func() description.Topology {
			return description.Topology{
				Kind: description.KindSingle,
				Servers: []*description.Server{
					{Address: "a:1", Kind: description.ServerStandalone, AverageRTT: time.Second},
					{Address: "b:1"},
				},
			}
		},
		Pools: func() []topology.PoolStats {
			return []topology.PoolStats{{Address: "a:1", Stats: pool.Stats{
				Available: 1, InUse: 2, Pending: 3, Cursors: 4, Transactions: 5, Waiting: 6,
				MaxSize: 7, MinSize: 8,
			}}}
		},
		IdleSessions: func() int { return 9 },
		Handles: func() map[handle.Kind]int {
			return map[handle.Kind]int{handle.KindCursor: 10}
		},
		Admission: func() map[string]admission.Usage {
			return map[string]admission.Usage{
				"memory": {Held: 11, Limit: 12, Waiting: 13, Refused: [3]uint64{14, 15, 16}},
			}
		},
		InFlight:    func() int { return 17 },
		Ready:       func() error { return errors.New("no") },
		Stopping:    func() bool { return true },
		Login:       func() error { return nil },
		Certificate: func() time.Time { return time.Unix(1_900_000_000, 0) },
		Files: func() map[string]watch.Outcome {
			return map[string]watch.Outcome{
				"policy":   {Used: true, At: time.UnixMilli(1_900_000_001_500)},
				"api_keys": {At: time.Unix(1_900_000_002, 0)},
			}
		},
		Replicas: func() replica.Stats {
			return replica.Stats{Known: 18, Calls: 19, Unreachable: 20}
		},
		ChangeStreams: func() changestream.Stats {
			return changestream.Stats{
				Own:   21,
				Stats: hub.Stats{Subscribers: 22, Shared: 23, CatchUps: 24, RingBytes: 25},
			}
		},
	}
}

func TestState(t *testing.T) {
	m := metrics.New(metrics.Options{})
	m.SetSources(sources())
	families := scrape(t, m)
	for _, row := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"mooring_topology_kind", []string{"kind=Single"}, 1},
		{"mooring_server_up", []string{"server_address=a:1"}, 1},
		{"mooring_server_up", []string{"server_address=b:1"}, 0},
		{"mooring_server_kind", []string{"server_address=b:1", "kind=Unknown"}, 1},
		{"mooring_server_rtt_seconds", []string{"server_address=a:1"}, 1},
		{"mooring_server_rtt_seconds", []string{"server_address=b:1"}, -1},
		{"mooring_pool_connections", []string{"db_client_connection_state=idle"}, 1},
		{"mooring_pool_connections", []string{"db_client_connection_state=used"}, 2},
		{"mooring_pool_connections_pending", nil, 3},
		{"mooring_pool_connections_pinned", []string{"by=cursor"}, 4},
		{"mooring_pool_connections_pinned", []string{"by=transaction"}, 5},
		{"db_client_connection_pending_requests", nil, 6},
		{"db_client_connection_max", nil, 7},
		{"db_client_connection_idle_min", nil, 8},
		{"mooring_server_sessions_idle", nil, 9},
		{"mooring_handles", []string{"kind=cursor"}, 10},
		{"mooring_handles", []string{"kind=transaction"}, 0},
		{"mooring_admission_used", []string{"resource=memory"}, 11},
		{"mooring_admission_limit", nil, 12},
		{"mooring_admission_waiting", nil, 13},
		{"mooring_admission_refusals_total", []string{"cause=own_share"}, 14},
		{"mooring_admission_refusals_total", []string{"cause=full"}, 15},
		{"mooring_admission_refusals_total", []string{"cause=too_much"}, 16},
		{"mooring_calls_in_flight", nil, 17},
		{"mooring_ready", nil, 0},
		{"mooring_stopping", nil, 1},
		{"mooring_login_ok", nil, 1},
		{"mooring_certificate_not_after_timestamp_seconds", nil, 1_900_000_000},
		{"mooring_config_last_reload_successful", []string{"source=policy"}, 1},
		{"mooring_config_last_reload_successful", []string{"source=api_keys"}, 0},
		{"mooring_config_last_reload_success_timestamp_seconds", []string{"source=policy"}, 1_900_000_001.5},
		{"mooring_config_last_reload_success_timestamp_seconds", []string{"source=api_keys"}, 1_900_000_002},
		{"mooring_replicas_known", nil, 18},
		{"mooring_replica_calls_total", nil, 19},
		{"mooring_replica_unreachable_total", nil, 20},
		{"mooring_change_streams", []string{"cursor=own"}, 21},
		{"mooring_change_streams", []string{"cursor=shared"}, 22},
		{"mooring_change_stream_cursors", []string{"kind=own"}, 21},
		{"mooring_change_stream_cursors", []string{"kind=shared"}, 23},
		{"mooring_change_stream_cursors", []string{"kind=catch_up"}, 24},
		{"mooring_change_stream_ring_bytes", nil, 25},
	} {
		if got := value(families, row.name, row.labels...); got != row.want {
			t.Errorf("%s%v = %v, want %v", row.name, row.labels, got, row.want)
		}
	}
}

// TestNativeHistograms checks that a scraper that asks for the form of protobuf gets native
// histograms, if they are wanted, of no more than 100 buckets.
func TestNativeHistograms(t *testing.T) {
	for _, native := range []bool{false, true} {
		m := metrics.New(metrics.Options{Native: native})
		for took := time.Microsecond; took < 24*time.Hour; took += took / 20 {
			m.Ended(find, false, codes.OK, "", took)
		}
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, r)
		decoder := expfmt.NewDecoder(w.Body, expfmt.Format(w.Header().Get("Content-Type")))
		found := 0
		for {
			var f dto.MetricFamily
			if decoder.Decode(&f) != nil {
				break
			}
			if f.GetName() == "rpc_server_call_duration_seconds" {
				h := f.GetMetric()[0].GetHistogram()
				found = len(h.GetPositiveDelta())
				if len(h.GetBucket()) == 0 {
					t.Error("there are no classic buckets")
				}
			}
		}
		if found > 0 != native || found > 100 {
			t.Errorf("native %v: %d buckets", native, found)
		}
	}
}

// TestNoAllocation checks that counting a call, and a command, makes no allocation.
func TestNoAllocation(t *testing.T) {
	m := metrics.New(metrics.Options{})
	s := m.Sink()
	s.ServerOpening(event.ServerOpening{Address: "a:27017"})
	command := event.CommandSucceeded{Command: event.Command{Name: "find", Address: "a:27017"}}
	if n := testing.AllocsPerRun(1000, func() {
		m.Ended(find, false, codes.OK, "", time.Millisecond)
		m.Ended("/mooring.v1.DocumentService/StreamFind", true, codes.OK, "", time.Second)
		s.CommandSucceeded(command)
		s.ConnectionCheckedOut(event.ConnectionCheckedOut{Address: "a:27017"})
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestLint asks promtool what it thinks of the metrics.
func TestLint(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: prometheus)")
	}
	m := metrics.New(metrics.Options{})
	m.SetSources(sources())
	s := m.Sink()
	s.ServerOpening(event.ServerOpening{Address: "a:27017"})
	emitAll(s, "a:27017")
	m.Ended(find, false, codes.NotFound, "CursorNotFound", 0)
	lint := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	lint.Stdin = strings.NewReader(text(t, m))
	if out, err := lint.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestPage compares the table of docs/metrics.md with the metrics. To rewrite the page:
// MOORING_REWRITE=1 go test ./cmd/gateway/internal/metrics
func TestPage(t *testing.T) {
	const page, begin, end = "../../../../docs/metrics.md", "<!-- metrics begin -->\n",
		"<!-- metrics end -->\n"
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines %q and %q", page, begin, end)
	}
	rows := slices.Clone(metrics.New(metrics.Options{}).Table())
	slices.SortFunc(rows, func(a, b metrics.Row) int { return strings.Compare(a.Name, b.Name) })
	var table bytes.Buffer
	fmt.Fprintf(&table, "| metric | kind | labels | what it says |\n|---|---|---|---|\n")
	for _, r := range rows {
		labels := ""
		if len(r.Labels) > 0 {
			labels = "`" + strings.Join(r.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", r.Name, r.Kind, labels, r.Help)
	}
	now := head + begin + table.String() + end + tail
	if now == string(old) {
		return
	}
	if os.Getenv("MOORING_REWRITE") == "" {
		t.Fatalf("%s is out of date: MOORING_REWRITE=1 go test ./cmd/gateway/internal/metrics",
			page)
	}
	if err := os.WriteFile(page, []byte(now), 0o600); err != nil {
		t.Fatal(err)
	}
}
