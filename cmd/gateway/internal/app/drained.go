package app

import (
	"log/slog"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/transaction"
)

// drained holds the parts that know what became of the work of clients when the gateway stopped.
type drained struct {
	fx.In

	Log           *slog.Logger
	Gate          *interceptor.Gate
	Pager         *paging.Pager
	Transactions  *transaction.Transactions
	ChangeStreams *changestream.Server
}

// log writes the figures, once all parts have stopped.
func (d *drained) log() {
	cursors := d.Pager.Fate()
	d.Log.Info("drained",
		"cursors_handed_over", cursors.HandedOver, "cursors_ended", cursors.Ended,
		"cursors_left", cursors.Left, "transactions_ended", d.Transactions.Drained(),
		"change_streams_ended", d.ChangeStreams.Stopped(), "calls_cut", d.Gate.Cut())
}
