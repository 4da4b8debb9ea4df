// Package tracing sends the gateway's traces to a collector: a span for each call that comes in,
// and below it those of the driver (see package spans). The standard environment variables of
// OpenTelemetry say where to. Unless they name a collector there is no Tracing, and nothing on the
// way of a call knows of it.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventtrace"
	"github.com/mooringdb/mooring/internal/spans"
)

// Config says what the spans have in common.
type Config struct {
	Version string // of the gateway
	// Sampling is the share of traces that are recorded of those that begin here, from 0 to 1;
	// nil: the environment says it.
	Sampling *float64
	Log      *slog.Logger
}

// Tracing makes the gateway's spans and sends them. A nil *Tracing makes none.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sampler  *sampler
}

// scope names the gateway as the maker of its spans.
const scope = "github.com/mooringdb/mooring"

// New returns what makes spans, nil if the environment names no collector. It does not connect to
// the collector, and the gateway works if that cannot be reached.
func New(ctx context.Context, cfg Config) (*Tracing, error) {
	on, err := enabled()
	if !on || err != nil {
		return nil, err
	}
	defer hideReplaced()()
	if err := checkVariables(); err != nil {
		return nil, err
	}
	bad := &unusable{}
	otel.SetLogger(logr.New(bad))
	defer otel.SetLogger(logr.Discard())
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, err
	}
	// The only way to hear of spans that could not be sent.
	otel.SetErrorHandler(newComplaints(cfg.Log))
	t, err := newTracing(ctx, cfg, func() sdktrace.TracerProviderOption {
		return sdktrace.WithBatcher(exporter)
	})
	if err != nil {
		return nil, err
	}
	if bad.err != nil {
		_ = t.Close(ctx) // it has no span
		return nil, bad.err
	}
	return t, nil
}

// newTracing calls export, which may start a goroutine, when nothing can fail any more.
func newTracing(
	ctx context.Context, cfg Config, export func() sdktrace.TracerProviderOption,
) (*Tracing, error) {
	s, err := newSampler(cfg.Sampling)
	if err != nil {
		return nil, err
	}
	made, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "mooring"),
			attribute.String("service.version", cfg.Version)),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		export(), sdktrace.WithResource(made), sdktrace.WithSampler(s),
		sdktrace.WithIDGenerator(ids{}))
	tracer := provider.Tracer(scope, trace.WithInstrumentationVersion(cfg.Version))
	return &Tracing{provider, tracer, s}, nil
}

// Close sends the spans that have ended, and ends the sending.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// Sink returns the sink that makes the driver's spans; nil if there are none.
func (t *Tracing) Sink() *event.Sink {
	if t == nil {
		return nil
	}
	enabled, maxQueryText := eventtrace.FromEnvironment(os.Getenv)
	if !enabled && os.Getenv(eventtrace.EnabledVariable) != "" {
		return nil
	}
	return spans.Sink(t.tracer, maxQueryText)
}

// SetSampling changes the share of traces that are recorded; nil: as the environment says.
func (t *Tracing) SetSampling(share *float64) {
	if t == nil {
		return
	}
	t.sampler.set(share)
}

// The environment variables that are read here. Those of the exporters, of their batches and of
// the limits of spans are read by OpenTelemetry's own packages.
const (
	disabledVariable       = "OTEL_SDK_DISABLED"
	exporterVariable       = "OTEL_TRACES_EXPORTER"
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocolVariable       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	samplerVariable        = "OTEL_TRACES_SAMPLER"
	samplerArgVariable     = "OTEL_TRACES_SAMPLER_ARG"
)

// enabled reports whether the environment asks for traces: it names a collector, or OTLP.
func enabled() (bool, error) {
	if disabled, err := strconv.ParseBool(os.Getenv(disabledVariable)); err == nil && disabled {
		return false, nil
	}
	switch name := os.Getenv(exporterVariable); name {
	case "none":
		return false, nil
	case "otlp":
		return true, nil
	case "":
		return os.Getenv(endpointVariable) != "" || os.Getenv(tracesEndpointVariable) != "", nil
	default:
		return false, fmt.Errorf("%s: %q is neither otlp nor none", exporterVariable, name)
	}
}

func newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	variable := tracesProtocolVariable
	protocol := os.Getenv(variable)
	if protocol == "" {
		variable = protocolVariable
		protocol = os.Getenv(variable)
	}
	switch protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "", "http/protobuf":
		if err := checkURLs(); err != nil {
			return nil, err
		}
		return otlptracehttp.New(ctx)
	}
	return nil, fmt.Errorf("%s: %q is neither http/protobuf nor grpc", variable, protocol)
}

// sampler decides by another sampler, which may change.
type sampler struct {
	environment sdktrace.Sampler
	current     atomic.Pointer[sdktrace.Sampler]
}

var _ sdktrace.Sampler = (*sampler)(nil)

func newSampler(share *float64) (*sampler, error) {
	configured, err := samplerFromEnvironment()
	if err != nil {
		return nil, err
	}
	s := &sampler{environment: configured}
	s.set(share)
	return s, nil
}

func (s *sampler) set(share *float64) {
	next := s.environment
	if share != nil {
		next = sdktrace.ParentBased(sdktrace.TraceIDRatioBased(*share))
	}
	s.current.Store(&next)
}

// ShouldSample decides about one span.
func (s *sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return (*s.current.Load()).ShouldSample(p)
}

// Description names the sampler that decides at present.
func (s *sampler) Description() string { return (*s.current.Load()).Description() }

// samplerFromEnvironment returns the sampler that OTEL_TRACES_SAMPLER names.
func samplerFromEnvironment() (sdktrace.Sampler, error) {
	share := 1.0
	if text := os.Getenv(samplerArgVariable); text != "" {
		var err error
		if share, err = strconv.ParseFloat(text, 64); err != nil || !(share >= 0 && share <= 1) {
			return nil, fmt.Errorf("%s: %q is not a number from 0 to 1", samplerArgVariable, text)
		}
	}
	switch name := os.Getenv(samplerVariable); name {
	case "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio":
		return sdktrace.TraceIDRatioBased(share), nil
	case "", "parentbased_always_on":
		return sdktrace.ParentBased(sdktrace.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample()), nil
	case "parentbased_traceidratio":
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share)), nil
	default:
		return nil, fmt.Errorf("%s: %q is not one of always_on, always_off, traceidratio, "+
			"parentbased_always_on, parentbased_always_off and parentbased_traceidratio",
			samplerVariable, name)
	}
}

// complaints logs what goes wrong in OpenTelemetry's own goroutines: at most one line in a while,
// since a collector that cannot be reached fails each batch.
type complaints struct {
	log  *slog.Logger
	last atomic.Int64 // the time of the last line, in nanoseconds
}

func newComplaints(log *slog.Logger) *complaints { return &complaints{log: log} }

// complainEvery is the least time between two lines.
const complainEvery = time.Minute

// Handle logs an error.
func (c *complaints) Handle(err error) {
	now, last := time.Now().UnixNano(), c.last.Load()
	if now-last < int64(complainEvery) || !c.last.CompareAndSwap(last, now) {
		return
	}
	c.log.Warn("traces cannot be sent", "err", err)
}

// propagator reads and writes the headers of the W3C: traceparent and tracestate.
var propagator = propagation.TraceContext{}
