package transaction_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/seal"
)

// TestKindsOfTokens checks what holds for the tokens of every kind: one of another version says so
// in the same words, one of another kind or deployment is refused, and one expires a minute after
// its time.
func TestKindsOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offices, _ := newOffices(t, 1, keyOne, newKey(t, "1"))
		o := offices[0]
		o.deployment.SetDocuments(accounts, raw(t, `{"_id": "a", "n": 0}`),
			raw(t, `{"_id": "b", "n": 0}`))
		held := o.hold("b")
		for name, row := range map[string]struct {
			kind  seal.Kind
			token string
			use   func(token string) error
			want  string // of a token that is refused
		}{
			"cursor": {seal.KindCursor, held.cursor, func(token string) error {
				_, err := o.Cursor.NextPage(t.Context(), &mooringv1.NextPageRequest{Cursor: token})
				return err
			}, "NotFound CursorNotFound restart"},
			"session": {seal.KindSession, held.session, func(token string) error {
				_, err := o.Document.FindOne(t.Context(), &mooringv1.FindOneRequest{
					Database: "bank", Collection: "accounts", Session: &token,
				})
				return err
			}, "NotFound SessionNotFound restart"},
			"transaction": {
				seal.KindTransaction, held.transaction, o.commit, "NotFound TransactionNotFound never",
			},
			"ticket": {seal.KindTicket, held.ticket, func(token string) error {
				_, _, err := o.tickets.Open(token)
				return err
			}, "the ticket is wrong, or it has expired"},
		} {
			here := seal.NewDeployment("test")
			claim, err := o.ring.Open("", row.token, row.kind, here)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			now := time.Now()
			for change, c := range map[string]seal.Claim{
				"another kind": {
					Kind: row.kind%seal.KindTicket + 1, Deployment: here, Expires: claim.Expires, Body: claim.Body,
				},
				"another deployment": {
					Kind: row.kind, Deployment: seal.NewDeployment("x"), Expires: claim.Expires, Body: claim.Body,
				},
				"expired": {Kind: row.kind, Deployment: here, Expires: now.Add(-seal.MaxSkew), Body: claim.Body},
			} {
				if got := answer(row.use(o.ring.Seal("", c))); got != row.want {
					t.Errorf("%s, %s: %s, want %s", name, change, got, row.want)
				}
			}
			err = row.use(anotherVersion(t, row.token))
			if err == nil || !strings.Contains(err.Error(), seal.ErrVersion.Error()) ||
				row.kind != seal.KindTicket && told(err) != row.want {
				t.Errorf("%s of another version: %v, want %q", name, err, seal.ErrVersion)
			}
			if row.kind == seal.KindCursor {
				continue // this replica has sealed it: see paging's test of clocks
			}
			claim.Expires = now.Add(time.Millisecond - seal.MaxSkew)
			if err := row.use(o.ring.Seal("", claim)); err != nil {
				t.Errorf("%s, before clocks agree that it has expired: %v", name, err)
			}
		}
	})
}

// answer is what a client is told.
func answer(err error) string {
	if refused, ok := errors.AsType[*caller.Error](err); ok {
		return refused.Message
	}
	return told(err)
}

func anotherVersion(t *testing.T, token string) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	b[0]++
	return base64.RawURLEncoding.EncodeToString(b)
}
