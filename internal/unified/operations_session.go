package unified

import (
	"context"
	"fmt"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/session"
)

// sessionOperations are the operations on a session.
var sessionOperations = table[*client.Session]{
	"endSession":        endSession,
	"getSnapshotTime":   getSnapshotTime,
	"startTransaction":  startTransaction,
	"commitTransaction": commitTransaction,
	"abortTransaction":  abortTransaction,
}

func (r *run) newSession(_ context.Context, a *arguments) (any, error) {
	owner := a.must("client").text("client")
	of := &arguments{run: r, doc: a.document("sessionOptions")}
	options := of.sessionOptions()
	a.adopt(of)
	if err := a.done(); err != nil {
		return nil, err
	}
	c, err := get[*observed](r, owner)
	if err != nil {
		return nil, err
	}
	return c.StartSession(options)
}

func (a *arguments) sessionOptions() session.Options {
	options := session.Options{CausalConsistency: a.bool("causalConsistency")}
	if snapshot := a.bool("snapshot"); snapshot != nil {
		options.Snapshot = *snapshot
	}
	if ms := a.int64("defaultTimeoutMS"); ms != nil {
		options.DefaultTimeout = new(time.Duration(*ms) * time.Millisecond)
	}
	of := &arguments{run: a.run, doc: a.document("defaultTransactionOptions")}
	options.DefaultTransaction = of.transactionOptions()
	a.adopt(of)
	if name := a.text("snapshotTime"); name != "" {
		v, err := get[bson.Value](a.run, name)
		t, i, ok := v.Timestamp()
		if err == nil && !ok {
			err = fmt.Errorf("the entity %q is not a timestamp", name)
		}
		if err != nil && a.err == nil {
			a.err = err
		}
		options.SnapshotTime = session.Timestamp{T: t, I: i}
	}
	return options
}

// session returns the session that an operation runs in; nil: an implicit one.
func (a *arguments) session() *client.Session {
	name := a.text("session")
	if name == "" {
		return nil
	}
	s, err := get[*client.Session](a.run, name)
	if err != nil && a.err == nil {
		a.err = err
	}
	return s
}

// lsid returns the lsid of a session entity, for the matcher.
func (r *run) lsid(name string) (bson.Raw, bool) {
	s, err := get[*client.Session](r, name)
	if err != nil {
		return nil, false
	}
	id := s.ID()
	return bson.NewBuilder(nil).Binary("id", subtypeUUID, id[:]).Finish(), true
}

const subtypeUUID = 4

func endSession(_ *run, s *client.Session, _ *arguments) action {
	return func(ctx context.Context) outcome {
		s.End(ctx)
		return outcome{}
	}
}

func getSnapshotTime(_ *run, s *client.Session, _ *arguments) action {
	return func(context.Context) outcome {
		t, err := s.SnapshotTime()
		return outcome{value: bson.TimestampValue(t.T, t.I), err: err}
	}
}

func assertSessionDirty(want bool) func(*run, *run, *arguments) action {
	return func(r *run, _ *run, a *arguments) action {
		s := entityOf[*client.Session](r, a, "session")
		return func(context.Context) outcome {
			if got := s.IsDirty(); got != want {
				return failed(fmt.Errorf("the session is dirty: %v", got))
			}
			return outcome{}
		}
	}
}

// assertLsids compares the lsids of the last two commands of a client.
func assertLsids(same bool) func(*run, *run, *arguments) action {
	return func(r *run, _ *run, a *arguments) action {
		c := entityOf[*observed](r, a, "client")
		return func(context.Context) outcome {
			c.mu.Lock()
			defer c.mu.Unlock()
			var ids []bson.Value
			for _, e := range c.events {
				if e.kind == "commandStartedEvent" {
					ids = append(ids, lookup(e.fields, "command", "lsid"))
				}
			}
			n := len(ids)
			switch {
			case n < 2 || ids[n-1].IsZero() || ids[n-2].IsZero():
				return failed(fmt.Errorf("there are not two commands with an lsid: %v", c.events))
			case ids[n-1].Equal(ids[n-2]) != same:
				return failed(fmt.Errorf("the last lsids are %v and %v", ids[n-2], ids[n-1]))
			}
			return outcome{}
		}
	}
}
