package document_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

// lostWrites lists how the attempts of a write can end, and what its client is told.
var lostWrites = []struct {
	name           string
	replies        []fakemongo.Reply // the last one is that of all attempts that follow
	reason         string
	plain, withKey string // retry
}{
	{
		"lost, then refused by a server that stepped down",
		[]fakemongo.Reply{fakemongo.Drop(), steppedDown},
		"WriteOutcomeUnknown", "never", "same-request",
	},
	{
		"lost, then refused by an overloaded server",
		[]fakemongo.Reply{fakemongo.Drop(), overloaded},
		"WriteOutcomeUnknown", "never", "same-request",
	},
	{
		"applied without its write concern, then refused",
		[]fakemongo.Reply{unconfirmed, steppedDown},
		"WriteOutcomeUnknown", "never", "same-request",
	},
	{
		"lost twice",
		[]fakemongo.Reply{fakemongo.Drop(), fakemongo.Drop()},
		"WriteOutcomeUnknown", "never", "same-request",
	},
	{
		"refused by servers that stepped down",
		[]fakemongo.Reply{steppedDown},
		"NotWritablePrimary", "same-request", "same-request",
	},
	{
		"refused by an overloaded server",
		[]fakemongo.Reply{overloaded},
		"IngressRequestRateLimitExceeded", "same-request", "same-request",
	},
	{
		"lost, then executed, with an error of its own",
		[]fakemongo.Reply{fakemongo.Drop(), invalid},
		"DocumentValidationFailure", "never", "never",
	},
}

var (
	steppedDown = fakemongo.Error(10107, "NotWritablePrimary", "no", "RetryableWriteError")
	overloaded  = fakemongo.Error(462, "IngressRequestRateLimitExceeded", "no",
		"SystemOverloadedError", "RetryableError")
	// unconfirmed is the reply to any of the commands.
	unconfirmed = fakemongo.OK(func(b *bson.Builder) {
		b.Int32("n", 1).Int32("nModified", 1).Int32("nErrors", 0).Int32("nInserted", 1).
			Int32("nMatched", 0).Int32("nUpserted", 0).Int32("nDeleted", 0).Null("value").
			OpenDocument("cursor").Int64("id", 0).String("ns", "admin.$cmd.bulkWrite").
			OpenArray("firstBatch").Close().Close().
			OpenDocument("writeConcernError").Int32("code", 91).String("errmsg", "bye").Close().
			OpenArray("errorLabels").String("", "RetryableWriteError").Close()
	})
	invalid = fakemongo.Error(121, "DocumentValidationFailure", "no")
)

// TestLostWrites checks what the client of each write is told after attempts of which one may have
// been applied: never what the last of them alone would mean.
func TestLostWrites(t *testing.T) {
	for _, row := range lostWrites {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := startReplicaSet(t, servicetest.Config{})
				var n atomic.Int64
				g.Server.Intercept(func(
					cmd *fakemongo.Command, next fakemongo.Handler,
				) fakemongo.Reply {
					switch cmd.Name {
					case "insert", "update", "delete", "findAndModify", "bulkWrite":
						return row.replies[min(int(n.Add(1)), len(row.replies))-1]
					}
					return next(cmd)
				})
				calls := writes(g)
				calls["Import"] = func(ctx context.Context) error {
					_, err := importing(ctx, t, g, to(batch(1, 1, 10)))
					return err
				}
				calls["PatchDocument"] = func(ctx context.Context) error {
					_, err := g.Resource.PatchDocument(ctx, &mooringv1.PatchDocumentRequest{
						Database: "d", Collection: "c", Id: payload.NewValue(bson.Int32Value(1)),
						Update: operators(`{"$inc": {"a": 1}}`),
					})
					return err
				}
				for name, call := range calls {
					check := func(ctx context.Context, retry string) {
						n.Store(0)
						e := rpcerr.HTTP(call(ctx)).Body.GetError()
						if e.GetReason() != row.reason || e.GetRetry() != retry {
							t.Errorf("%s: %s, retry %s, want %s, %s (%s)", name, e.GetReason(),
								e.GetRetry(), row.reason, retry, e.GetMessage())
						}
					}
					check(t.Context(), row.plain)
					if name != "Import" { // it takes no key
						check(withKey(t.Context(), "k"+name), row.withKey)
					}
				}
			})
		})
	}
}
