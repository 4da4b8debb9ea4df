// Package session implements SessionService. A session lives in its token, which holds its id and
// the times that it has seen, and which each response of a call in it renews: the gateway keeps
// nothing, and any replica continues the session.
//
// Sessions opens and makes tokens. Handlers get sessions through service/request, and the
// interceptors put the renewed token into responses.
package session

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/session"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
)

// Config configures a Server. All fields are required.
type Config struct {
	Client   *client.Client
	Sessions *Sessions
}

// Server serves SessionService.
type Server struct {
	mooringv1.UnsafeSessionServiceServer
	cfg Config
}

var _ mooringv1.SessionServiceServer = (*Server)(nil)

// New returns the service.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// Start starts a session.
func (s *Server) Start(
	ctx context.Context, req *mooringv1.SessionServiceStartRequest,
) (*mooringv1.SessionServiceStartResponse, error) {
	r := request.ReadPlain(ctx, req)
	opt := session.Options{
		CausalConsistency: req.CausalConsistency, Snapshot: req.GetSnapshot(),
		SnapshotTime: readTimestamp(r, "snapshotTime", req.GetSnapshotTime()),
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	started, err := s.cfg.Sessions.Start(opt)
	if err != nil {
		return nil, err
	}
	token := s.cfg.Sessions.Seal(r.Principal, started)
	return &mooringv1.SessionServiceStartResponse{Session: token}, nil
}

// readTimestamp reads a time of the cluster. It returns the zero Timestamp if the field is unset.
func readTimestamp(r *request.Reader, field string, v *mooringv1.Value) session.Timestamp {
	value := r.Value(field, v)
	if value.IsZero() {
		return session.Timestamp{}
	}
	seconds, increment, ok := value.Timestamp()
	t := session.Timestamp{T: seconds, I: increment}
	if !ok || t.IsZero() {
		r.Refuse(field, "is not a timestamp after 0")
	}
	return t
}

// End ends a session.
func (s *Server) End(
	ctx context.Context, req *mooringv1.SessionServiceEndRequest,
) (*mooringv1.SessionServiceEndResponse, error) {
	r := request.ReadSession(ctx, req)
	r.RefuseTransaction(ctx)
	if r.Err() == nil && r.Session == nil {
		r.Refuse("session", "is required")
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	// Servers end sessions themselves, so an error has no consequence (Driver Sessions).
	_ = s.cfg.Client.EndSessions(ctx, []bson.UUID{r.Session.ID()})
	return &mooringv1.SessionServiceEndResponse{}, nil
}
