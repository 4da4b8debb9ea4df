package document_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/service/document"
)

// A find counts against the limit of open cursors only if its result may not fit into one batch.
func TestWholeResults(t *testing.T) {
	for _, test := range []struct {
		limit *int64
		batch *int32
		want  bool
	}{
		{nil, nil, false},
		{new(int64(0)), nil, false},
		{new(int64(-5)), nil, true},
		{new(int64(101)), nil, true},
		{new(int64(102)), nil, false},
		{new(int64(101)), new(int32(0)), true},
		{new(int64(10)), new(int32(9)), false},
		{new(int64(10)), new(int32(10)), true},
		{nil, new(int32(10)), false},
	} {
		if got := document.IsWhole(client.FindOptions{
			Limit: test.limit, BatchSize: test.batch,
		}); got != test.want {
			t.Errorf("limit %v, batchSize %v: %v, want %v", test.limit, test.batch, got, test.want)
		}
	}
}
