package call_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/service/call"
)

// TestLend checks when memory is taken back: when the transport says that the response is written,
// and never if the transport says nothing, has ended already, or the response is remembered.
func TestLend(t *testing.T) {
	for name, test := range map[string]struct {
		call  func(l *call.Lent) call.Call
		taken bool
	}{
		"the transport closes it": {func(l *call.Lent) call.Call { return call.Call{Local: call.Local{Lent: l}} }, true},
		"nothing says when":       {func(*call.Lent) call.Call { return call.Call{} }, false},
		"it has ended": {func(l *call.Lent) call.Call {
			l.Close()
			return call.Call{Local: call.Local{Lent: l}}
		}, false},
		"a statement of a transaction": {func(l *call.Lent) call.Call {
			return call.Call{Local: call.Local{Lent: l}, Transaction: &call.Transaction{}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := buffer.Lent()
			l := &call.Lent{}
			ctx := &call.Context{Context: t.Context(), Call: test.call(l)}
			call.Lend(ctx, nil)
			b := buffer.Get(16 << 10)
			copy(b.Bytes(), "valid")
			call.Lend(ctx, b)
			if string(b.Bytes()[:5]) != "valid" {
				t.Error("it was taken back before the end")
			}
			l.Close()
			l.Close()
			if taken := string(b.Bytes()[:5]) != "valid"; buffer.Poisoned && taken != test.taken {
				t.Errorf("taken back %t, want %t", taken, test.taken)
			}
			if n := buffer.Lent() - before; n != 0 {
				t.Errorf("%d are lent after all", n)
			}
		})
	}
}
