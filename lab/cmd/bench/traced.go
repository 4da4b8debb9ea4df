package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// sampled is the share of the traces that the gateway with traces records and sends.
const sampled = "1%"

// startTraced starts the gateway with traces, and the collector that it sends them to.
func (b *bench) startTraced(ctx context.Context, binary, uri string) (err error) {
	if b.collector, _, err = b.start(ctx, "collector"); err != nil {
		return err
	}
	b.traced, err = b.startGateway(ctx, "mooring, traces", gateway.Config{
		Binary: binary, URI: uri, Args: []string{"--tracing-sampling", sampled},
		Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + b.collector},
	})
	return err
}

// tracedCases returns the finds with traces on and off.
func (b *bench) tracedCases() []scenario {
	return append(b.added("find-one-traces", b.traced, findOne),
		b.added("find-100-traces", b.traced, find100)...)
}

// checkCollector stops the gateway with traces, which sends its last spans then, and makes sure
// that spans have arrived: otherwise that gateway was measured without them.
func (b *bench) checkCollector(ctx context.Context) error {
	for _, p := range b.processes {
		if p.Pid() != b.traced.pid {
			continue
		}
		if err := p.Stop(10 * time.Second); err != nil {
			return fmt.Errorf("%s: %w", b.traced.name, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.collector, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var received int64
	if _, err := fmt.Fscan(resp.Body, &received); err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	if received == 0 {
		return errors.New("the collector has received no spans")
	}
	return nil
}

// collector implements the receiver of OTLP over HTTP. It throws away what it receives, and tells
// how many bytes that was.
type collector struct{ received atomic.Int64 }

// ServeHTTP receives spans, or tells how many bytes have arrived.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		fmt.Fprintln(w, c.received.Load())
		return
	}
	n, _ := io.Copy(io.Discard, r.Body) // the client hears of its own errors
	c.received.Add(n)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// runCollector runs a collector. It prints its URL.
func runCollector(ctx context.Context, _ []string) error {
	l, err := listen(ctx)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: &collector{}, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	fmt.Println("http://" + l.Addr().String())
	<-ctx.Done()
	return s.Close()
}
