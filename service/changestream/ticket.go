package changestream

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
)

// TicketLife is how long a ticket is valid, unless the client's credential ends sooner.
const TicketLife = time.Hour

// ticketURL is the path of a ticket on REST, without the ticket.
const ticketURL = "/v1/changeStreams/"

// Tickets makes tickets of requests, and requests of tickets. It keeps nothing, so a ticket is
// valid at each replica of the gateway that has the key.
type Tickets struct {
	keys       *seal.Ring
	deployment seal.Deployment
}

// NewTickets returns the tickets of a ring of keys. deployment tells deployments apart: a ticket is
// valid for one only.
func NewTickets(keys *seal.Ring, deployment string) *Tickets {
	return &Tickets{keys: keys, deployment: seal.NewDeployment(deployment)}
}

// CreateTicket returns a URL that opens a stream for the client that asks.
func (s *Server) CreateTicket(
	ctx context.Context, req *mooringv1.CreateTicketRequest,
) (*mooringv1.CreateTicketResponse, error) {
	r := request.ReadPlain(ctx, req)
	watch, of := req.GetWatch(), req.GetLive()
	switch {
	case watch == nil && of == nil:
		r.Refuse("watch", "is required if live is not set")
	case watch != nil && of != nil:
		r.Refuse("live", "cannot be set together with watch")
	case of != nil:
		r.Known("", of)
		_ = newLive(r, of)
		r.Within("live")
	default:
		r.Known("", watch)
		_, _ = read(r, watch)
		if r.Within("watch"); r.Err() == nil && watch.Session != nil {
			r.Refuse("watch.session", "cannot be set: a ticket outlives sessions")
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	var stream proto.Message = watch
	if of != nil {
		stream = of
	}
	ticket, expires, err := s.cfg.Tickets.seal(r.Identity, stream)
	if err != nil {
		return nil, err
	}
	return &mooringv1.CreateTicketResponse{
		Url: ticketURL + ticket, ExpireTime: timestamppb.New(expires),
	}, nil
}

// seal returns the ticket of a request, and when it ends.
func (t *Tickets) seal(
	of *caller.Identity, stream proto.Message,
) (ticket string, expires time.Time, err error) {
	expires = time.Now().Add(TicketLife)
	if of != nil && !of.Expires.IsZero() && of.Expires.Before(expires) {
		expires = of.Expires
	}
	expires = expires.Truncate(time.Second)
	_, isLive := stream.(*mooringv1.LiveRequest)
	c := claim{identified: of != nil, live: isLive}
	if of != nil {
		c.principal = of.Principal
		c.known, err = json.Marshal(attributes{of.Groups, of.Claims, of.KeyRef()})
		if err != nil || len(c.known) > math.MaxUint16 {
			return "", time.Time{}, &rpcerr.Error{
				Reason:  rpcerr.TooLarge,
				Message: "the claims of the client are too large for a URL",
			}
		}
	}
	if c.stream, err = proto.Marshal(stream); err != nil {
		return "", time.Time{}, fmt.Errorf("marshal the request of a ticket: %w", err)
	}
	body := c.encode()
	if len(body) > seal.MaxTicketBody {
		return "", time.Time{}, &rpcerr.Error{
			Reason: rpcerr.TooLarge, Field: map[bool]string{true: "live", false: "watch"}[isLive],
			Message: fmt.Sprintf("is too large for a URL: %d bytes, %d more than fit",
				len(c.stream), len(body)-seal.MaxTicketBody),
		}
	}
	sealed := seal.Claim{Kind: seal.KindTicket, Deployment: t.deployment, Body: body}
	// A ticket must not outlive its credential, so that what clocks may differ by is taken off.
	sealed.Expires = expires.Add(-seal.MaxSkew)
	return t.keys.Seal(noPrincipal, sealed), expires, nil
}

// noPrincipal is the principal that tickets are sealed for: a ticket says itself whose it is.
const noPrincipal = ""

// refused refuses a ticket. The error does not say why, but for one of another version of the
// gateway, and the ticket is not in it.
func refused(err error) error {
	return &caller.Error{
		Problem: caller.Invalid,
		Message: seal.Explain(err, "the ticket is wrong, or it has expired"),
	}
}

// Open returns the client that a ticket was made for, nil if clients are not authenticated, and the
// stream that it opens: a *WatchRequest or a *LiveRequest. The identity ends with the ticket. Its
// errors are *caller.Error.
func (t *Tickets) Open(ticket string) (*caller.Identity, proto.Message, error) {
	sealed, err := t.keys.Open(noPrincipal, ticket, seal.KindTicket, t.deployment)
	if err != nil {
		return nil, nil, refused(err)
	}
	c, err := decodeClaim(sealed.Body)
	if err != nil {
		return nil, nil, refused(err)
	}
	var stream proto.Message = &mooringv1.WatchRequest{}
	if c.live {
		stream = &mooringv1.LiveRequest{}
	}
	if err := proto.Unmarshal(c.stream, stream); err != nil {
		return nil, nil, refused(err)
	}
	if !c.identified {
		return nil, stream, nil
	}
	var of attributes
	if err := json.Unmarshal(c.known, &of); err != nil {
		return nil, nil, refused(err)
	}
	id := &caller.Identity{
		Principal: c.principal, Expires: sealed.Expires.Add(seal.MaxSkew),
		Groups: of.Groups, Claims: of.Claims,
	}
	return id.WithKey(of.Key), stream, nil
}

// attributes holds what a policy decides by, besides the principal, and the client's API key: the
// ticket counts as long as the key does.
type attributes struct {
	Groups []string       `json:"g,omitempty"`
	Claims map[string]any `json:"c,omitempty"`
	Key    string         `json:"k,omitempty"` // caller.Identity.KeyRef
}

// The bits of a claim's flags.
const (
	flagIdentified = 1 << iota
	flagLive
	flagsKnown = 1<<iota - 1
)

// claim holds what a ticket says.
type claim struct {
	identified bool // the client was authenticated
	principal  string
	known      []byte // attributes as JSON, if the client was authenticated
	stream     []byte // a WatchRequest, or a LiveRequest
	live       bool
}

// fixedBytes is the length of a claim without its principal, its attributes and its request.
const fixedBytes = 1 + 2 + 2

func (c *claim) encode() []byte {
	flags := byte(0)
	if c.identified {
		flags |= flagIdentified
	}
	if c.live {
		flags |= flagLive
	}
	b := append(make([]byte, 0, fixedBytes+len(c.principal)+len(c.known)+len(c.stream)),
		flags)
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.principal))) // at most 256
	b = append(b, c.principal...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.known)))
	b = append(b, c.known...)
	return append(b, c.stream...)
}

// errClaim is a sealed text that is not a claim.
var errClaim = errors.New("unknown content")

func decodeClaim(b []byte) (claim, error) {
	if len(b) < fixedBytes || b[0]&^flagsKnown != 0 {
		return claim{}, errClaim
	}
	c := claim{identified: b[0]&flagIdentified != 0, live: b[0]&flagLive != 0}
	n := int(binary.BigEndian.Uint16(b[1:]))
	if b = b[3:]; len(b) < n+2 {
		return claim{}, errClaim
	}
	c.principal, b = string(b[:n]), b[n:]
	n = int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < n {
		return claim{}, errClaim
	}
	c.known, c.stream = b[:n], b[n:]
	return c, nil
}
