package operation_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
)

// timed is a deployment, its server and its connection at once, each of which takes its time.
type timed struct{ *fake }

func (d timed) Select(ctx context.Context, sel selection.Selector) (operation.Server, error) {
	time.Sleep(time.Second) //nolint:forbidigo // fake time
	if _, err := d.fake.Select(ctx, sel); err != nil {
		return nil, err
	}
	return d, nil
}

func (d timed) CheckOut(ctx context.Context) (operation.Conn, error) {
	time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
	return d.fake.CheckOut(ctx)
}

// TestSpent checks where the time of an operation goes, of one that fails, and of both together.
func TestSpent(t *testing.T) {
	for name, row := range map[string]struct {
		fake                        fake
		runs                        int
		selection, checkOut, server time.Duration
	}{
		"one":       {runs: 1, selection: 1, checkOut: 2, server: 4},
		"two":       {runs: 2, selection: 2, checkOut: 4, server: 8},
		"no server": {fake{selectErrs: []error{errFull}}, 1, 1, 0, 0},
		"no connection, then one": {
			fake{checkOutErrs: []error{errFull}}, 2, 2, 4, 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := row.fake
				f.before = func(context.Context) {
					time.Sleep(4 * time.Second) //nolint:forbidigo // fake time
				}
				r := &operation.Runner{Deployment: timed{&f}}
				var spent operation.Spent
				ctx := context.WithValue(t.Context(), operation.SpentKey{}, &spent)
				for range row.runs {
					_, _ = r.Run(ctx, &operation.Operation{
						Command: command{}, Database: "admin", Kind: operation.Generic,
					})
				}
				if spent.Selection() != row.selection*time.Second ||
					spent.CheckOut() != row.checkOut*time.Second ||
					spent.Server() != row.server*time.Second {
					t.Errorf("%s, %s, %s", spent.Selection(), spent.CheckOut(), spent.Server())
				}
			})
		})
	}
}
