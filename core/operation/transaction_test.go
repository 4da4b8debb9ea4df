package operation_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
)

// The labels that the driver adds to errors in transactions: TransientTransactionError to those of
// a command, UnknownTransactionCommitResult to those of a commit.
func TestTransactionLabels(t *testing.T) {
	command := func(code int32, labels ...string) error {
		return &mongoerr.CommandError{Code: code, Labels: labels}
	}
	concern := func(code int32) error { return &mongoerr.WriteConcernError{Code: code} }
	network := &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.EOF}
	tests := []struct {
		name      string
		err       error
		transient bool
		unknown   bool
	}{
		{"none", nil, false, false},
		{"network", network, true, true},
		{"network, outcome unknown", &operation.OutcomeUnknownError{Err: network}, true, true},
		{"network, before anything was sent", &mongoerr.NetworkError{Op: "dial", Err: io.EOF}, true, true},
		{"no server", &mongoerr.SelectionError{}, true, true},
		{"pool cleared", &pool.PoolClearedError{}, true, true},
		{"no connection in time", &pool.WaitQueueTimeoutError{Err: context.DeadlineExceeded}, false, true},
		{"no time", &operation.TimeoutError{Err: io.EOF}, false, true},
		{"malformed reply", &mongoerr.MalformedReplyError{}, false, true},
		{"given up", context.Canceled, false, false},
		{"retryable by code only", command(91), false, false},
		{"interrupted", command(11601), false, false},
		{"retryable commit", command(91, mongoerr.LabelRetryableWrite), false, true},
		{"server's time over", command(50), false, true},
		{"server's time over, under timeoutMS", &operation.TimeoutError{Err: command(50)}, false, true},
		{"write concern failed", concern(64), false, true},
		{"write concern timed out", concern(50), false, true},
		{"write concern of a server that goes", fmt.Errorf("commit: %w", concern(91)), false, true},
		{"unknown write concern", concern(79), false, false},
		{"unsatisfiable write concern", concern(100), false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := operation.Transient(tt.err); got != tt.transient {
				t.Errorf("transient(%v) = %v, want %v", tt.err, got, tt.transient)
			}
			if got := operation.UnknownCommit(tt.err); got != tt.unknown {
				t.Errorf("unknownCommit(%v) = %v, want %v", tt.err, got, tt.unknown)
			}
		})
	}
}
