package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/audit"
)

// destination is where a log writes. It can block, fail and panic.
type destination struct {
	gate  chan struct{} // has an element unless a test blocks the log
	out   bytes.Buffer
	err   error
	panic bool
}

func (d *destination) Write(p []byte) (int, error) {
	d.block()
	defer d.pass()
	if d.panic {
		panic("the destination")
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.out.Write(p)
}

func (d *destination) block() { <-d.gate }
func (d *destination) pass()  { d.gate <- struct{}{} }

func newDestination() *destination {
	d := &destination{gate: make(chan struct{}, 1)}
	d.pass()
	return d
}

// meter counts what a log says.
type meter struct {
	mu         sync.Mutex
	lost       map[string]int
	summarized int
}

func (m *meter) AuditLost(because string, lines int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost[because] += lines
}

func (m *meter) AuditSummarized(refusals int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.summarized += refusals
}

// open returns a log that writes to a destination, and what it says of itself.
func open() (l *audit.Log, to *destination, m *meter, says *bytes.Buffer) {
	to, m, says = newDestination(), &meter{lost: map[string]int{}}, &bytes.Buffer{}
	l = audit.New(audit.Config{
		Handler: slog.NewJSONHandler(to, nil), Meter: m,
		Logger: slog.New(slog.NewTextHandler(says, nil)),
	})
	return l, to, m, says
}

func insert(id string) *audit.Entry {
	return &audit.Entry{
		Principal: "p", RequestID: id, Method: mooringv1.DocumentService_InsertOne_FullMethodName,
		Request: &mooringv1.InsertOneRequest{Database: "d", Collection: "c"},
	}
}

func closed(t *testing.T, l *audit.Log) {
	t.Helper()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBlockedDestination checks that no call waits for a destination that blocks, that the queue is
// bounded, and that the lines that are lost are counted and said.
func TestBlockedDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, queued = 50_000, 16 << 10
		l, to, m, says := open()
		to.block()
		for i := range calls {
			l.Ended(t.Context(), insert(fmt.Sprint(i)))
		}
		if got := m.lost[audit.Full]; got < calls-queued || got > calls-queued/4 {
			t.Errorf("%d of %d lines are lost", got, calls)
		}
		to.pass()
		closed(t, l)
		lines := parsed(t, to.out.Bytes())
		said := slices.IndexFunc(lines, func(l logged) bool { return l.Msg == "audit lines lost" })
		if said < 0 || lines[said].Lines != m.lost[audit.Full] ||
			len(lines)-1+lines[said].Lines != calls {
			t.Fatalf("%d lines, and line %d says so; lost %v", len(lines), said, m.lost)
		}
		for i, line := range slices.Delete(slices.Clone(lines), said, said+1) {
			if line.RequestID != fmt.Sprint(i) {
				t.Fatalf("line %d is of %s", i, line.RequestID)
			}
		}
		if want := fmt.Sprintf("lines=%d", lines[said].Lines); !strings.Contains(says.String(),
			want) {
			t.Errorf("the gateway's log has %s", says)
		}
	})
}

// TestQueuedBytes checks that the queue is bounded in bytes, too.
func TestQueuedBytes(t *testing.T) {
	l, to, m, _ := open()
	to.block()
	e := insert("r")
	e.Principal = strings.Repeat("x", 64<<10)
	for range 200 { // 12.5 MiB
		l.Ended(t.Context(), e)
	}
	if got := m.lost[audit.Full]; got != 137 { // 63 lines have 4 MiB
		t.Errorf("%d of 200 lines are lost, want 137", got)
	}
	to.pass()
	closed(t, l)
	if got := to.out.Len(); got > 5<<20 {
		t.Errorf("%d bytes were queued", got)
	}
}

// TestLongListWaits checks that the lines of a long list wait for room, and not for longer than
// they may, and that they cost other calls nothing.
func TestLongListWaits(t *testing.T) {
	many := &mooringv1.BulkWriteRequest{}
	for i := range 40_000 {
		many.Models = append(many.Models,
			&mooringv1.WriteModel{Namespace: new(fmt.Sprintf("d.%0200d", i))})
	}
	e := &audit.Entry{
		Principal: "p", Method: mooringv1.DocumentService_BulkWrite_FullMethodName, Request: many,
	}
	synctest.Test(t, func(t *testing.T) {
		l, to, m, _ := open()
		to.block()
		time.AfterFunc(4*time.Second, to.pass)
		begin := time.Now()
		l.Ended(t.Context(), e)
		if took := time.Since(begin); took != 4*time.Second || len(m.lost) > 0 {
			t.Errorf("took %s, lost %v", took, m.lost)
		}
		closed(t, l)
		names := 0
		for _, line := range parsed(t, to.out.Bytes()) {
			names += len(line.Namespaces)
		}
		if names != 40_000 {
			t.Errorf("%d namespaces", names)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l, to, m, _ := open()
		to.block()
		begin := time.Now()
		l.Ended(t.Context(), e)
		if took := time.Since(begin); took != 5*time.Second || m.lost[audit.Full] == 0 {
			t.Errorf("took %s, lost %v", took, m.lost)
		}
		l.Ended(t.Context(), insert("r"))
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("another call has waited: %s", took)
		}
		to.pass()
		closed(t, l)
		lines, said := parsed(t, to.out.Bytes()), 0
		for _, line := range lines {
			said += line.Lines
		}
		if said != m.lost[audit.Full] || lines[0].Parts < said {
			t.Errorf("%d lines of %d, which say that %d are lost; lost %v", len(lines),
				lines[0].Parts, said, m.lost)
		}
	})
}

// TestFailingDestination checks that a destination that fails or panics ends neither the log nor
// the process, and that the log says what was lost once it can be written again.
func TestFailingDestination(t *testing.T) {
	for _, row := range []struct {
		name string
		set  func(to *destination, fails bool)
	}{
		{"error", func(to *destination, fails bool) {
			if to.err = nil; fails {
				to.err = errors.New("no space left on device")
			}
		}},
		{"panic", func(to *destination, fails bool) { to.panic = fails }},
	} {
		l, to, m, says := open()
		row.set(to, true)
		l.Ended(t.Context(), insert("1"))
		l.Ended(t.Context(), insert("2"))
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		to.block()
		row.set(to, false)
		to.pass()
		l.Ended(t.Context(), insert("3"))
		closed(t, l)
		lines := parsed(t, to.out.Bytes())
		if len(lines) != 2 || lines[0].RequestID != "3" || lines[1].Lines != 2 ||
			m.lost[audit.Failed] != 2 {
			t.Errorf("%s: lines %+v, lost %v", row.name, lines, m.lost)
		}
		if got := says.String(); !strings.Contains(got, "audit lines lost") ||
			strings.Contains(got, "panic=") != to.panicked(row.name) {
			t.Errorf("%s: the gateway's log has %s", row.name, got)
		}
	}
}

func (d *destination) panicked(name string) bool { return name == "panic" }

// TestCloseOfBlocked checks that neither Flush nor Close waits longer than its context for a
// destination that blocks, and that calls after Close do no harm.
func TestCloseOfBlocked(t *testing.T) {
	l, to, m, _ := open()
	to.block()
	l.Ended(t.Context(), insert("r"))
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if err := l.Flush(ctx); !errors.Is(err, gone) {
		t.Errorf("Flush = %v", err)
	}
	if err := l.Close(ctx); !errors.Is(err, gone) {
		t.Errorf("Close = %v", err)
	}
	l.Ended(t.Context(), insert("late"))
	if m.lost[audit.Full] != 1 {
		t.Errorf("lost %v", m.lost)
	}
	to.pass()
	closed(t, l)
}

// TestStrangers checks that the refusals of clients without a credential have few lines, each
// address its own, and that a line says at the end of the interval what had none.
func TestStrangers(t *testing.T) {
	refusal := func(client string) *audit.Entry {
		a, _ := netip.ParseAddr(client)
		return &audit.Entry{
			Method: "GET /v1/databases", Client: a, Code: codes.Unauthenticated,
			Reason: "Unauthenticated",
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l, to, m, _ := open()
		for range 50_000 {
			l.Ended(t.Context(), refusal("192.0.2.1"))
		}
		for i := range 30 { // one network
			l.Ended(t.Context(), refusal(fmt.Sprintf("2001:db8::%x", i)))
		}
		l.Ended(t.Context(), refusal(""))
		known := refusal("192.0.2.1") // has a line whatever others did
		known.Principal, known.Code, known.Reason = "key:a", codes.PermissionDenied, "PolicyRefused"
		for range 20 {
			l.Ended(t.Context(), known)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		synctest.Wait()
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := parsed(t, to.out.Bytes())
		last := lines[len(lines)-1]
		if len(lines) != 10+10+1+20+1 || last.Msg != "audit: refusals without lines" ||
			last.Refused != 50_010 || last.Outcomes["Unauthenticated"] != 50_010 {
			t.Errorf("%d lines, and at last %+v", len(lines), last)
		}
		if want := "[{192.0.2.1 49990} {2001:db8::/64 20}]"; fmt.Sprint(last.Clients) != want ||
			last.Others != 0 {
			t.Errorf("clients %v, want %s, and %d", last.Clients, want, last.Others)
		}
		if m.summarized != 50_010 || to.out.Len() > 20<<10 {
			t.Errorf("%d summarized, %d bytes", m.summarized, to.out.Len())
		}

		to.out.Reset() // the next interval
		l.Ended(t.Context(), refusal("192.0.2.1"))
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		closed(t, l)
		if lines := parsed(t, to.out.Bytes()); len(lines) != 1 {
			t.Errorf("the next interval has %+v", lines)
		}
	})
}

// TestManyStrangers checks that any number of addresses has a bounded number of lines, and takes a
// bounded memory, and that Close writes the summary.
func TestManyStrangers(t *testing.T) {
	l, to, m, _ := open()
	for i := range 30_000 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		l.Ended(t.Context(),
			&audit.Entry{Client: a, Code: codes.PermissionDenied, Reason: "UnknownHost"})
	}
	closed(t, l)
	lines := parsed(t, to.out.Bytes())
	last := lines[len(lines)-1]
	if len(lines) != 101 || last.Refused != 29_900 || len(last.Clients) != 20 ||
		last.Others != 29_880 {
		t.Errorf("%d lines, and at last %+v", len(lines), last)
	}
	if m.summarized != 29_900 {
		t.Errorf("%d summarized", m.summarized)
	}
	if last.Clients[0].Client != "10.0.0.100" { // of as many refusals, the first in order
		t.Errorf("clients %+v", last.Clients)
	}
}

// TestOwnShare checks that refused reads of one principal are counted apart from those of others.
func TestOwnShare(t *testing.T) {
	l, to, _, _ := open()
	for _, principal := range []string{"key:a", "key:b"} {
		for range 15 {
			l.Ended(t.Context(), &audit.Entry{
				Principal: principal, Method: mooringv1.DocumentService_Find_FullMethodName,
				Code: codes.ResourceExhausted, Reason: "QuotaExceeded",
			})
		}
	}
	closed(t, l)
	lines := parsed(t, to.out.Bytes())
	if last := lines[len(lines)-1]; len(lines) != 21 ||
		fmt.Sprint(last.Clients) != "[{key:a 5} {key:b 5}]" {
		t.Errorf("%d lines, and at last %+v", len(lines), last)
	}
}

// TestConcurrent writes from many goroutines, for the race detector, and loses nothing.
func TestConcurrent(t *testing.T) {
	l, to, _, _ := open()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				l.Ended(t.Context(), insert("r"))
			}
		})
	}
	all.Wait()
	closed(t, l)
	if got := len(parsed(t, to.out.Bytes())); got != 4000 {
		t.Errorf("%d lines", got)
	}
}

func BenchmarkEnded(b *testing.B) {
	l := audit.New(audit.Config{Handler: slog.NewJSONHandler(newDestination(), nil)})
	e := insert("r")
	e.Client = netip.MustParseAddr("192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		l.Ended(b.Context(), e)
	}
	if err := l.Close(b.Context()); err != nil {
		b.Error(err)
	}
}
