package operation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/wire"
)

// fake is a deployment, its one server and the one connection to it.
type fake struct {
	kind        description.Kind
	description description.Server
	hello       description.Server
	reply       bson.Raw
	replies     []bson.Raw // come before reply
	err         error
	before      func(context.Context) // is called by RoundTrip
	// selectErrs and checkOutErrs are the errors of the first selections and check-outs.
	selectErrs, checkOutErrs []error

	selector   string
	sent       []*wire.Msg
	checkedOut int
	lessons    []error
	pinErr     error
	panics     bool // once, in CheckIn, when the connection is given back
	reauths    []error
	reauthErr  error
}

var (
	_ operation.Deployment = (*fake)(nil)
	_ operation.Server     = (*fake)(nil)
	_ operation.Conn       = (*fake)(nil)
)

func (f *fake) Select(_ context.Context, sel selection.Selector) (operation.Server, error) {
	f.selector = sel.String()
	if err := first(&f.selectErrs); err != nil {
		return nil, err
	}
	return f, nil
}

// first takes the first of a list, nil if that is empty.
func first(errs *[]error) (err error) {
	if len(*errs) > 0 {
		err, *errs = (*errs)[0], (*errs)[1:]
	}
	return err
}

func (f *fake) Description() *description.Server { return &f.description }
func (f *fake) TopologyKind() description.Kind   { return f.kind }
func (f *fake) Hello() *description.Server       { return &f.hello }
func (f *fake) ID() uint64                       { return 1 }

func (f *fake) CheckOut(context.Context) (operation.Conn, error) {
	if err := first(&f.checkOutErrs); err != nil {
		return nil, err
	}
	f.checkedOut++
	return f, nil
}

func (f *fake) CheckIn(err error) {
	f.checkedOut--
	f.lessons = append(f.lessons, err)
	if f.panics {
		f.panics = false
		panic("bug: in a test")
	}
}

func (f *fake) Learn(err error) { f.lessons = append(f.lessons, err) }

func (f *fake) PinForCursor() error { return f.pinErr }

func (f *fake) PinForTransaction() error { return f.pinErr }

func (f *fake) Reauthenticate(_ context.Context, cause error) error {
	f.reauths = append(f.reauths, cause)
	return f.reauthErr
}

func (f *fake) RoundTrip(
	ctx context.Context, msg []byte, lend bool,
) (bson.Raw, *buffer.Buffer, error) {
	if f.before != nil {
		f.before(ctx)
	}
	if err := f.Write(ctx, msg); err != nil {
		return nil, nil, err
	}
	reply := f.reply
	if len(f.replies) > 0 {
		reply = f.replies[0]
		f.replies = f.replies[1:]
	}
	if reply == nil {
		reply = bson.NewBuilder(nil).Int32("ok", 1).Finish()
	}
	if !lend {
		return reply, nil, nil
	}
	lent := buffer.Get(16 << 10)
	return lent.Bytes()[:copy(lent.Bytes(), reply)], lent, nil
}

func (f *fake) Write(_ context.Context, msg []byte) error {
	_, m, err := wire.Parse(append([]byte(nil), msg...))
	if err != nil {
		return err
	}
	f.sent = append(f.sent, m.(*wire.Msg))
	return f.err
}

// command is a command of one element, and a sequence if docs is not nil.
type command struct {
	docs []bson.Raw
	err  error
}

func (command) Name() string { return "test" }

func (c command) Append(b *bson.Builder, _ operation.Target) error {
	b.Int32("test", 1)
	return c.err
}

// sequence is a command with the docs in one sequence, and their number in another.
type sequence struct{ command }

func (s sequence) AppendSequences(msg []byte, _ operation.Target) ([]byte, error) {
	msg = wire.AppendSequence(msg, "documents", s.docs)
	count := bson.NewBuilder(nil).Int32("n", int32(len(s.docs))).Finish()
	return wire.AppendSequence(msg, "counts", []bson.Raw{count}), s.err
}

func keys(d bson.Raw) (out []string) {
	for key := range d.All() {
		out = append(out, key)
	}
	return out
}

func TestMaxTimeMS(t *testing.T) {
	tests := []struct {
		name      string
		left, rtt time.Duration
		want      int64 // 0: none; -1: nothing is sent
	}{
		{"no deadline", 0, 0, 0},
		{"less the round trip", 500 * time.Millisecond, 50 * time.Millisecond, 450},
		{"rounded down", 10*time.Millisecond + 999*time.Microsecond, 0, 10},
		{"never zero", 50*time.Millisecond + 999*time.Microsecond, 50 * time.Millisecond, -1},
		{"no time left", 50 * time.Millisecond, 50 * time.Millisecond, -1},
		{"years", 100 * 365 * 24 * time.Hour, 0, 1<<31 - 1},
	}
	given := map[string]int64{
		"no limit of the caller's": 0, "a lower limit": 1, "a higher limit": 70,
	}
	for name, want := range map[string]int64{
		"no limit of the caller's": 50, "a lower limit": 1, "a higher limit": 50,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			res, err := (&operation.Runner{Deployment: f}).Run(ctx, &operation.Operation{
				Database: "db", Command: command{}, DeadlineAsMaxTime: true,
				MaxTimeMS: new(given[name]),
			})
			v, _ := f.sent[0].Body.Lookup("maxTimeMS")
			if got, _ := v.Int64(); err != nil || got != want || res.DeadlineSent != (want == 50) {
				t.Errorf("%s: Run() = %v, maxTimeMS %d, want %d", name, err, got, want)
			}
		})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{description: description.Server{MinRTT: tt.rtt}}
				ctx := t.Context()
				if tt.left != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.left)
					defer cancel()
				}
				r := operation.Runner{Deployment: f}
				_, err := r.Run(ctx, &operation.Operation{
					Database: "db", Command: command{}, DeadlineAsMaxTime: true,
				})
				if tt.want < 0 {
					if !errors.Is(err, context.DeadlineExceeded) ||
						!isA[*operation.TimeoutError](err) || len(f.sent) != 0 {
						t.Errorf("Run() = %v with %d messages, want a TimeoutError and none", err,
							len(f.sent))
					}
				} else {
					v, _ := f.sent[0].Body.Lookup("maxTimeMS")
					if got, _ := v.Int64(); err != nil || got != tt.want {
						t.Errorf("Run() = %v, maxTimeMS %d, want %d", err, got, tt.want)
					}
				}
				if f.checkedOut != 0 || f.lessons[0] != nil {
					t.Errorf("%d connections out, the topology learnt %v", f.checkedOut, f.lessons)
				}
			})
		})
	}
}

func TestSelectors(t *testing.T) {
	nearest := &selection.ReadPreference{Mode: selection.Nearest}
	tests := []struct {
		op   operation.Operation
		want selection.Selector
	}{
		{operation.Operation{}, selection.Read(nil)},
		{operation.Operation{ReadPreference: nearest}, selection.Read(nearest)},
		{operation.Operation{Kind: operation.Generic, ReadPreference: nearest}, selection.Read(nearest)},
		{operation.Operation{Kind: operation.Write, ReadPreference: nearest}, selection.Write()},
		{operation.Operation{Kind: operation.Write, Selector: selection.Address("a:1")}, selection.Address("a:1")},
		{operation.Operation{Selector: selection.Address("a:1"), ReadPreference: nearest}, selection.Address("a:1")},
	}
	for _, tt := range tests {
		f := &fake{
			kind:        description.KindSharded,
			description: description.Server{Kind: description.ServerMongos},
		}
		tt.op.Database, tt.op.Command = "db", command{}
		if _, err := (&operation.Runner{Deployment: f}).Run(t.Context(), &tt.op); err != nil ||
			f.selector != tt.want.String() {
			t.Errorf("Run() = %v by %q, want %q", err, f.selector, tt.want)
		}
		if sent := f.sent[0].Body.Has("$readPreference"); sent != (tt.op.Kind != operation.Write &&
			tt.op.ReadPreference != nil && tt.op.Selector == nil) {
			t.Errorf("%v: $readPreference sent is %v", keys(f.sent[0].Body), sent)
		}
	}
}

func TestRefusedCommandReturnsConnection(t *testing.T) {
	refused := errors.New("refused")
	for _, cmd := range []operation.Command{
		command{err: refused}, sequence{command{err: refused}}, refusedSequence{refused},
	} {
		f := &fake{}
		_, err := (&operation.Runner{Deployment: f}).
			Run(t.Context(), &operation.Operation{Database: "db", Command: cmd})
		if !errors.Is(err, refused) || f.checkedOut != 0 || len(f.sent) != 0 {
			t.Errorf("Run() = %v, %d connections out, %d messages", err, f.checkedOut, len(f.sent))
		}
	}
}

// refusedSequence is a command that refuses to append its sequences.
type refusedSequence struct{ err error }

func (refusedSequence) Name() string { return "test" }

func (refusedSequence) Append(*bson.Builder, operation.Target) error { return nil }

func (s refusedSequence) AppendSequences(msg []byte, _ operation.Target) ([]byte, error) {
	return msg, s.err
}

type broken struct{}

func (broken) Name() string { return "test" }

func (broken) Append(*bson.Builder, operation.Target) error { panic("bug: in a test") }

// Interceptors survive panics: then the pool must, too.
func TestPanicReturnsConnection(t *testing.T) {
	f := &fake{}
	defer func() {
		if p := recover(); p == nil || f.checkedOut != 0 {
			t.Errorf("panic(%v), %d connections out", p, f.checkedOut)
		}
	}()
	_, _ = (&operation.Runner{Deployment: f}).
		Run(t.Context(), &operation.Operation{Database: "db", Command: broken{}})
}

func TestSequence(t *testing.T) {
	docs := []bson.Raw{bson.NewBuilder(nil).Int32("a", 1).Finish(), bson.NewBuilder(nil).Finish()}
	f := &fake{}
	r := operation.Runner{Deployment: f}
	if _, err := r.Run(t.Context(),
		&operation.Operation{Database: "db", Command: sequence{command{docs: docs}}}); err != nil {
		t.Fatal(err)
	}
	s := f.sent[0].Sequences
	if len(s) != 2 || s[0].Identifier != "documents" || len(s[0].Documents) != 2 ||
		string(s[0].Documents[0]) != string(docs[0]) ||
		s[1].Identifier != "counts" {
		t.Errorf("sequences %+v, want the documents and their number", s)
	}
	f.hello.MaxMessageSize = 50
	_, err := r.Run(t.Context(),
		&operation.Operation{Database: "db", Command: sequence{command{docs: docs}}})
	if !isA[*operation.TooLargeError](err) || f.checkedOut != 0 || len(f.sent) != 1 {
		t.Errorf("Run() = %v, want a TooLargeError", err)
	}
}

func TestUnansweredWrites(t *testing.T) {
	tests := []struct {
		name    string
		kind    operation.Kind
		sent    bool
		unknown bool
	}{
		{"read", operation.Read, true, false},
		{"write", operation.Write, true, true},
		{"write, not sent", operation.Write, false, false},
		{"generic", operation.Generic, true, true},
		{"output", operation.Output, true, true},
	}
	for _, tt := range tests {
		for _, unacknowledged := range []bool{false, true} {
			cut := &mongoerr.NetworkError{Op: "read", Sent: tt.sent, Err: context.DeadlineExceeded}
			f := &fake{err: cut}
			_, err := (&operation.Runner{Deployment: f}).Run(t.Context(), &operation.Operation{
				Database: "db", Command: command{}, Kind: tt.kind, Unacknowledged: unacknowledged,
			})
			if isA[*operation.OutcomeUnknownError](err) != tt.unknown ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: Run() = %v, want an unknown outcome %v", tt.name, err, tt.unknown)
			}
			if len(f.lessons) != 1 || !errors.Is(f.lessons[0], cut) {
				t.Errorf("%s: the topology learnt %v", tt.name, f.lessons)
			}
		}
	}
}

func TestRepliesAreClassified(t *testing.T) {
	ok := func(b *bson.Builder) bson.Raw { return b.Int32("ok", 1).Finish() }
	writeErrors := ok(bson.NewBuilder(nil).OpenArray("writeErrors").OpenDocument("").
		Int32("index", 0).Int32("code", 11000).Close().Close().
		OpenDocument("writeConcernError").Int32("code", 91).Close())
	concern := ok(bson.NewBuilder(nil).OpenDocument("writeConcernError").Int32("code", 91).Close())
	failed := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 10107).Finish()
	tests := []struct {
		name    string
		kind    operation.Kind
		reply   bson.Raw
		err     bool
		concern bool
		lesson  int32 // the code that the topology hears of
	}{
		{"ok", operation.Write, ok(bson.NewBuilder(nil)), false, false, 0},
		{"write concern error", operation.Write, concern, false, true, 91},
		{"write errors", operation.Write, writeErrors, true, true, 91},
		{"write errors of a user's command", operation.Generic, writeErrors, false, true, 91},
		{"command error", operation.Read, failed, true, false, 10107},
		{"write concern error of a read", operation.Read, concern, false, false, 0},
	}
	for _, tt := range tests {
		f := &fake{
			reply: tt.reply, description: description.Server{Address: address.Address("a:1")},
		}
		res, err := (&operation.Runner{Deployment: f}).Run(t.Context(), &operation.Operation{
			Database: "db", Command: command{}, Kind: tt.kind,
		})
		if err != nil != tt.err || (res.WriteConcernError != nil) != tt.concern ||
			string(res.Reply) != string(tt.reply) || res.Server != "a:1" {
			t.Errorf("%s: Run() = %+v, %v", tt.name, res, err)
		}
		if got := mongoerr.Code(f.lessons[0]); got != tt.lesson {
			t.Errorf("%s: the topology learnt %v, want code %d", tt.name, f.lessons[0], tt.lesson)
		}
	}
}

func TestBufferIsNotSharedWhileInUse(t *testing.T) {
	r := operation.Runner{}
	inner := &fake{}
	outer := &fake{before: func(ctx context.Context) {
		_, _ = (&operation.Runner{Deployment: inner}).
			Run(ctx, &operation.Operation{Database: "inner", Command: command{}})
	}}
	r.Deployment = outer
	if _, err := r.Run(t.Context(),
		&operation.Operation{Database: "outer", Command: command{}}); err != nil {
		t.Fatal(err)
	}
	v, _ := outer.sent[0].Body.Lookup("$db")
	if db, _ := v.Str(); db != "outer" {
		t.Errorf("the message of outer was overwritten by that of %s", db)
	}
}

// BenchmarkRun is what the runner itself costs.
func BenchmarkRun(b *testing.B) {
	r := operation.Runner{
		Deployment: canned{
			reply: bson.NewBuilder(nil).Int32("ok", 1).Finish(), server: &description.Server{},
		},
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Run(ctx, &operation.Operation{
			Database: "db", Command: command{}, DeadlineAsMaxTime: true,
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// canned answers without looking.
type canned struct {
	reply  bson.Raw
	server *description.Server
}

func (c canned) Select(context.Context, selection.Selector) (operation.Server, error) {
	return &c, nil
}

func (c *canned) Description() *description.Server { return c.server }

func (c *canned) TopologyKind() description.Kind { return description.KindSingle }

func (c *canned) CheckOut(context.Context) (operation.Conn, error) { return c, nil }

func (c *canned) Hello() *description.Server { return c.server }
func (c *canned) ID() uint64                 { return 1 }
func (c *canned) RoundTrip(context.Context, []byte, bool) (bson.Raw, *buffer.Buffer, error) {
	return c.reply, nil, nil
}
func (c *canned) Write(context.Context, []byte) error         { return nil }
func (c *canned) Reauthenticate(context.Context, error) error { return nil }
func (c *canned) Learn(error)                                 {}
func (c *canned) PinForCursor() error                         { return nil }
func (c *canned) PinForTransaction() error                    { return nil }
func (c *canned) CheckIn(error)                               {}

// isA reports whether err is, or wraps, an E.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// quick is a fake that keeps nothing of what it is asked.
type quick struct{ fake }

func (q *quick) Select(context.Context, selection.Selector) (operation.Server, error) {
	return q, nil
}

func (q *quick) CheckOut(context.Context) (operation.Conn, error) { return q, nil }

func (q *quick) CheckIn(error) {}

func (q *quick) RoundTrip(context.Context, []byte, bool) (bson.Raw, *buffer.Buffer, error) {
	return q.reply, nil, nil
}

// TestCost bounds what a command allocates by itself, with listeners and without: nothing.
func TestCost(t *testing.T) {
	q := &quick{fake{reply: bson.NewBuilder(nil).Int32("ok", 1).Finish()}}
	for name, sink := range map[string]*event.Sink{
		"no listener": nil,
		"listeners of operations": {
			OperationStarted: func(event.OperationStarted) {},
			OperationEnded:   func(event.OperationEnded) {},
		},
	} {
		r := operation.Runner{Deployment: q, Sink: sink}
		op := operation.Operation{Database: "db", Command: command{}}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := r.Run(t.Context(), &op); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}
