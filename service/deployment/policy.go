package deployment

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/policy/table"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Policy lists what the service needs of *policy.Enforcer.
type Policy interface {
	Explain(
		ctx context.Context, who *caller.Identity, name string, request proto.Message,
	) (*policy.Explanation, error)
}

// Callers lists what the service needs of *caller.Authenticator.
type Callers interface {
	// OfKey returns who the clients with an API key of a principal are; nil: there is no such key.
	OfKey(principal string) *caller.Identity
}

var (
	_ Policy  = (*policy.Enforcer)(nil)
	_ Callers = (*caller.Authenticator)(nil)
)

// ExplainPolicy says what the policy makes of a request, which is made nowhere.
func (s *Server) ExplainPolicy(
	ctx context.Context, req *mooringv1.ExplainPolicyRequest,
) (*mooringv1.ExplainPolicyResponse, error) {
	if err := request.Plain(ctx, req); err != nil {
		return nil, err
	}
	who, err := s.identity(req)
	if err != nil {
		return nil, err
	}
	asked, err := explained(req)
	if err != nil {
		return nil, err
	}
	before := proto.Clone(asked)
	x, err := s.explain(ctx, who, "/mooring.v1."+req.GetCall(), asked)
	if err != nil {
		return nil, err
	}
	resp := &mooringv1.ExplainPolicyResponse{
		Allowed: x.Refusal == nil, Rule: valid(x.Rule), NoCommands: known(valid(x.Commandless)),
		Principal: who.Principal, Groups: who.Groups, Permit: known(valid(x.Permit)),
	}
	for _, near := range x.Near {
		resp.NearPermits = append(resp.NearPermits, &mooringv1.NearPermit{
			Rule: valid(near.Rule), Condition: valid(near.If),
		})
	}
	if r := x.Refusal; r != nil {
		resp.Refusal, resp.Field = known(valid(r.Error())), known(valid(r.Field))
	}
	if err := describeClaims(ctx, resp, who); err != nil {
		return nil, err
	}
	if d := x.Decision; d != nil && d.Allowed {
		if resp.Limits, err = describeLimits(ctx, d); err != nil {
			return nil, err
		}
	}
	return resp, describeChanges(resp, before, asked)
}

// explain asks the policy, which may change the request.
func (s *Server) explain(
	ctx context.Context, who *caller.Identity, name string, asked proto.Message,
) (*policy.Explanation, error) {
	if who.Principal == "" {
		who = nil // not authenticated
	}
	if s.cfg.Policy == nil {
		return policy.WithoutPolicy(who, s.cfg.Operators, name), nil
	}
	return s.cfg.Policy.Explain(ctx, who, name, asked)
}

// identity returns who makes the request that is to be explained.
func (s *Server) identity(req *mooringv1.ExplainPolicyRequest) (*caller.Identity, error) {
	who := &caller.Identity{Principal: req.GetPrincipal(), Groups: req.GetGroups()}
	if req.GetClaims() == nil && len(who.Groups) == 0 && s.cfg.Callers != nil {
		if key := s.cfg.Callers.OfKey(who.Principal); key != nil {
			return key, nil
		}
	}
	if req.GetClaims() == nil {
		return who, nil
	}
	text, err := relaxed("claims", req.GetClaims())
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &who.Claims); err != nil {
		return nil, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: "claims", Message: err.Error(),
		}
	}
	return who, nil
}

// explained returns the request that is to be explained.
func explained(req *mooringv1.ExplainPolicyRequest) (proto.Message, error) {
	if req.GetCall() == "" {
		return nil, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: "call", Message: "is required",
		}
	}
	text := []byte("{}")
	var err error
	if req.GetRequest() != nil {
		if text, err = relaxed("request", req.GetRequest()); err != nil {
			return nil, err
		}
	}
	fields, err := table.Fields(text)
	if err != nil {
		return nil, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: "request", Message: err.Error(),
		}
	}
	asked, err := table.NewRequest(req.GetCall(), fields)
	if err != nil {
		field := "request"
		if asked == nil {
			field = "call"
		}
		return nil, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: field, Message: err.Error(),
		}
	}
	return asked, nil
}

// relaxed returns a document of the request as relaxed Extended JSON.
func relaxed(field string, d *mooringv1.Document) ([]byte, error) {
	raw, err := payload.Decoder{}.Raw(field, d)
	if err != nil {
		return nil, err
	}
	text, err := extjson.Append(nil, raw, extjson.Relaxed)
	if err != nil {
		return nil, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: field, Message: err.Error(),
		}
	}
	return text, nil
}

func describeClaims(
	ctx context.Context, resp *mooringv1.ExplainPolicyResponse, who *caller.Identity,
) error {
	if who.Claims == nil {
		return nil
	}
	text, err := json.Marshal(who.Claims)
	if err != nil {
		return err
	}
	raw, err := extjson.Parse(nil, text)
	if err != nil {
		return err
	}
	resp.Claims, err = call.From(ctx).Encoding.Document(raw)
	return err
}

func describeLimits(
	ctx context.Context, d *policy.Decision,
) (l *mooringv1.PolicyLimits, err error) {
	l = &mooringv1.PolicyLimits{
		Hidden: d.Hidden, ReadOnly: d.ReadOnly, Commands: d.Commands, Options: d.Options,
	}
	for _, of := range []struct {
		from bson.Raw
		to   **mooringv1.Document
	}{{d.Filter, &l.Filter}, {d.Forced, &l.Forced}} {
		if *of.to, err = call.From(ctx).Encoding.Document(of.from); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func describeChanges(
	resp *mooringv1.ExplainPolicyResponse, before, after proto.Message,
) error {
	if !resp.GetAllowed() {
		return nil // the check has ended somewhere
	}
	changes, err := table.Changes(before, after)
	for _, c := range changes {
		resp.Changes = append(resp.Changes, &mooringv1.PolicyChange{
			Field: c.Field, Before: known(c.Before), After: known(c.After),
		})
	}
	return err
}
