package servicetest_test

import (
	"errors"
	"io"
	"runtime/metrics"
	"testing"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/servicetest"
	"github.com/mooringdb/mooring/service/stream"
)

// created returns the number of goroutines that the process has started.
func created() uint64 {
	sample := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestGoroutinesOfStream checks that a stream of 1,000 messages over gRPC starts no goroutine for
// each of them.
func TestGoroutinesOfStream(t *testing.T) {
	const messages, most = 1000, 50 // the stream, its cursor and gRPC have some of their own
	server := fakemongo.NewServer(t, nil)
	server.SetDocuments("d.c", servicetest.Docs(messages, 100)...)
	g := servicetest.Start(t, server, servicetest.Config{Streams: stream.Config{MessageBytes: 1}})
	if _, err := g.Document.FindOne(t.Context(),
		&mooringv1.FindOneRequest{Database: "d", Collection: "c"}); err != nil {
		t.Fatal(err) // the connections are open now
	}
	before := created()
	ss, err := g.Document.StreamFind(t.Context(),
		&mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
	n := 0
	for ; err == nil; n++ {
		_, err = ss.Recv()
	}
	if !errors.Is(err, io.EOF) || n < messages {
		t.Fatalf("%d messages, %v", n, err)
	}
	started := created() - before
	t.Logf("%d goroutines for %d messages", started, messages)
	if started > most {
		t.Errorf("%d goroutines for %d messages, want at most %d", started, messages, most)
	}
}
