package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
)

// Session represents an explicit session of a client: see Common.Session. Operations of one session
// should run one after the other. Use a session within a minute of its start, before the server can
// forget its id, and end it with End.
//
// Causal consistency does not cover unacknowledged writes: a read may miss them.
type Session struct {
	client *Client
	state  *session.Client
	// bounded says that a WithTransaction under timeoutMS runs its callback, whose context has the
	// deadline of all operations.
	bounded bool
}

// StartSession returns a new session. It does no I/O: if the server supports no sessions, the first
// operation fails.
func (c *Client) StartSession(opt session.Options) (*Session, error) {
	s, err := c.sessions.Start(opt)
	return c.session(s, err)
}

// ResumeSession returns a session that continues another one, which may be of another client of the
// same deployment. It does no I/O. The session's id never goes to the client's pool of server
// sessions, which later sessions reuse.
func (c *Client) ResumeSession(state session.State, opt session.Options) (*Session, error) {
	s, err := c.sessions.Resume(state, opt)
	return c.session(s, err)
}

func (c *Client) session(s *session.Client, err error) (*Session, error) {
	if err != nil {
		return nil, &ArgumentError{Argument: "session", Problem: err.Error()}
	}
	return &Session{client: c, state: s}, nil
}

// Client returns the client of the session.
func (s *Session) Client() *Client { return s.client }

// Options returns the options that the session was made with.
func (s *Session) Options() session.Options { return s.state.Options() }

// ID returns the id of the session, also after its end.
func (s *Session) ID() bson.UUID { return s.state.ID() }

// IsDirty reports whether a command of the session ended with a network error, so that its id does
// not return to the client's pool.
func (s *Session) IsDirty() bool { return s.state.IsDirty() }

// WasSent reports whether a command with an id that session.State.Derive made was sent, or is about
// to be.
func (s *Session) WasSent() bool { return s.state.WasSent() }

// OperationTime returns the operationTime of the newest reply, zero if there is none.
func (s *Session) OperationTime() session.Timestamp { return s.state.OperationTime() }

// ClusterTime returns the newest cluster time that the session has seen.
func (s *Session) ClusterTime() session.ClusterTime { return s.state.ClusterTime() }

// AdvanceOperationTime moves the operation time to t if that is later.
func (s *Session) AdvanceOperationTime(t session.Timestamp) { s.state.AdvanceOperationTime(t) }

// AdvanceClusterTime moves the cluster time of the session to t if that is later. It has no effect
// on the operations of other sessions.
func (s *Session) AdvanceClusterTime(t session.ClusterTime) { s.state.AdvanceClusterTime(t) }

// SnapshotTime returns the time of the snapshot that the session reads from, zero until the first
// read has determined it. For a session that reads from no snapshot it is an *ArgumentError.
func (s *Session) SnapshotTime() (session.Timestamp, error) {
	if !s.state.ReadsSnapshot() {
		return session.Timestamp{}, &ArgumentError{
			Argument: "session", Problem: "does not read from a snapshot",
		}
	}
	return s.state.SnapshotTime(), nil
}

// State returns what ResumeSession needs to continue the session in another client. From then on
// the session's id does not return to this client's pool.
func (s *Session) State() session.State { return s.state.State() }

// End ends the session. If a transaction is in progress, End aborts it, with a short time limit of
// its own and not that of ctx. Later operations in the session fail. End may be called again.
func (s *Session) End(ctx context.Context) {
	s.abandon(ctx, EndTransactionOptions{})
	s.state.End()
}

// session returns the session of an operation, nil for an implicit one.
func (o *Common) session() *session.Client {
	if o.Session == nil {
		return nil
	}
	return o.Session.state
}

// session objects to a session that the operation cannot run in, and to options that have no place
// in a transaction.
func (c *check) session(o *Common) {
	s := o.Session
	switch {
	case s == nil:
		return
	case s.client != c.client:
		c.refuse("session", "belongs to another client")
	case s.state.Err() != nil:
		c.refuse("session", "has ended")
	}
	c.transaction(o)
	if s.bounded && o.Timeout != nil {
		c.refuse("timeoutMS", "must not be set in a callback, since WithTransaction has one")
	}
}

// sessionLife returns how long servers keep a session that is not used; 0: it is not known.
func (c *Client) sessionLife() time.Duration {
	t := c.topology.Load()
	if t == nil {
		return 0
	}
	minutes := t.Description().LogicalSessionTimeoutMinutes
	return time.Duration(valueOf(minutes)) * time.Minute
}

// endTimeout bounds the endSessions of Close. It is short because servers end sessions themselves.
const endTimeout = 2 * time.Second

// endPooled tells the deployment that the sessions in the pool are not needed any more.
func (c *Client) endPooled(ctx context.Context) {
	ids := c.sessions.Drain()
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_ = c.EndSessions(ctx, ids)
}

// EndSessions tells the deployment that these sessions are no longer needed. It does not wait
// for a server: if none is known, that is an error. Servers end sessions themselves, some time
// after the last command.
func (c *Client) EndSessions(ctx context.Context, ids []bson.UUID) error {
	r := c.runner
	r.Sessions = nil // it runs in no session
	for batch := range slices.Chunk(ids, session.MaxEnded) {
		_, err := r.Run(ctx, &operation.Operation{
			Database: "admin", Command: endSessions(batch), Selector: available{},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

type endSessions []bson.UUID

func (endSessions) Name() string { return "endSessions" }

func (e endSessions) Append(b *bson.Builder, _ operation.Target) error {
	session.AppendEnd(b, e)
	return nil
}

// available selects the primary, any other server that can be read from if there is none, and fails
// if there is none either.
type available struct{}

var preferPrimary = &selection.ReadPreference{Mode: selection.PrimaryPreferred}

var errNoneAvailable = errors.New("no server is known")

func (available) String() string { return "the end of sessions" }

func (available) Select(
	t description.Topology, candidates []*description.Server,
) ([]*description.Server, error) {
	found, err := selection.Read(preferPrimary).Select(t, candidates)
	if err == nil && len(found) == 0 {
		err = errNoneAvailable
	}
	return found, err
}
