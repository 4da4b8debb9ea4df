package tracing

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// NewRecorded returns a Tracing whose spans end in memory.
func NewRecorded(t *testing.T, sampling *float64) (*Tracing, *tracetest.InMemoryExporter) {
	t.Helper()
	memory := tracetest.NewInMemoryExporter()
	made, err := newTracing(context.Background(), Config{Version: "v1", Sampling: sampling},
		func() sdktrace.TracerProviderOption { return sdktrace.WithSyncer(memory) })
	if err != nil {
		t.Fatal(err)
	}
	return made, memory
}

// NewComplaints returns what handles the errors of OpenTelemetry's goroutines.
var NewComplaints = newComplaints
