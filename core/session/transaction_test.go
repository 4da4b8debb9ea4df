package session_test

import (
	"errors"
	"testing"

	"github.com/mooringdb/mooring/core/session"
)

// All states, and what becomes of each by each event.
func TestTransactionStates(t *testing.T) {
	const (
		none      = session.TransactionNone
		starting  = session.TransactionStarting
		progress  = session.TransactionInProgress
		empty     = session.TransactionCommittedEmpty
		committed = session.TransactionCommitted
		aborted   = session.TransactionAborted
	)
	type end struct {
		state session.TransactionState
		sends session.Ending
		err   error
	}
	const silently, first, again = session.EndSilently, session.EndFirst, session.EndAgain
	tests := []struct {
		state    session.TransactionState
		name     string
		running  bool
		start    session.TransactionState
		startErr error
		operate  session.TransactionState
		send     session.TransactionState
		commit   end
		abort    end
	}{
		{
			none, "none", false, starting, nil, none, none,
			end{none, silently, session.ErrNoTransaction},
			end{none, silently, session.ErrNoTransaction},
		},
		{
			starting, "starting", true, starting, session.ErrTransactionInProgress, starting, progress,
			end{empty, silently, nil},
			end{aborted, silently, nil},
		},
		{
			progress, "in_progress", true, progress, session.ErrTransactionInProgress, progress, progress,
			end{committed, first, nil},
			end{aborted, first, nil},
		},
		{
			empty, "committed", false, starting, nil, none, empty,
			end{empty, silently, nil},
			end{empty, silently, session.ErrAbortAfterCommit},
		},
		{
			committed, "committed", false, starting, nil, none, committed,
			end{committed, again, nil},
			end{committed, silently, session.ErrAbortAfterCommit},
		},
		{
			aborted, "aborted", false, starting, nil, none, aborted,
			end{aborted, silently, session.ErrCommitAfterAbort},
			end{aborted, silently, session.ErrAbortTwice},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.state
			if s.String() != tt.name || s.Running() != tt.running {
				t.Errorf("String() = %s, Running() = %v", s, s.Running())
			}
			if got, err := s.Start(); got != tt.start || !errors.Is(err, tt.startErr) {
				t.Errorf("Start() = %v, %v, want %v, %v", got, err, tt.start, tt.startErr)
			}
			if got := s.Operate(); got != tt.operate {
				t.Errorf("Operate() = %v, want %v", got, tt.operate)
			}
			if got := s.Send(); got != tt.send {
				t.Errorf("Send() = %v, want %v", got, tt.send)
			}
			refuse := s
			if s == progress {
				refuse = starting
			}
			if got := s.Refuse(); got != refuse {
				t.Errorf("Refuse() = %v, want %v", got, refuse)
			}
			if got, sends, err := s.Commit(); (end{got, sends, err}) != tt.commit {
				t.Errorf("Commit() = %v, %v, %v, want %v", got, sends, err, tt.commit)
			}
			if got, sends, err := s.Abort(); (end{got, sends, err}) != tt.abort {
				t.Errorf("Abort() = %v, %v, %v, want %v", got, sends, err, tt.abort)
			}
		})
	}
}
