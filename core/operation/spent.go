package operation

import (
	"context"
	"sync/atomic"
	"time"
)

// Spent adds up where the operations of one caller have spent their time. Its zero value is empty;
// operations that run at the same time may share one.
type Spent struct{ selection, checkOut, server atomic.Int64 }

// SpentKey finds the *Spent of a context, to which the operations with that context add.
type SpentKey struct{}

// Selection returns the time in which operations waited for a server that they could use.
func (s *Spent) Selection() time.Duration { return time.Duration(s.selection.Load()) }

// CheckOut returns the time in which operations waited for a connection: until one was free, or was
// established.
func (s *Spent) CheckOut() time.Duration { return time.Duration(s.checkOut.Load()) }

// Server returns the time from sending commands until their replies were read: that of the servers,
// and of the network to them.
func (s *Spent) Server() time.Duration { return time.Duration(s.server.Load()) }

// stopwatch measures the parts of an operation, one after the other. The zero value measures none.
type stopwatch struct {
	spent *Spent
	since time.Time
}

// startWatch returns a stopwatch for the Spent that ctx has, if any.
func startWatch(ctx context.Context) stopwatch {
	spent, _ := ctx.Value(SpentKey{}).(*Spent)
	w := stopwatch{spent: spent}
	w.restart()
	return w
}

func (w *stopwatch) restart() {
	if w.spent != nil {
		w.since = time.Now()
	}
}

func (w *stopwatch) selected() {
	if w.spent != nil {
		w.add(&w.spent.selection)
	}
}

func (w *stopwatch) checkedOut() {
	if w.spent != nil {
		w.add(&w.spent.checkOut)
	}
}

func (w *stopwatch) answered() {
	if w.spent != nil {
		w.add(&w.spent.server)
	}
}

func (w *stopwatch) add(to *atomic.Int64) {
	now := time.Now()
	to.Add(int64(now.Sub(w.since)))
	w.since = now
}
