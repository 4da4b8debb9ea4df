package drill_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// patience is the most that a test waits for something that takes milliseconds.
const patience = 10 * time.Second

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// drill represents a gateway that runs, and what it shows.
type drill struct {
	*gatewaytest.Gateway
	t      *testing.T
	admin  string // http://host:port
	log    *journal
	before map[string]float64
}

// begin starts a gateway, waits until it is ready, and notes its metrics.
func begin(t *testing.T, uri string, args ...string) *drill {
	t.Helper()
	d := &drill{t: t, log: &journal{}}
	dir := t.TempDir()
	started, err := gateway.Start(t.Context(), gateway.Config{
		Binary: suite.Gateway(t), URI: uri, Directory: dir, Log: d.log,
		Args: append([]string{"--admin-address", "127.0.0.1:0", "--drain-timeout", "1s"}, args...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = started.Kill()
		if t.Failed() {
			t.Logf("the gateway's log:\n%s", d.log)
		}
	})
	d.Gateway = &gatewaytest.Gateway{Gateway: started}
	text, err := os.ReadFile(filepath.Join(dir, "addresses.json"))
	if err != nil {
		t.Fatal(err)
	}
	var addresses struct{ Admin string }
	if err := json.Unmarshal(text, &addresses); err != nil {
		t.Fatal(err)
	}
	d.admin = "http://" + addresses.Admin
	if slices.Contains(args, "--tls-certificate-file") {
		d.REST = strings.Replace(d.REST, "http:", "https:", 1)
	}
	d.wantReady(http.StatusOK, "")
	d.before = d.scrape()
	return d
}

// get requests url and returns the status and the body; the status is 0 if there is no answer.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test's own
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// wantReady waits until /readyz answers with this status and text.
func (d *drill) wantReady(status int, text string) {
	d.t.Helper()
	gatewaytest.Eventually(d.t, patience, func() error {
		got, body := get(d.t, d.REST+"/readyz")
		if got != status || !strings.Contains(body, text) {
			return fmt.Errorf("/readyz = %d %s, want %d with %q", got, body, status, text)
		}
		return nil
	})
}

// wantLog waits until a line of the log has all of these texts.
func (d *drill) wantLog(texts ...string) {
	d.t.Helper()
	gatewaytest.Eventually(d.t, patience, func() error {
		for line := range strings.Lines(d.log.String()) {
			if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(line, s) }) {
				return nil
			}
		}
		return fmt.Errorf("no line of the log has %q", texts)
	})
}

// wantMetric waits until a series whose name and labels contain all of these texts satisfies ok.
func (d *drill) wantMetric(ok func(float64) bool, texts ...string) {
	d.t.Helper()
	gatewaytest.Eventually(d.t, patience, func() error {
		all := d.scrape()
		for series, value := range all {
			if ok(value) && !slices.ContainsFunc(texts, func(s string) bool {
				return !strings.Contains(series, s)
			}) {
				return nil
			}
		}
		return fmt.Errorf("no series has %q and the value that it should have", texts)
	})
}

// is and more are conditions of wantMetric.
func is(want float64) func(float64) bool    { return func(v float64) bool { return v == want } }
func more(least float64) func(float64) bool { return func(v float64) bool { return v > least } }

// scrape returns the values of all series, by name and labels.
func (d *drill) scrape() map[string]float64 {
	d.t.Helper()
	_, text := get(d.t, d.admin+"/metrics")
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			d.t.Fatalf("%q: %v", line, err)
		}
		all[line[:at]] = v
	}
	if len(all) == 0 {
		d.t.Fatalf("no metrics: %q", text)
	}
	return all
}

// counters are the series that only grow.
var counters = regexp.MustCompile(`^\w+(_total|_count|_sum|_bucket)\b`)

// wantAlerts asks promtool which alerts fire if the fault goes on for ten minutes as it is: gauges
// stay, and each scrape (15 s) finds that counters have grown as they have since begin.
func (d *drill) wantAlerts(want ...string) {
	d.t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		d.t.Log("promtool is not installed (Debian: prometheus): the alerts are not tested")
		return
	}
	root, err := gatewaytest.Root()
	if err != nil {
		d.t.Fatal(err)
	}
	after := d.scrape()
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%q]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n"+
		"    input_series:\n      - {series: 'up{job=\"mooring\",instance=\"a\"}', values: '1x60'}\n",
		filepath.Join(root, "deploy/prometheus/alerts.yaml"))
	for _, series := range slices.Sorted(maps.Keys(after)) {
		v, values := after[series], ""
		if strings.HasPrefix(series, "mooring_certificate_not_after") {
			v -= float64(time.Now().Unix()) // promtool's clock begins at 0
		}
		if counters.MatchString(series) {
			values = fmt.Sprintf("0+%gx60", max(0, v-d.before[series]))
		} else {
			values = fmt.Sprintf("%gx60", v)
		}
		name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		if labels != "" {
			labels += ","
		}
		text, err := json.Marshal(name + "{" + labels + `instance="a"}`)
		if err != nil {
			d.t.Fatal(err)
		}
		fmt.Fprintf(&b, "      - {series: %s, values: '%s'}\n", text, values)
	}
	b.WriteString("    promql_expr_test:\n" +
		"      - expr: count by (alertname) (ALERTS{alertstate=\"firing\"})\n" +
		"        eval_time: 10m\n        exp_samples:\n")
	for _, name := range want {
		fmt.Fprintf(&b, "          - {labels: '{alertname=%q}', value: 1}\n", name)
	}
	file := filepath.Join(d.t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		d.t.Fatal(err)
	}
	out, err := exec.CommandContext(d.t.Context(), promtool, "test", "rules", file).CombinedOutput()
	if err != nil {
		d.t.Errorf("the alerts are not %q: %v\n%s", want, err, out)
	}
}

// journal keeps what the gateway logs.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
