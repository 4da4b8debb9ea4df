package loginbench

import (
	"context"
	"fmt"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

const (
	user       = "app"
	password   = "pencil"
	iterations = 15_000 // MongoDB's own
	hold       = 3 * time.Second
)

// Serve runs a server that knows the login of one user by SCRAM-SHA-256, and one document. It
// prints its address, and runs until ctx ends.
func Serve(ctx context.Context, _ []string) error {
	document := bson.NewBuilder(nil).Int32("_id", 1).Int32("total", 42).Finish()
	s, err := fakemongo.Listen("127.0.0.1:0", fakemongo.Handlers{
		"ping": fakemongo.Always(fakemongo.OK(nil).After(hold)),
		"find": fakemongo.Always(fakemongo.CursorReply(0, "shop.orders", "firstBatch", document)),
	})
	if err != nil {
		return err
	}
	defer s.Close()
	s.RequireAuth(&fakemongo.Auth{
		Users: []fakemongo.User{
			{Name: user, Password: password, Mechanisms: []string{"SCRAM-SHA-256"}},
		},
		Iterations: iterations,
	})
	fmt.Println(s.Address()) //nolint:forbidigo // for the process that started this one
	<-ctx.Done()
	return nil
}
