package session

import (
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
)

// Life is how long a token is valid: servers keep a session for as long after its last command,
// unless they are configured otherwise.
const Life = 30 * time.Minute

// Sessions makes tokens of sessions, and sessions of tokens. It keeps nothing.
type Sessions struct {
	client     *client.Client
	keys       *seal.Ring
	deployment seal.Deployment
}

var _ call.Sessions = (*Sessions)(nil)

// NewSessions returns the sessions of a client. deployment tells deployments apart: a token is
// valid for one only.
func NewSessions(c *client.Client, keys *seal.Ring, deployment string) *Sessions {
	return &Sessions{client: c, keys: keys, deployment: seal.NewDeployment(deployment)}
}

// Start returns a new session.
func (s *Sessions) Start(opt session.Options) (*client.Session, error) {
	return s.client.StartSession(opt)
}

// Open returns the session that a token continues. It refuses a token that is wrong, of another
// principal or deployment, or expired.
func (s *Sessions) Open(principal, token string) (*client.Session, error) {
	sealed, err := s.keys.Open(principal, token, seal.KindSession, s.deployment)
	if err != nil {
		return nil, notFound(err)
	}
	c, err := decodeClaim(sealed.Body)
	if err != nil {
		return nil, notFound(err)
	}
	c.state.Shared = true // any replica can continue it, also at the same time
	return s.client.ResumeSession(c.state, session.Options{
		CausalConsistency: &c.causal, Snapshot: c.snapshot,
	})
}

func notFound(err error) error {
	return &rpcerr.Error{
		Reason: rpcerr.SessionNotFound, Field: "session",
		Message: seal.Explain(err, "the token is wrong, or it has expired"),
	}
}

// Seal returns a token that continues the session.
func (s *Sessions) Seal(principal string, of *client.Session) string {
	opt := of.Options()
	c := claim{snapshot: opt.Snapshot, causal: !opt.Snapshot, state: of.State()}
	if opt.CausalConsistency != nil {
		c.causal = *opt.CausalConsistency
	}
	return s.keys.Seal(principal, seal.Claim{
		Kind: seal.KindSession, Deployment: s.deployment, Expires: time.Now().Add(Life),
		Body: c.encode(),
	})
}
