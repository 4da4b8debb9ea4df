package watchers_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

const (
	// perBrowser is how many streams share a connection over HTTP/2.
	perBrowser = 150
	// eventEvery is the time between two events.
	eventEvery = time.Second / 3
	// findEvery is the time between two reads beside them.
	findEvery = 10 * time.Millisecond
)

// subscribers has what the test of subscribers needs.
type subscribers struct {
	t          *testing.T
	deployment *deployment.Deployment
	gateway    *gatewaytest.Gateway
	command    string // lab/cmd/subscribers
	authority  string // of the gateway's certificate
	events     int
	http       *http.Client
}

// group is a process with subscribers of one kind.
type group struct {
	*proc.Process
	name    string
	streams int
}

// TestSubscribers has many Server-Sent Events of one collection, nine in ten of them as streams of
// HTTP/2 connections and the rest as connections of HTTP/1.1, share one cursor. Each gets each
// event once, in order.
//
// LAB_SUBSCRIBERS=10000 says how many they are, and LAB_SUBSCRIBERS_FOR=20s how long events come.
// Only then it must be quick: in 99 of 100 cases an event is there within 400 ms of before it was
// written. LAB_SUBSCRIBERS_PROFILE is a directory for profiles of the gateway.
func TestSubscribers(t *testing.T) {
	n, lasts, must := 300, 3*time.Second, false
	if text := os.Getenv("LAB_SUBSCRIBERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		lasts, must = 20*time.Second, true
	}
	if text := os.Getenv("LAB_SUBSCRIBERS_FOR"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := newSubscribers(t, int(lasts/eventEvery))
	base := s.measure()
	single := s.open("HTTP/1.1", n/10, 0)
	afterSingle := s.measure()
	multiplexed := s.open("HTTP/2", (n/10*9+perBrowser-1)/perBrowser, min(perBrowser, n/10*9))
	afterAll := s.measure()
	s.logCost(single, base, afterSingle)
	s.logCost(multiplexed, afterSingle, afterAll)
	if cursors := s.deployment.OpenCursors(); cursors != 1 {
		t.Errorf("the server has %d cursors, want 1", cursors)
	}

	alone := s.finds(min(lasts, 10*time.Second))
	before := s.processors()
	begun := time.Now()
	profiled := s.profile(lasts)
	beside := make(chan []time.Duration, 1)
	// The last event ends all streams at once, which is another load.
	go func() { beside <- s.finds(lasts - eventEvery) }()
	s.write()
	reports := [2]report{s.report(single), s.report(multiplexed)}
	took := time.Since(begun)
	after := s.processors()
	while := <-beside
	profiled()
	if cursors := s.deployment.OpenCursors(); cursors != 1 {
		t.Errorf("the server has %d cursors, want 1", cursors)
	}
	for i, g := range []*group{single, multiplexed} {
		r := reports[i]
		t.Logf("%s: %d events to %d subscribers within %v (p50), %v (p99), %v (all)",
			g.name, r.Events, g.streams, r.P50, r.P99, r.Max)
		if r.Events != g.streams*s.events {
			t.Errorf("%s: %d events, want %d", g.name, r.Events, g.streams*s.events)
		}
		if must && r.P99 > 400*time.Millisecond {
			t.Errorf("%s: p99 is %v, want 400 ms at most", g.name, r.P99)
		}
	}
	t.Logf("%d messages a second for %v", int(float64(reports[0].Events+reports[1].Events)/
		took.Seconds()), took.Round(time.Second))
	share := func(used time.Duration) float64 { return used.Seconds() / took.Seconds() }
	t.Logf("processors: %.2f of the gateway, %.2f of the clients over HTTP/1.1, %.2f of "+
		"those over "+
		"HTTP/2, %.2f of the server and the test", share(after[0]-before[0]), share(reports[0].CPU),
		share(reports[1].CPU), share(after[1]-before[1]))
	t.Logf("findOne: p50 %v, p99 %v of %d alone; p50 %v, p99 %v of %d beside the events",
		quantile(alone, 0.5), quantile(alone, 0.99), len(alone),
		quantile(while, 0.5), quantile(while, 0.99), len(while))
}

// report is what lab/cmd/subscribers reports.
type report struct {
	Events             int
	P50, P99, Max, CPU time.Duration
}

func newSubscribers(t *testing.T, events int) *subscribers {
	t.Helper()
	s := &subscribers{t: t, events: events, command: suite.Command(t, "subscribers")}
	s.deployment = deployment.ListenUnrecorded(t, deployment.ReplicaSet, deployment.Versions[0])
	authority := certtest.Authority(t, certtest.ECDSA)
	certificate := authority.Issue(t, "127.0.0.1")
	s.authority = certtest.File(t, "ca.pem", authority.CertificateBlock())
	s.gateway = suite.Start(t, s.deployment.URI(false, nil),
		"--tls-certificate-file", certtest.File(t, "server.pem", certificate.CertificateBlock()),
		"--tls-key-file", certtest.File(t, "server.key", certificate.KeyBlock(t)),
		"--streams-max", "none", "--streams-max-per-principal", "none")
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: authority.Pool()},
		MaxIdleConnsPerHost: 100,
	}
	t.Cleanup(transport.CloseIdleConnections)
	s.http = &http.Client{Transport: transport}
	s.deployment.SetDocuments(database+".found", bson.NewBuilder(nil).Int32("_id", 1).
		String("name", strings.Repeat("x", 400)).Finish())
	s.finds(time.Second)
	return s
}

// url returns the REST API's address of a path.
func (s *subscribers) url(path string) string {
	return strings.Replace(s.gateway.REST, "http:", "https:", 1) + path
}

// open starts a process with connections, and waits until all its streams are open.
func (s *subscribers) open(name string, connections, streams int) *group {
	s.t.Helper()
	begun := time.Now()
	const patience = 5 * time.Minute
	p, err := proc.Start(proc.Config{Path: s.command, Args: []string{
		"-address", strings.TrimPrefix(s.gateway.REST, "http://"), "-ca", s.authority,
		"-path", "/v1/databases/" + database + "/collections/" + collection + ":watch",
		"-connections", strconv.Itoa(connections), "-streams", strconv.Itoa(streams),
		"-events", strconv.Itoa(s.events), "-timeout", patience.String(),
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = p.Stop(time.Second) })
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if line, err := p.Line(ctx); err != nil || line != "open" {
		s.t.Fatalf("%s: %q, %v", name, line, err)
	}
	g := &group{p, name, connections * max(1, streams)}
	s.t.Logf("%s: %d subscribers on %d connections, opened in %v", name, g.streams, connections,
		time.Since(begun).Round(10*time.Millisecond))
	return g
}

// report waits until the subscribers of a group have had all events.
func (s *subscribers) report(g *group) (r report) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	line, err := g.Line(ctx)
	if err == nil {
		err = json.Unmarshal([]byte(line), &r)
	}
	if err != nil {
		s.t.Fatalf("%s: %v", g.name, err)
	}
	return r
}

// write writes the events, through the gateway.
func (s *subscribers) write() {
	s.t.Helper()
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	for i := range s.events {
		body := fmt.Sprintf(`{"document": {"_id": %d, "at": %d}}`, i, time.Now().UnixMicro())
		if err := s.post(gatewaytest.Documents(database, collection, "insertOne"),
			body); err != nil {
			s.t.Fatal(err)
		}
		<-tick.C
	}
}

func (s *subscribers) post(path, body string) error {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url(path),
		strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// finds reads one document again and again, whether or not the last read has ended, and returns
// how long each took.
func (s *subscribers) finds(lasts time.Duration) (took []time.Duration) {
	var mu sync.Mutex
	var reading sync.WaitGroup
	tick := time.NewTicker(findEvery)
	defer tick.Stop()
	for range int(lasts / findEvery) {
		reading.Go(func() {
			begun := time.Now()
			err := s.post(gatewaytest.Documents(database, "found", "findOne"),
				`{"filter": {"_id": 1}}`)
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, time.Since(begun)); err != nil {
				s.t.Error(err)
			}
		})
		<-tick.C
	}
	reading.Wait()
	return took
}

func quantile(of []time.Duration, share float64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[int(share*float64(len(sorted)-1))].Round(10 * time.Microsecond)
}

// measure collects the gateway's garbage, and returns what it uses.
func (s *subscribers) measure() usage {
	s.t.Helper()
	s.get("heap?gc=1", io.Discard)
	return measure(s.t, s.gateway)
}

// get reads a profile of the gateway.
func (s *subscribers) get(profile string, into io.Writer) {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet,
		s.gateway.Debug+"/debug/pprof/"+profile, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(into, resp.Body); err != nil {
		s.t.Error(err)
	}
}

func (s *subscribers) logCost(g *group, before, after usage) {
	each := func(before, after int64) float64 {
		return float64(after-before) / float64(g.streams) / 1024
	}
	s.t.Logf("%s: each subscriber costs %.1f KiB of resident memory, of which %.1f KiB are heap "+
		"and %.1f KiB stacks, and %.2f goroutines", g.name, each(before.resident, after.resident),
		each(int64(before.Memory.HeapAlloc), int64(after.Memory.HeapAlloc)),
		each(int64(before.Memory.StackInuse), int64(after.Memory.StackInuse)),
		float64(after.Goroutines-before.Goroutines)/float64(g.streams))
}

// processors returns the processor time of the gateway and of this process.
func (s *subscribers) processors() (all [2]time.Duration) {
	for i, pid := range [2]int{s.gateway.Pid(), os.Getpid()} {
		used, err := proc.CPU(pid)
		if err != nil {
			s.t.Logf("processor time is not known: %v", err)
		}
		all[i] = used
	}
	return all
}

// profile writes profiles of the gateway while events come, if they are wanted. The caller calls
// what it returns afterwards.
func (s *subscribers) profile(lasts time.Duration) (wait func()) {
	dir := os.Getenv("LAB_SUBSCRIBERS_PROFILE")
	if dir == "" {
		return func() {}
	}
	var running sync.WaitGroup
	write := func(name, profile string) {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			s.t.Error(err)
			return
		}
		defer f.Close()
		s.get(profile, f)
	}
	write("heap", "heap?gc=1")
	write("goroutines", "goroutine?debug=1")
	running.Go(func() { write("cpu", fmt.Sprintf("profile?seconds=%d", int(lasts.Seconds()))) })
	return running.Wait
}
