package replica_test

import (
	"context"
	"testing"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestChargedAnswers checks that the server's replies that are read for another replica are charged
// to the client there, for as long as the call takes, and that one without room is refused.
func TestChargedAnswers(t *testing.T) {
	a := admission.New(admission.Config{Bytes: 1000})
	size := 500
	owner := start(t, "a", &fake{answer: func(
		ctx context.Context, q paging.Question,
	) (paging.Answer, error) {
		if got := admission.From(ctx).Principal(); got != (admission.Principal{Name: q.Principal}) {
			t.Errorf("an answer for %q is charged to %v", q.Principal, got)
		}
		done, err := a.AdmitReply(ctx, size)
		if err != nil {
			return paging.Answer{}, context.Cause(ctx)
		}
		done()
		if held := a.Bytes().Held; held != int64(size) {
			t.Errorf("%d bytes are charged, want %d", held, size)
		}
		return paging.Answer{Page: &paging.Page{Token: "t"}}, nil
	}}, func(c *replica.Config) { c.Admission = a })
	asking := start(t, "a", nil)
	q := filled[paging.Question]()
	if _, err := asking.Ask(t.Context(), owner.Advertised(), q); err != nil {
		t.Errorf("Ask = %v", err)
	}
	size = 2000
	_, err := asking.Ask(t.Context(), owner.Advertised(), q)
	refused := rpcerr.HTTP(err).Body.GetError()
	if got := rpcerr.Reason(refused.GetReason()); got != rpcerr.TooLarge {
		t.Errorf("Ask of a reply without room = %v, want TooLarge", err)
	}
	if held := a.Bytes().Held; held != 0 {
		t.Errorf("%d bytes are charged at the end", held)
	}
}
