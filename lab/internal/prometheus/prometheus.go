// Package prometheus starts Debian's Prometheus as a process, which scrapes gateways, and asks it
// for what it has found. It does not know the gateway's metrics.
//
// A minute of an installation is a second here: Faster divides all durations of a rule or a query
// by 60, and so is the interval of the scrapes, 30 s there.
package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/proc"
)

// Installed reports whether there is a Prometheus to start.
func Installed() bool {
	_, err := exec.LookPath("prometheus")
	return err == nil
}

// Missing is the message of tests that are skipped where Prometheus is not installed.
const Missing = "prometheus is not installed (apt-get install prometheus)"

var durations = regexp.MustCompile(`(\[|\bfor: *)(\d+)([smh])\b`)

// Faster divides the durations of rules or queries by 60: of `for:`, and of ranges such as [5m].
func Faster(text string) string {
	return durations.ReplaceAllStringFunc(text, func(s string) string {
		part := durations.FindStringSubmatch(s)
		d, err := time.ParseDuration(part[2] + part[3])
		if err != nil {
			panic("bug: " + err.Error())
		}
		return part[1] + strconv.FormatInt((d/60).Milliseconds(), 10) + "ms"
	})
}

// Config says what Prometheus scrapes and evaluates.
type Config struct {
	Interval time.Duration // 0: half a second
	Rules    string        // the text of a file of rules; empty: none
	Targets  []string      // host:port
}

// Server represents a running Prometheus.
type Server struct {
	*proc.Process
	url string
}

// Start starts Prometheus and stops it at the end of the test. Its job is named mooring.
func Start(t testing.TB, cfg Config) *Server {
	t.Helper()
	dir := t.TempDir()
	if cfg.Interval == 0 {
		cfg.Interval = 500 * time.Millisecond
	}
	interval := strconv.FormatInt(cfg.Interval.Milliseconds(), 10) + "ms"
	text := fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %[1]s, "+
		"evaluation_interval: %[1]s}\n", interval)
	if cfg.Rules != "" {
		text += "rule_files: [rules.yaml]\n"
		write(t, filepath.Join(dir, "rules.yaml"), cfg.Rules)
	}
	targets, err := json.Marshal(cfg.Targets)
	if err != nil {
		t.Fatal(err)
	}
	text += "scrape_configs: [{job_name: mooring, static_configs: [{targets: " +
		string(targets) + "}]}]\n"
	file := filepath.Join(dir, "prometheus.yaml")
	write(t, file, text)
	p, err := proc.Start(proc.Config{Path: "prometheus", Args: []string{
		"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--query.lookback-delta=5s",
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.Drain()
	t.Cleanup(func() {
		_ = p.Stop(10 * time.Second) // its exit code is of no interest
		if t.Failed() {
			t.Logf("end of Prometheus' log:\n%s", p.Tail())
		}
	})
	return &Server{Process: p, url: "http://" + listening(t, p)}
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	address = regexp.MustCompile(`msg="Listening on" address=(\S+)`)
	ready   = "Server is ready to receive web requests"
)

// listening waits until Prometheus is ready and returns its host:port, which its log names.
func listening(t testing.TB, p *proc.Process) string {
	t.Helper()
	late := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		log := p.Tail()
		if found := address.FindStringSubmatch(log); found != nil && strings.Contains(log, ready) {
			return found[1]
		}
		select {
		case <-tick.C:
		case <-p.Done():
			t.Fatalf("Prometheus has ended:\n%s", log)
		case <-late:
			t.Fatalf("Prometheus is not ready:\n%s", log)
		}
	}
}

// Series holds the labels of a series and its values, of which a query at one time has one.
type Series struct {
	Labels map[string]string
	Values []float64
}

// Query returns what a query yields now.
func (s *Server) Query(ctx context.Context, query string) ([]Series, error) {
	return s.ask(ctx, "query", url.Values{"query": {query}})
}

// Range returns what a query yields at each half second since a time.
func (s *Server) Range(ctx context.Context, query string, since time.Time) ([]Series, error) {
	return s.ask(ctx, "query_range", url.Values{
		"query": {query}, "start": {seconds(since)}, "end": {seconds(time.Now())}, "step": {"0.5"},
	})
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

func (s *Server) ask(ctx context.Context, path string, form url.Values) ([]Series, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/api/v1/"+path,
		strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  json.RawMessage
				Values []json.RawMessage
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", form.Get("query"), err)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", form.Get("query"), answer.Error)
	}
	var all []Series
	for _, result := range answer.Data.Result {
		series := Series{Labels: result.Metric}
		if result.Value != nil {
			result.Values = append(result.Values, result.Value)
		}
		for _, text := range result.Values {
			v, err := value(text)
			if err != nil {
				return nil, err
			}
			series.Values = append(series.Values, v)
		}
		all = append(all, series)
	}
	return all, nil
}

// value returns the value of a pair such as [1700000000.5, "NaN"].
func value(text json.RawMessage) (float64, error) {
	var pair []any
	if err := json.Unmarshal(text, &pair); err != nil {
		return 0, err
	}
	if len(pair) == 2 {
		if s, ok := pair[1].(string); ok {
			return strconv.ParseFloat(s, 64)
		}
	}
	return 0, errors.New("no pair of a time and a value: " + string(text))
}

// Firing returns the names of the alerts that fire now, sorted.
func (s *Server) Firing(ctx context.Context) ([]string, error) {
	all, err := s.Query(ctx, `count by (alertname) (ALERTS{alertstate="firing"})`)
	names := make([]string, 0, len(all))
	for _, series := range all {
		names = append(names, series.Labels["alertname"])
	}
	slices.Sort(names)
	return names, err
}
