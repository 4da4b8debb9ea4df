package topology_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/topology"
)

func TestIsOfCredential(t *testing.T) {
	login := func(k auth.Kind, err error) error {
		return fmt.Errorf("x: %w", &auth.Error{Kind: k, Err: err})
	}
	reply := func(code int32) error { return &mongoerr.CommandError{Code: code} }
	tests := map[string]struct {
		err            error
		serving, alone bool // the result with connections that have logged in, and without
	}{
		"not to be had":      {login(auth.KindCredential, errors.New("no file")), true, true},
		"refused":            {login(auth.KindRejected, reply(18)), true, false},
		"no such user":       {login(auth.KindRejected, reply(11)), true, false},
		"shutdown":           {login(auth.KindRejected, reply(91)), false, false},
		"no such mechanism":  {login(auth.KindMechanism, reply(334)), false, false},
		"network":            {login(auth.KindConnection, &mongoerr.NetworkError{}), false, false},
		"wrong signature":    {login(auth.KindServer, errors.New("wrong")), false, false},
		"refused in a hello": {reply(18), false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for serving, want := range map[bool]bool{true: tt.serving, false: tt.alone} {
				if got := topology.IsOfCredential(tt.err, serving); got != want {
					t.Errorf("isOfCredential(%v, %v) = %v, want %v", tt.err, serving, got, want)
				}
			}
		})
	}
}
