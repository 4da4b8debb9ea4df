package deployment

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

const (
	defaultBatchSize = 100
	maxBatchSize     = 1000
	// peerPatience is the time that another replica has to answer.
	peerPatience = 5 * time.Second
)

// ListHandles returns a page of the handles of all replicas that can be reached.
func (s *Server) ListHandles(
	ctx context.Context, req *mooringv1.ListHandlesRequest,
) (*mooringv1.ListHandlesResponse, error) {
	if err := request.Plain(ctx, req); err != nil {
		return nil, err
	}
	q, err := readQuery(req)
	if err != nil {
		return nil, err
	}
	size := q.Limit
	q.Limit++ // one more shows whether there is a next page
	found := s.cfg.Handles.Handles(q)
	resp := &mooringv1.ListHandlesResponse{}
	list := func(ctx context.Context, address string) ([]handle.Info, error) {
		return s.cfg.Replicas.List(ctx, address, q)
	}
	for _, a := range askOthers(ctx, s.cfg.Replicas, list) {
		found = append(found, a.value...)
		if a.err != nil {
			resp.Unreachable = append(resp.Unreachable, &mooringv1.UnreachableReplica{
				Address: valid(a.address), Error: rpcerr.Text(a.err),
			})
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	found = merge(found)
	if len(found) > size {
		found = found[:size]
		resp.Cursor = known(markText(found[size-1].Mark()))
	}
	for i := range found {
		resp.Handles = append(resp.Handles, describeHandle(&found[i]))
	}
	return resp, nil
}

// merge sorts handles and removes duplicates. If a handle moves between two replicas meanwhile, it
// may be listed twice. merge keeps the entry with more pages, which is newer.
func merge(found []handle.Info) []handle.Info {
	slices.SortFunc(found, func(a, b handle.Info) int {
		return cmp.Or(a.Mark().Compare(b.Mark()), cmp.Compare(b.Pages, a.Pages))
	})
	return slices.CompactFunc(found, func(a, b handle.Info) bool { return a.ID == b.ID })
}

// KillHandle ends a handle. If it is not here, the error is a call.Elsewhere.
func (s *Server) KillHandle(
	ctx context.Context, req *mooringv1.KillHandleRequest,
) (*mooringv1.KillHandleResponse, error) {
	if err := request.Plain(ctx, req); err != nil {
		return nil, err
	}
	id := req.GetId()
	if id == "" {
		return nil, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: "id", Message: "is required",
		}
	}
	err := s.cfg.Handles.Kill(ctx, id)
	if errors.Is(err, handle.ErrNotFound) && !call.From(ctx).Forwarded && s.cfg.Replicas != nil {
		return nil, &elsewhere{s.cfg.Replicas}
	}
	if err != nil {
		return nil, err
	}
	return &mooringv1.KillHandleResponse{}, nil
}

// elsewhere describes a kill of a handle that is not here.
type elsewhere struct{ replicas Replicas }

var _ call.Elsewhere = (*elsewhere)(nil)

func (e *elsewhere) Error() string { return "this replica does not have the handle" }

// Route has all other replicas kill the handle. If no replica knows it, but one has failed, Route
// returns that failure: the handle may be there.
func (e *elsewhere) Route(
	ctx context.Context, _ func(context.Context) error, there call.There,
) (call.Reply, error) {
	err := handle.ErrNotFound
	kill := func(ctx context.Context, address string) (call.Reply, error) {
		return there(ctx, page.Replica{Address: address})
	}
	for _, a := range askOthers(ctx, e.replicas, kill) {
		switch {
		case a.err == nil:
			return a.value, nil
		case !errors.Is(a.err, handle.ErrNotFound):
			err = a.err
		}
	}
	if ctx.Err() != nil {
		return call.Reply{}, context.Cause(ctx)
	}
	return call.Reply{}, err
}

// answer holds what another replica has answered.
type answer[T any] struct {
	address string
	value   T
	err     error
}

// askOthers asks all other replicas in parallel and blocks until each has answered or its time is
// over. The answers are sorted by address.
func askOthers[T any](
	ctx context.Context, replicas Replicas,
	ask func(ctx context.Context, address string) (T, error),
) []answer[T] {
	if replicas == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	addresses := slices.Sorted(slices.Values(replicas.Others(ctx, false)))
	answers := make([]answer[T], len(addresses))
	var asking sync.WaitGroup
	for i, address := range addresses {
		asking.Go(func() {
			value, err := ask(ctx, address)
			answers[i] = answer[T]{address, value, err}
		})
	}
	asking.Wait()
	return answers
}

// readQuery returns the query of a request. Its Limit is the size of the page.
func readQuery(req *mooringv1.ListHandlesRequest) (handle.Query, error) {
	q := handle.Query{Principal: req.Principal, Pinned: req.Pinned, Limit: defaultBatchSize}
	if n := req.BatchSize; n != nil {
		if *n < 1 {
			return q, &rpcerr.Error{
				Reason: rpcerr.InvalidArgument, Field: "batchSize",
				Message: "must be at least 1",
			}
		}
		q.Limit = min(int(*n), maxBatchSize)
	}
	if req.Namespace != nil {
		var isCollection bool
		q.Database, q.Collection, isCollection = strings.Cut(req.GetNamespace(), ".")
		if q.Database == "" || isCollection && q.Collection == "" {
			return q, &rpcerr.Error{
				Reason: rpcerr.InvalidArgument, Field: "namespace",
				Message: `must be a database or "database.collection"`,
			}
		}
	}
	if req.Cursor != nil {
		var ok bool
		if q.After, ok = readMark(req.GetCursor()); !ok {
			return q, &rpcerr.Error{
				Reason: rpcerr.InvalidArgument, Field: "cursor",
				Message: "is not from a response of this call",
			}
		}
	}
	return q, nil
}

// The cursor of a list is the mark of its last handle: base64url of the milliseconds, in eight
// bytes, and the id. The list shows both, so it need not be sealed.

func markText(m handle.Mark) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(m.Opened.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(b, m.ID...))
}

func readMark(token string) (handle.Mark, bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) <= 8 {
		return handle.Mark{}, false
	}
	opened := time.UnixMilli(int64(binary.BigEndian.Uint64(b)))
	return handle.Mark{Opened: opened, ID: string(b[8:])}, true
}

func describeHandle(h *handle.Info) *mooringv1.HandleDescription {
	namespace := h.Database
	if h.Collection != "" {
		namespace += "." + h.Collection
	}
	return &mooringv1.HandleDescription{
		Id: h.ID, Kind: string(h.Kind), Principal: valid(h.Principal),
		Namespace: valid(namespace), Server: known(valid(string(h.Server))),
		Pinned: h.Pinned, Busy: h.Busy, Pages: int64(h.Pages), Replica: known(valid(h.Replica)),
		OpenTime: timestamp(h.Opened), LastUseTime: timestamp(h.LastUse),
		ExpireTime: timestamp(h.Expires),
	}
}
