package deployment

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/recent"
	"github.com/mooringdb/mooring/service/request"
)

// ListNotableCalls returns the calls that were slow or refused lately.
func (s *Server) ListNotableCalls(
	ctx context.Context, req *mooringv1.ListNotableCallsRequest,
) (*mooringv1.ListNotableCallsResponse, error) {
	if err := request.Plain(ctx, req); err != nil {
		return nil, err
	}
	return &mooringv1.ListNotableCallsResponse{
		Slow:    describeCalls(s.cfg.Recent.Entries(recent.Slow)),
		Refused: describeCalls(s.cfg.Recent.Entries(recent.Refused)),
	}, nil
}

func describeCalls(entries []recent.Entry) []*mooringv1.NotableCall {
	all := make([]*mooringv1.NotableCall, len(entries))
	for i := range entries {
		all[i] = describeCall(&entries[i])
	}
	return all
}

func describeCall(e *recent.Entry) *mooringv1.NotableCall {
	client := ""
	if e.Client.IsValid() {
		client = e.Client.String()
	}
	return &mooringv1.NotableCall{
		Call:      valid(strings.TrimPrefix(e.Method, "/mooring.v1.")),
		Principal: valid(e.Principal), Namespace: valid(e.Namespace),
		Shape: known(valid(e.Shape)), Reason: known(valid(e.Reason)), Count: e.Count,
		LastTime:  timestamppb.New(e.Last.Truncate(time.Millisecond)),
		RequestId: e.RequestID, Client: known(client),
		EndTime:         timestamppb.New(e.End.Truncate(time.Millisecond)),
		Message:         known(valid(e.Message)),
		DurationMicros:  e.Took.Total.Microseconds(),
		QueueMicros:     e.Took.Queue.Microseconds(),
		SelectionMicros: e.Took.Selection.Microseconds(),
		CheckOutMicros:  e.Took.CheckOut.Microseconds(),
		ServerMicros:    e.Took.Server.Microseconds(),
	}
}
