package auth_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
)

// FuzzSCRAM gives two messages to a conversation. It must not succeed: nothing here knows the
// password.
func FuzzSCRAM(f *testing.F) {
	f.Add("r=ab,s=c2FsdA==,i=4096", "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")
	f.Add("r=ab,s=c2FsdA==,i=4096,x=y", "e=other-error")
	f.Add("e=unknown-user", "")
	f.Add("m=x,r=ab,s=c2FsdA==,i=00004096", "v=")
	m := auth.SCRAMSHA256()
	m.SetNonce("a")
	f.Fuzz(func(t *testing.T, first, final string) {
		c := begin(t, m, "app", "pencil")
		_, _ = c.First()
		response, done, err := c.Next([]byte(first))
		if err != nil {
			return
		}
		if done || len(response) == 0 {
			t.Fatalf("Next(%q) = %q, %v", first, response, done)
		}
		if _, _, err := c.Next([]byte(final)); err == nil {
			t.Fatalf("the signature in %q is accepted", final)
		}
	})
}

// FuzzReplies gives any reply to hello and to commands.
func FuzzReplies(f *testing.F) {
	f.Add([]byte(ok), []byte(reply(true, "")))
	f.Add([]byte(mechanisms("SCRAM-SHA-256").
		Document("speculativeAuthenticate", reply(false, "r=x")).Finish()),
		[]byte(reply(false, "")))
	f.Add([]byte(ok), []byte(refusal(18, "no")))
	f.Fuzz(func(t *testing.T, hello, answer []byte) {
		if bson.Raw(hello).Validate() != nil {
			return
		}
		for _, a := range []*auth.Authenticator{
			auth.Negotiate("admin", auth.FixedUser(app)), auth.SASL("$external", auth.FixedUser(app), auth.Plain{}), auth.X509(nil),
		} {
			s := start(t, a)
			appended(t, s)
			r := &script{answer: func(bson.Raw) bson.Raw { return answer }}
			_ = s.Authenticate(t.Context(), r, hello)
			if len(r.commands) > auth.MaxSteps+1 {
				t.Fatalf("%d commands", len(r.commands))
			}
		}
	})
}
