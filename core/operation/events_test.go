package operation_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
)

// named is a command of that name with a secret in it.
type named struct {
	name string
	also string // another element, if it is not empty
}

func (n named) Name() string { return n.name }

func (n named) Append(b *bson.Builder, _ operation.Target) error {
	b.Int32(n.name, 1).String("secret", "hunter2")
	if n.also != "" {
		b.OpenDocument(n.also).Close()
	}
	return nil
}

// heard are the events of one command.
type heard struct {
	started   []event.CommandStarted
	succeeded []event.CommandSucceeded
	failed    []event.CommandFailed
}

// bodies returns copies of what the events showed: views do not outlive the call of a listener.
func (h *heard) sink() *event.Sink {
	return &event.Sink{
		CommandStarted: func(e event.CommandStarted) {
			e.Body = append(bson.Raw(nil), e.Body...)
			h.started = append(h.started, e)
		},
		CommandSucceeded: func(e event.CommandSucceeded) {
			e.Reply = append(bson.Raw(nil), e.Reply...)
			h.succeeded = append(h.succeeded, e)
		},
		CommandFailed: func(e event.CommandFailed) { h.failed = append(h.failed, e) },
	}
}

// Command Logging and Monitoring, "Security": the content of these commands is never shown, and
// neither is that of their replies and errors.
func TestRedaction(t *testing.T) {
	refusal := bson.NewBuilder(nil).Int32("ok", 0).Int32("code", 18).
		String("codeName", "AuthenticationFailed").
		String("errmsg", "hunter2 is wrong").OpenArray("errorLabels").String("", "L").Close().
		Finish()
	cut := &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.EOF}
	tests := []struct {
		command named
		secret  bool
	}{
		{named{name: "saslStart"}, true},
		{named{name: "saslContinue"}, true},
		{named{name: "authenticate"}, true},
		{named{name: "getnonce"}, true},
		{named{name: "createUser"}, true},
		{named{name: "updateUser"}, true},
		{named{name: "copydbgetnonce"}, true},
		{named{name: "copydbsaslstart"}, true},
		{named{name: "copydb"}, true},
		{named{name: "COPYDB"}, true},
		{named{name: "hello", also: "speculativeAuthenticate"}, true},
		{named{name: "isMaster", also: "speculativeAuthenticate"}, true},
		{named{name: "hello"}, false},
		{named{name: "isMaster"}, false},
		{named{name: "find", also: "speculativeAuthenticate"}, false},
	}
	for _, tt := range tests {
		run := func(f *fake) heard {
			var h heard
			r := operation.Runner{Deployment: f, Sink: h.sink()}
			_, _ = r.Run(t.Context(), &operation.Operation{Database: "admin", Command: tt.command})
			if len(h.started) != 1 || len(h.succeeded)+len(h.failed) != 1 {
				t.Fatalf("%s: %d started, %d succeeded, %d failed", tt.command.name, len(h.started),
					len(h.succeeded), len(h.failed))
			}
			if hidden := h.started[0].Body.IsEmpty(); hidden != tt.secret {
				t.Errorf("%s: the command is hidden: %v, want %v", tt.command.name, hidden,
					tt.secret)
			}
			return h
		}
		h := run(&fake{
			reply: bson.NewBuilder(nil).String("secret", "hunter2").Int32("ok", 1).Finish(),
		})
		if hidden := h.succeeded[0].Reply.IsEmpty(); hidden != tt.secret {
			t.Errorf("%s: the reply is hidden: %v, want %v", tt.command.name, hidden, tt.secret)
		}
		h = run(&fake{reply: refusal})
		failed, ok := errors.AsType[*mongoerr.CommandError](h.failed[0].Err)
		if !ok || failed.Code != 18 || failed.Name != "AuthenticationFailed" ||
			!mongoerr.HasLabel(failed, "L") {
			t.Fatalf("%s: failed with %+v, want code, name and labels", tt.command.name,
				h.failed[0].Err)
		}
		if hidden := failed.Message == "" && failed.Reply == nil; hidden != tt.secret {
			t.Errorf("%s: failed with %+v, want it hidden: %v", tt.command.name, failed, tt.secret)
		}
		// What the network says is not the command's content.
		if h = run(&fake{err: cut}); !errors.Is(h.failed[0].Err, cut) {
			t.Errorf("%s: failed with %v, want %v", tt.command.name, h.failed[0].Err, cut)
		}
	}
}

// An event without a listener is not made, even if other events have listeners.
func TestSinksInPart(t *testing.T) {
	failure := bson.NewBuilder(nil).Int32("ok", 0).Finish()
	for _, reply := range []bson.Raw{nil, failure} {
		var h heard
		all := h.sink()
		for _, sink := range []*event.Sink{
			{},
			{CommandStarted: all.CommandStarted},
			{CommandSucceeded: all.CommandSucceeded},
			{CommandFailed: all.CommandFailed},
		} {
			r := operation.Runner{Deployment: &fake{reply: reply}, Sink: sink}
			_, _ = r.Run(t.Context(), &operation.Operation{Database: "db", Command: command{}})
		}
		succeeded, failed := 1, 0
		if reply != nil {
			succeeded, failed = 0, 1
		}
		if len(h.started) != 1 || len(h.succeeded) != succeeded || len(h.failed) != failed {
			t.Errorf("%d started, %d succeeded, %d failed, want 1, %d, %d",
				len(h.started), len(h.succeeded), len(h.failed), succeeded, failed)
		}
	}
}

// An unacknowledged write has a reply in events, and an unreadable reply is a failure.
func TestEventsOfOtherAnswers(t *testing.T) {
	var h heard
	r := operation.Runner{Deployment: &fake{}, Sink: h.sink()}
	op := operation.Operation{
		Database: "db", Command: command{}, Kind: operation.Write, Unacknowledged: true,
	}
	if res, err := r.Run(t.Context(), &op); err != nil || res.Reply != nil ||
		len(h.succeeded) != 1 {
		t.Fatalf("Run() = %v, %v, %d succeeded", res.Reply, err, len(h.succeeded))
	}
	if v, _ := h.succeeded[0].Reply.Lookup("ok"); !v.Truthy() {
		t.Errorf("the reply is %v, want ok: 1", h.succeeded[0].Reply)
	}
	r.Deployment = &fake{reply: bson.NewBuilder(nil).String("ok", "?").Finish()}
	_, err := r.Run(t.Context(), &operation.Operation{Database: "db", Command: command{}})
	if _, ok := errors.AsType[*mongoerr.MalformedReplyError](err); !ok || len(h.failed) != 1 {
		t.Errorf("Run() = %v with %d failed events, want a MalformedReplyError and one", err,
			len(h.failed))
	}
}

// The selection and the commands of one operation have one operation id; an operation of one
// command has its request's.
func TestOperationIDs(t *testing.T) {
	for _, id := range []int64{0, 77} {
		var h heard
		f := &identified{fake: &fake{}}
		sink := h.sink()
		// The deployment here emits none.
		sink.ServerSelectionStarted = func(event.ServerSelectionStarted) {}
		r := operation.Runner{Deployment: f, Sink: sink}
		for range 2 {
			if _, err := r.Run(t.Context(),
				&operation.Operation{Database: "db", Command: command{}, ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		for i, e := range h.started {
			want := id
			if id == 0 {
				want = int64(e.RequestID)
			}
			if e.OperationID != want || f.ids[i] != want || h.succeeded[i].OperationID != want ||
				e.RequestID <= 0 {
				t.Errorf("operation %d: command %d, selection %d, request %d, want %d",
					id, e.OperationID, f.ids[i], e.RequestID, want)
			}
		}
		if h.started[0].RequestID == h.started[1].RequestID {
			t.Errorf("two requests have the id %d", h.started[0].RequestID)
		}
	}
}

// identified keeps the operation ids of the selections.
type identified struct {
	*fake
	ids []int64
}

func (f *identified) Select(ctx context.Context, sel selection.Selector) (operation.Server, error) {
	name, id := selection.Operation(sel)
	if name != "test" {
		return nil, errors.New("the selection is for " + name)
	}
	f.ids = append(f.ids, id)
	return f.fake.Select(ctx, sel)
}
