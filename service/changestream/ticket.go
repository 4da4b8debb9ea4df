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
	"github.com/mooringdb/mooring/service/paging"
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
	deployment paging.DeploymentID
}

// NewTickets returns the tickets of a ring of keys. deployment tells deployments apart: a ticket is
// valid for one only.
func NewTickets(keys *seal.Ring, deployment string) *Tickets {
	return &Tickets{keys: keys, deployment: paging.NewDeploymentID(deployment)}
}

// CreateTicket returns a URL that opens a stream for the client that asks.
func (s *Server) CreateTicket(
	ctx context.Context, req *mooringv1.CreateTicketRequest,
) (*mooringv1.CreateTicketResponse, error) {
	r := request.ReadPlain(ctx, req)
	watch := req.GetWatch()
	if watch == nil {
		r.Refuse("watch", "is required")
		return nil, r.Err()
	}
	r.Known("", watch)
	if _, _ = read(r, watch); r.Err() != nil {
		r.Within("watch")
		return nil, r.Err()
	}
	if watch.Session != nil {
		r.Refuse("watch.session", "is not for a ticket, which outlives sessions")
		return nil, r.Err()
	}
	ticket, expires, err := s.cfg.Tickets.seal(r.Identity, watch)
	if err != nil {
		return nil, err
	}
	return &mooringv1.CreateTicketResponse{
		Url: ticketURL + ticket, ExpireTime: timestamppb.New(expires),
	}, nil
}

// seal returns the ticket of a request, and when it ends.
func (t *Tickets) seal(
	of *caller.Identity, watch *mooringv1.WatchRequest,
) (ticket string, expires time.Time, err error) {
	expires = time.Now().Add(TicketLife)
	if of != nil && !of.Expires.IsZero() && of.Expires.Before(expires) {
		expires = of.Expires
	}
	expires = expires.Truncate(time.Second)
	c := claim{deployment: t.deployment, expires: expires, identified: of != nil}
	if of != nil {
		c.principal = of.Principal
		c.known, err = json.Marshal(attributes{of.Groups, of.Claims})
		if err != nil || len(c.known) > math.MaxUint16 {
			return "", time.Time{}, &rpcerr.Error{
				Reason:  rpcerr.TooLarge,
				Message: "the claims of the client are too large for a URL",
			}
		}
	}
	if c.watch, err = proto.Marshal(watch); err != nil {
		return "", time.Time{}, fmt.Errorf("marshal the request of a ticket: %w", err)
	}
	plain := c.encode()
	if len(plain) > seal.MaxTicketPlainBytes {
		return "", time.Time{}, &rpcerr.Error{
			Reason: rpcerr.TooLarge, Field: "watch",
			Message: fmt.Sprintf("is too large for a URL: %d bytes, %d more than fit",
				len(c.watch), len(plain)-seal.MaxTicketPlainBytes),
		}
	}
	return t.keys.SealTicket(plain), expires, nil
}

// errTicket refuses a ticket. It does not say why, and the ticket is not in it.
var errTicket = &caller.Error{
	Problem: caller.Invalid, Message: "the ticket is wrong, or it has expired",
}

// Open returns the client that a ticket was made for, nil if clients are not authenticated, and the
// stream that it opens. The identity ends with the ticket. Errors are *caller.Error.
func (t *Tickets) Open(ticket string) (*caller.Identity, *mooringv1.WatchRequest, error) {
	plain, err := t.keys.OpenTicket(ticket)
	if err != nil {
		return nil, nil, errTicket
	}
	c, err := decodeClaim(plain)
	if err != nil || c.deployment != t.deployment || !time.Now().Before(c.expires) {
		return nil, nil, errTicket
	}
	watch := &mooringv1.WatchRequest{}
	if proto.Unmarshal(c.watch, watch) != nil {
		return nil, nil, errTicket
	}
	if !c.identified {
		return nil, watch, nil
	}
	var of attributes
	if json.Unmarshal(c.known, &of) != nil {
		return nil, nil, errTicket
	}
	return &caller.Identity{
		Principal: c.principal, Expires: c.expires, Groups: of.Groups, Claims: of.Claims,
	}, watch, nil
}

// attributes holds what a policy decides by, besides the principal.
type attributes struct {
	Groups []string       `json:"g,omitempty"`
	Claims map[string]any `json:"c,omitempty"`
}

// version1 is the first sealed byte of a ticket. No other kind of token begins with it.
const version1 = 64

// The bits of a claim's flags.
const (
	flagIdentified = 1 << iota
	flagsKnown     = 1<<iota - 1
)

// claim holds what a ticket says.
type claim struct {
	deployment paging.DeploymentID
	expires    time.Time
	identified bool // the client was authenticated
	principal  string
	known      []byte // attributes as JSON, if the client was authenticated
	watch      []byte // a WatchRequest
}

// fixedBytes is the length of a claim without its principal, its attributes and its request.
const fixedBytes = 2 + 16 + 8 + 2 + 2

func (c *claim) encode() []byte {
	flags := byte(0)
	if c.identified {
		flags |= flagIdentified
	}
	b := append(make([]byte, 0, fixedBytes+len(c.principal)+len(c.known)+len(c.watch)),
		version1, flags)
	b = append(b, c.deployment[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.expires.Unix()))
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.principal))) // at most 256
	b = append(b, c.principal...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.known)))
	b = append(b, c.known...)
	return append(b, c.watch...)
}

// errClaim is a sealed text that is no claim.
var errClaim = errors.New("unknown content")

func decodeClaim(b []byte) (claim, error) {
	if len(b) < fixedBytes || b[0] != version1 || b[1]&^flagsKnown != 0 {
		return claim{}, errClaim
	}
	c := claim{identified: b[1]&flagIdentified != 0}
	b = b[2:]
	b = b[copy(c.deployment[:], b):]
	c.expires = time.Unix(int64(binary.BigEndian.Uint64(b)), 0)
	n := int(binary.BigEndian.Uint16(b[8:]))
	if b = b[10:]; len(b) < n+2 {
		return claim{}, errClaim
	}
	c.principal, b = string(b[:n]), b[n:]
	n = int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < n {
		return claim{}, errClaim
	}
	c.known, c.watch = b[:n], b[n:]
	return c, nil
}
