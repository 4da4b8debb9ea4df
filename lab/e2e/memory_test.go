package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

const (
	memoryDocuments  = 200_000
	memoryCollection = "docs_200000_1024"
	memoryBudget     = 10 << 20 // above the idle figure
)

// TestMemory streams 200,000 documents of 1 KB and looks at what the kernel says that the gateway
// needed for it, at most.
func TestMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel here does not tell a process's peak memory")
	}
	if testing.Short() {
		t.Skip("streams 200 MB four times")
	}
	server := startCanned(t)
	fast := func(int) {}
	for name, stream := range map[string]func(testing.TB, *gatewaytest.Gateway, func(int)) int{
		"gRPC": streamGRPC, "NDJSON": streamNDJSON,
	} {
		t.Run(name, func(t *testing.T) { wantSmall(t, server, stream, fast) })
		t.Run(name+", slow reader", func(t *testing.T) { wantSmall(t, server, stream, slowly(t)) })
	}
}

// slowly stops a reader for two seconds after its first message, so that every buffer on the way
// is full, and then slows it down to about 25 MB a second.
func slowly(t testing.TB) func(int) {
	first, behind := true, 0
	return func(bytes int) {
		behind += bytes
		switch {
		case first:
			first = false
			pause(t, 2*time.Second)
		case behind > 1<<20:
			behind = 0
			pause(t, 40*time.Millisecond)
		}
	}
}

func pause(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func wantSmall(t *testing.T, server *canned.Server,
	stream func(testing.TB, *gatewaytest.Gateway, func(int)) int, read func(
		int,
	),
) {
	g := suite.Start(t, server.URI())
	// It has connected and is idle.
	g.Post(t, gatewaytest.Documents("lab", "docs_1_1024", "findOne"), `{}`)
	idle, err := proc.RSS(g.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := proc.ResetPeakRSS(g.Pid()); err != nil {
		t.Skipf("the peak cannot be reset here: %v", err)
	}
	start := time.Now()
	if n := stream(t, g, read); n != memoryDocuments {
		t.Fatalf("%d documents, want %d", n, memoryDocuments)
	}
	elapsed := time.Since(start)
	peak, err := proc.PeakRSS(g.Pid())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("idle %.1f MiB, peak %.1f MiB: %.1f MiB more, in %.1f s", mib(idle), mib(peak),
		mib(peak-idle), elapsed.Seconds())
	if peak-idle > memoryBudget {
		t.Errorf("%.1f MiB above idle, want at most %d", mib(peak-idle), memoryBudget>>20)
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

func streamGRPC(t testing.TB, g *gatewaytest.Gateway, read func(int)) int {
	t.Helper()
	stream, err := g.Documents(t).StreamFind(t.Context(), &mooringv1.StreamFindRequest{
		Database: "lab", Collection: memoryCollection,
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatalf("after %d documents: %v", n, err)
		}
		size := 0
		for _, d := range message.GetDocuments() {
			size += len(d.GetBson())
		}
		n += len(message.GetDocuments())
		read(size)
	}
}

func streamNDJSON(t testing.TB, g *gatewaytest.Gateway, read func(int)) int {
	t.Helper()
	resp := g.Open(t, t.Context(), http.MethodPost,
		gatewaytest.Documents("lab", memoryCollection, "streamFind"), `{}`,
		gatewaytest.Header{Name: "Accept", Value: "application/x-ndjson"})
	defer resp.Body.Close()
	n := 0
	last := readLines(t, resp.Body, func(d json.RawMessage) {
		if n == 0 || n%100 == 0 {
			read(100 * len(d))
		}
		n++
	})
	if last.End == nil {
		t.Fatalf("after %d documents: %s", n, describe(last))
	}
	return n
}

func describe(l line) string {
	if l.Error != nil {
		return fmt.Sprintf("error %+v", *l.Error)
	}
	return "no last line"
}
