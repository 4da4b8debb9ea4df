package metrics

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// calls counts the calls of clients. Its methods make no allocation once a method has ended with a
// code.
type calls struct {
	durations *prometheus.HistogramVec
	streams   *prometheus.CounterVec
	errors    *prometheus.CounterVec
	lost      *prometheus.CounterVec // lines of the audit log
	unlisted  *prometheus.CounterVec // refusals that it has in a summary only
	floods    *prometheus.CounterVec // what is refused and closed before calls
	methods   map[string]*method     // by full name, as gRPC has it
	other     *method
}

// numCodes is the number of the codes of gRPC.
const numCodes = int(codes.Unauthenticated) + 1

// other stands for values that no table has.
const other = "_OTHER"

// method holds the series of one method, which are resolved when they are first used.
type method struct {
	name  string
	unary [numCodes]atomic.Pointer[prometheus.Observer]
	ended [numCodes]atomic.Pointer[prometheus.Counter]
}

func (c *calls) init(m *Metrics) {
	c.durations = m.histogram("rpc_server_call_duration_seconds",
		"How long unary calls took, over gRPC and REST, by method and gRPC status.",
		"rpc_method", "rpc_response_status_code")
	c.streams = m.counter("mooring_streams_ended_total",
		"Streams that have ended, by method and gRPC status.",
		"rpc_method", "rpc_response_status_code")
	c.errors = m.counter("mooring_errors_total",
		"Calls that failed, and requests that were refused before they were calls, by the reason "+
			"that the client gets and the gRPC status.",
		"reason", "rpc_response_status_code")
	c.lost = m.counter("mooring_audit_lines_lost_total",
		"Lines that the audit log has not, by reason: full (it is written too slowly) or failed "+
			"(it cannot be written).",
		"reason")
	for _, reason := range []string{audit.Full, audit.Failed} {
		c.lost.WithLabelValues(reason)
	}
	c.unlisted = m.counter("mooring_audit_refusals_summarized_total",
		"Refusals that the audit log has in a summary, and not in lines of their own.")
	c.unlisted.WithLabelValues()
	c.floods = m.counter("mooring_flood_refusals_total",
		"What is refused before it is known who calls, by kind: connections (reset when they are "+
			"accepted), calls (connections closed, since too many of their calls do no work) "+
			"or streams (of health and reflection).",
		"kind")
	for _, kind := range []string{flood.Connections, flood.Calls, flood.Streams} {
		c.floods.WithLabelValues(kind)
	}
	c.methods, c.other = map[string]*method{}, &method{name: other}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				d := methods.Get(j)
				name := string(d.Parent().FullName()) + "/" + string(d.Name())
				c.methods["/"+name] = &method{name: name}
			}
		}
		return true
	})
}

func (c *calls) method(name string) *method {
	if m := c.methods[name]; m != nil {
		return m
	}
	return c.other
}

// Ended counts a call that has ended: of a method such as /mooring.v1.DocumentService/Find, with
// the code of its status and, unless it succeeded, the reason.
func (m *Metrics) Ended(name string, stream bool, code codes.Code, reason string,
	took time.Duration,
) {
	c := &m.calls
	if code != codes.OK {
		c.failed(code, reason)
	}
	if int(code) >= numCodes {
		code = codes.Unknown
	}
	of := c.method(name)
	if stream {
		counter := of.ended[code].Load()
		if counter == nil {
			resolved := c.streams.WithLabelValues(of.name, spell(code))
			counter = &resolved
			of.ended[code].Store(counter)
		}
		(*counter).Inc()
		return
	}
	observer := of.unary[code].Load()
	if observer == nil {
		resolved := c.durations.WithLabelValues(of.name, spell(code))
		observer = &resolved
		of.unary[code].Store(observer)
	}
	(*observer).Observe(took.Seconds())
}

// Refused counts a request that was refused before it was a call.
func (m *Metrics) Refused(code codes.Code, reason string) { m.calls.failed(code, reason) }

var _ audit.Meter = (*Metrics)(nil)

// AuditLost counts lines of the audit log that were lost.
func (m *Metrics) AuditLost(because string, lines int) {
	m.calls.lost.WithLabelValues(because).Add(float64(lines))
}

// AuditSummarized counts refusals that the audit log has in a summary.
func (m *Metrics) AuditSummarized(refusals int) {
	m.calls.unlisted.WithLabelValues().Add(float64(refusals))
}

var _ flood.Meter = (*Metrics)(nil)

// Flood counts what is refused or closed before it is known who calls.
func (m *Metrics) Flood(what string) { m.calls.floods.WithLabelValues(what).Inc() }

func (c *calls) failed(code codes.Code, reason string) {
	if !rpcerr.IsListed(reason) {
		reason = other
	}
	if int(code) >= numCodes {
		code = codes.Unknown
	}
	c.errors.WithLabelValues(reason, spell(code)).Inc()
}

// spelled has the names of the codes as the semantic conventions have them, such as NOT_FOUND.
var spelled = func() (names [numCodes]string) {
	for i := range names {
		var b strings.Builder
		for j, r := range codes.Code(i).String() {
			if j > 0 && 'A' <= r && r <= 'Z' && i != int(codes.OK) {
				b.WriteByte('_')
			}
			b.WriteRune(r)
		}
		names[i] = strings.ToUpper(b.String())
	}
	names[codes.Canceled] = "CANCELLED"
	return names
}()

func spell(code codes.Code) string { return spelled[code] }
