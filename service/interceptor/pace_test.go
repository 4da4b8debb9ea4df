package interceptor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestPace checks which outcomes are held back from a client that has had many of them: those of
// calls that are refused, and no others. While a refusal is held back, the call has no place.
func TestPace(t *testing.T) {
	forms := map[string]func(
		context.Context, *interceptor.Chain, func(context.Context) error,
	) error{"unary": unary, "stream": stream}
	for _, test := range []struct {
		name  string
		err   error
		paced bool
	}{
		{"no error", nil, false},
		{"beyond its share", &admission.Error{Cause: admission.OwnShare}, true},
		{"overloaded", &admission.Error{Cause: admission.Full}, true},
		{"by the policy", &rpcerr.Error{Reason: rpcerr.PolicyRefused}, true},
		{"a mistake in the request", &rpcerr.Error{Reason: rpcerr.InvalidArgument}, false},
		{"not found", &rpcerr.Error{Reason: rpcerr.DocumentNotFound}, false},
		{"no server", &rpcerr.Error{Reason: rpcerr.NoSuitableServer}, false},
	} {
		for form, run := range forms {
			t.Run(test.name+"/"+form, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := admission.New(admission.Config{Calls: admission.Limits{Total: 10}})
					x := interceptor.New(interceptor.Config{Admission: a})
					begun := time.Now()
					call := func(address string) {
						_ = run(from(t.Context(), address), x, func(context.Context) error {
							return test.err
						})
					}
					for range 110 {
						call("192.0.2.1")
					}
					want := time.Duration(0)
					if test.paced {
						want = 100 * time.Millisecond // of the last ten
					}
					if took := time.Since(begun); took != want {
						t.Errorf("110 calls take %v, want %v", took, want)
					}
					begun = time.Now()
					if call("192.0.2.2"); time.Since(begun) > 0 {
						t.Errorf("the call of another client takes %v", time.Since(begun))
					}
					go call("192.0.2.1")
					synctest.Wait()
					if held := a.Calls().Held; held != 0 {
						t.Errorf("%d places are held while the refusal is held back", held)
					}
					time.Sleep(time.Second) //nolint:forbidigo // fake time
				})
			})
		}
	}
}
