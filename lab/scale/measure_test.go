package scale_test

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
	"github.com/mooringdb/mooring/lab/scale"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// TestMeasure puts the load of the simulation on 1, 3 and 8 real replicas, and counts the
// connections that the server holds. LAB_SCALE=1 (make scale) does it; the points go to testdata.
func TestMeasure(t *testing.T) {
	if os.Getenv("LAB_SCALE") == "" {
		t.Skip("set LAB_SCALE=1 to measure for some minutes")
	}
	var points []scale.Point
	for _, n := range []int{1, 3, 8} {
		points = append(points, measure(t, n))
	}
	text, err := json.MarshalIndent(points, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/measured.json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func measure(t *testing.T, n int) scale.Point {
	server := fakemongo.NewTCPServer(t, nil)
	server.Handle("slow", func(*fakemongo.Command) fakemongo.Reply {
		held := time.Duration(rand.ExpFloat64() * load.Service * float64(time.Second))
		return fakemongo.OK(nil).After(held)
	})
	all := suite.StartReplicas(t, n, server.URI())
	client := &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 200}, Timeout: time.Minute,
	}
	for i := range n { // one call each, so that every replica is ready
		if err := call(client, all.Replica(i).REST); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(),
		time.Duration(load.Seconds*float64(time.Second)))
	defer cancel()
	var calls sync.WaitGroup
	next := time.Now()
	requests := 0
	for ctx.Err() == nil {
		next = next.Add(time.Duration(rand.ExpFloat64() / load.Rate * float64(time.Second)))
		timer := time.NewTimer(time.Until(next))
		<-timer.C
		url := all.Replica(rand.IntN(n)).REST
		requests++
		calls.Go(func() {
			if err := call(client, url); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	rss, err := proc.RSS(all.Replica(0).Pid())
	if err != nil {
		t.Fatal(err)
	}
	p := scale.Point{Replicas: n, Connections: server.OpenConnections()}
	t.Logf("%d replicas, %d requests: the server holds %d connections; a replica takes %d MiB",
		n, requests, p.Connections, rss>>20)
	all.Stop()
	return p
}

func call(c *http.Client, rest string) error {
	resp, err := c.Post(rest+"/v1/databases/db:runCommand", "application/json",
		strings.NewReader(`{"command":{"slow":1}}`))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
