package client_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The tests below are the test plan of the authentication specification for SCRAM, in its order.
// The server's side of SCRAM and SASLprep is another implementation than core/auth.

// planUsers are the users of the plan.
func planUsers() []fakemongo.User {
	return []fakemongo.User{
		{Name: "sha1", Password: "sha1", Mechanisms: []string{"SCRAM-SHA-1"}},
		{Name: "sha256", Password: "sha256", Mechanisms: []string{"SCRAM-SHA-256"}},
		{Name: "both", Password: "both"},
		{Name: "IX", Password: "IX", Mechanisms: []string{"SCRAM-SHA-256"}},
		{Name: "\u2168", Password: "\u2163", Mechanisms: []string{"SCRAM-SHA-256"}},
	}
}

// logIn runs a find as a user, and returns the mechanisms that the server has seen, and the error.
func logIn(
	t *testing.T, server fakemongo.Auth, userinfo, options string,
) (began []string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, nil)
		s.RequireAuth(&server)
		options := "directConnection=true&serverSelectionTimeoutMS=2000&" + options
		err = findOrders(t, authenticating(t, s, userinfo, options, client.Options{}))
		for _, cmd := range s.Commands() {
			if mechanism, ok := mechanismOf(cmd.Body); ok {
				began = append(began, mechanism)
			}
		}
	})
	return began, err
}

// mechanismOf returns the mechanism that a command begins, also by speculation in a hello.
func mechanismOf(body bson.Raw) (string, bool) {
	v, ok := body.Lookup("mechanism")
	if !ok {
		v, ok = body.Lookup("speculativeAuthenticate", "mechanism")
	}
	if !ok {
		return "", false
	}
	return v.Str()
}

func wantRejected(t *testing.T, err error) {
	t.Helper()
	if failed, ok := errors.AsType[*auth.Error](err); !ok || failed.Kind != auth.KindRejected {
		t.Errorf("find = %v, want a login that the server refuses", err)
	}
}

// TestSCRAMProse1 logs in each user by each of its mechanisms, given and negotiated.
func TestSCRAMProse1(t *testing.T) {
	mechanisms := map[string][]string{
		"sha1": {"SCRAM-SHA-1"}, "sha256": {"SCRAM-SHA-256"}, "both": {"SCRAM-SHA-1", "SCRAM-SHA-256"},
	}
	for name, own := range mechanisms {
		for _, option := range append(slices.Clone(own), "") {
			t.Run(name+" "+option, func(t *testing.T) {
				options := ""
				if option != "" {
					options = "authMechanism=" + option
				}
				if _, err := logIn(t, fakemongo.Auth{Users: planUsers()}, name+":"+name+"@",
					options); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestSCRAMProse2 has a user of both mechanisms log in by SCRAM-SHA-256, and by that alone.
func TestSCRAMProse2(t *testing.T) {
	began, err := logIn(t, fakemongo.Auth{Users: planUsers()}, "both:both@", "")
	if err != nil || len(began) == 0 || slices.Contains(began, "SCRAM-SHA-1") {
		t.Errorf("it began %v, %v, want SCRAM-SHA-256 alone", began, err)
	}
}

// TestSCRAMProse3 gives users a mechanism that they do not have, and has a user negotiate that the
// server does not know: each is refused like a wrong password.
func TestSCRAMProse3(t *testing.T) {
	for _, tt := range []struct{ userinfo, options string }{
		{"sha1:sha1@", "authMechanism=SCRAM-SHA-256"},
		{"sha256:sha256@", "authMechanism=SCRAM-SHA-1"},
		{"unknown:both@", ""},
		{"both:wrong@", ""},
	} {
		t.Run(tt.userinfo+tt.options, func(t *testing.T) {
			_, err := logIn(t, fakemongo.Auth{Users: planUsers()}, tt.userinfo, tt.options)
			wantRejected(t, err)
		})
	}
}

// TestSCRAMProse4 logs in with passwords that SASLprep maps to others. It maps no user names: IX
// and the one character U+2168 are two users.
func TestSCRAMProse4(t *testing.T) {
	for _, userinfo := range []string{
		"IX:IX@", "IX:I%C2%ADX@", "%E2%85%A8:IV@", "%E2%85%A8:I%C2%ADV@",
	} {
		for _, options := range []string{"", "authMechanism=SCRAM-SHA-256"} {
			t.Run(userinfo+options, func(t *testing.T) {
				if _, err := logIn(t, fakemongo.Auth{Users: planUsers()}, userinfo,
					options); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestSCRAMProse5 has servers ask for iteration counts around the minimum of 4096.
func TestSCRAMProse5(t *testing.T) {
	for iterations, ok := range map[int]bool{4095: false, 4096: true} {
		for _, mechanism := range []string{"SCRAM-SHA-1", "SCRAM-SHA-256"} {
			t.Run(fmt.Sprint(mechanism, iterations), func(t *testing.T) {
				server := fakemongo.Auth{Users: planUsers(), Iterations: iterations}
				if _, err := logIn(t, server, "both:both@",
					"authMechanism="+mechanism); (err == nil) != ok {
					t.Errorf("find = %v, want success: %v", err, ok)
				}
			})
		}
	}
}
