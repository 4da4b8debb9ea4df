package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

const drainStreams = 50

// TestTermination sends SIGTERM while 50 streams run, half of them over gRPC.
func TestTermination(t *testing.T) {
	for _, row := range []struct {
		name       string
		collection string
		documents  int // 0: the stream has no end
		drain      time.Duration
		stalled    bool
	}{
		{"streams that end in time complete", "docs_10000_1024", 10_000, time.Minute, false},
		{"streams that do not end are cut", endless, 0, 3 * time.Second, false},
		// Every buffer on their way is full, so the gateway can tell them nothing more.
		{"streams without a reader are cut", endless, 0, 3 * time.Second, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := startCanned(t)
			g := suite.Start(t, server.URI(), "--drain-timeout", row.drain.String())
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()

			streams := startStreams(ctx, t, g, row.collection)
			streams.running.Wait()
			start := time.Now()
			if err := g.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if !row.stalled {
				close(streams.goOn)
			}
			if err := wantRefused(ctx, g); err != nil {
				t.Error(err)
			}
			code, err := g.Wait(ctx)
			elapsed := time.Since(start)
			if code != 0 || err != nil {
				t.Errorf("exit code %d, %v", code, err)
			}
			// A busy machine takes some seconds for the rest of the stop.
			if elapsed > row.drain+10*time.Second {
				t.Errorf("it took %v, the drain time is %v", elapsed, row.drain)
			}
			if row.stalled {
				close(streams.goOn)
			}
			streams.done.Wait()
			complete, cut := 0, 0
			for i, r := range streams.results {
				switch {
				case row.stalled && !r.complete:
					cut++
				case r.err != nil:
					t.Errorf("stream %d after %d documents: %v", i, r.documents, r.err)
				case r.complete && r.documents == row.documents:
					complete++
				case r.unavailable && row.documents == 0:
					cut++
				default:
					t.Errorf("stream %d: %+v", i, r)
				}
			}
			t.Logf("%d complete, %d cut, exit after %.1f s", complete, cut, elapsed.Seconds())
			if s := server.Stats(); s.CursorsOpen != 0 || s.Connections != 0 {
				t.Errorf("left on the server: %+v", s)
			}
		})
	}
}

// outcome is how one stream ended.
type outcome struct {
	documents   int
	complete    bool
	unavailable bool
	err         error // any other end
}

// streams are the clients of a test.
type streams struct {
	running sync.WaitGroup // until each has its first documents
	goOn    chan struct{}  // closed when they may read on
	done    sync.WaitGroup
	results []outcome
}

func startStreams(
	ctx context.Context, t *testing.T, g *gatewaytest.Gateway, collection string,
) *streams {
	t.Helper()
	s := &streams{goOn: make(chan struct{}), results: make([]outcome, drainStreams)}
	documents := g.Documents(t)
	for i := range s.results {
		s.running.Add(1)
		first := sync.OnceFunc(func() {
			s.running.Done()
			<-s.goOn
		})
		s.done.Go(func() {
			if i%2 == 0 {
				s.results[i] = drainGRPC(ctx, documents, collection, first)
			} else {
				s.results[i] = drainNDJSON(ctx, g, collection, first)
			}
			first()
		})
	}
	return s
}

// pace keeps 50 readers from taking the whole machine.
const pace = 20 * time.Millisecond

func drainGRPC(ctx context.Context, c mooringv1.DocumentServiceClient, collection string,
	first func(),
) (o outcome) {
	stream, err := c.StreamFind(ctx,
		&mooringv1.StreamFindRequest{Database: "lab", Collection: collection})
	if err != nil {
		return outcome{err: err}
	}
	for {
		message, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			o.complete = true
			return o
		case status.Code(err) == codes.Unavailable:
			o.unavailable = true
			return o
		case err != nil:
			o.err = err
			return o
		}
		o.documents += len(message.GetDocuments())
		first()
		<-time.After(pace)
	}
}

func drainNDJSON(ctx context.Context, g *gatewaytest.Gateway, collection string,
	first func(),
) (o outcome) {
	req, err := newRequest(ctx, g.REST+gatewaytest.Documents("lab", collection, "streamFind"))
	if err != nil {
		return outcome{err: err}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return outcome{err: err}
	}
	defer resp.Body.Close()
	scanner := bufio.NewScanner(resp.Body)
	scanner.Buffer(make([]byte, 64<<10), 1<<20)
	var last line
	for scanner.Scan() {
		if last, err = parseLine(scanner.Bytes()); err != nil {
			return outcome{
				documents: o.documents, err: fmt.Errorf("%w in %.200s", err, scanner.Bytes()),
			}
		}
		if last.Document == nil {
			continue
		}
		o.documents++
		first()
		if o.documents%500 == 0 {
			<-time.After(pace)
		}
	}
	o.complete = last.End != nil
	o.unavailable = last.Error != nil && last.Error.Status == "UNAVAILABLE"
	if !o.complete && !o.unavailable {
		o.err = fmt.Errorf("no last line: %w, %+v", errors.Join(scanner.Err()), last.Error)
	}
	return o
}

// wantRefused blocks until a new stream is refused: with UNAVAILABLE, or because the gateway no
// longer listens. Its patience ends before the drain does, after which nothing is taken anyway.
func wantRefused(ctx context.Context, g *gatewaytest.Gateway) error {
	ctx, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
	defer cancel()
	for {
		req, err := newRequest(ctx, g.REST+gatewaytest.Documents("lab", endless, "streamFind"))
		if err != nil {
			return err
		}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if ctx.Err() != nil {
			return errors.New("2.5 s after SIGTERM new streams are still taken")
		}
		if err != nil {
			return nil
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return nil
		}
	}
}
