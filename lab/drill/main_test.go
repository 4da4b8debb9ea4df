package drill_test

import (
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/prometheus"
)

// patience is the most that a test waits for something that takes milliseconds.
const patience = time.Minute

// alertPatience is the same for an alert, which takes seconds.
const alertPatience = time.Minute

var suite = gatewaytest.New()

// TestMain has four faults at a time: they mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(suite.Run(m))
}

// drill represents a gateway that runs, and what it shows.
type drill struct {
	*gatewaytest.Gateway
	t   *testing.T
	log *journal
}

// begin starts a gateway and waits until it is ready.
func begin(t *testing.T, uri string, args ...string) *drill {
	t.Helper()
	d := &drill{t: t, log: &journal{}}
	started, err := gateway.Start(t.Context(), gateway.Config{
		Binary: suite.Gateway(t), URI: uri, Directory: t.TempDir(), Log: d.log,
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
	if slices.Contains(args, "--tls-certificate-file") {
		d.REST = strings.Replace(d.REST, "http:", "https:", 1)
	}
	d.wantReady(http.StatusOK, "")
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
			if !slices.ContainsFunc(texts, func(s string) bool {
				return !strings.Contains(line, s)
			}) {
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
		_, all, err := prometheus.Scrape(d.t.Context(), d.Admin+"/metrics")
		if err != nil {
			return err
		}
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

// wantAlerts waits until the alerts that fire on a Prometheus are all of want, and none but these
// and those that may fire. It calls fault again and again meanwhile, unless fault is nil. It is the
// last check of a test, which it skips if there is no Prometheus.
func (d *drill) wantAlerts(fault func(), want []string, may ...string) {
	d.t.Helper()
	if !prometheus.Installed() {
		d.t.Skip(prometheus.Missing)
	}
	root, err := gatewaytest.Root()
	if err != nil {
		d.t.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/alerts.yaml"))
	if err != nil {
		d.t.Fatal(err)
	}
	p := prometheus.Start(d.t, prometheus.Config{
		Rules:   prometheus.Faster(string(rules)),
		Targets: []string{strings.TrimPrefix(d.Admin, "http://")},
	})
	gatewaytest.Eventually(d.t, alertPatience, func() error {
		if fault != nil {
			fault()
		}
		fire, err := p.Firing(d.t.Context())
		if err != nil {
			return err
		}
		fire = slices.DeleteFunc(fire, func(name string) bool { return slices.Contains(may, name) })
		if !slices.Equal(fire, want) {
			return fmt.Errorf("the alerts %q fire, want %q", fire, want)
		}
		return nil
	})
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
