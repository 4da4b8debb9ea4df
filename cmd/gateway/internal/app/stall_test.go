package app_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestStalledStream checks that a client that stops reading its stream loses the stream, its
// cursor and the connection that the cursor holds behind a load balancer, also at the replica
// that has them.
func TestStalledStream(t *testing.T) {
	b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1, TCP: true, Strict: true})
	b.SetDocuments("db.c", fakemongo.Numbered(0, 1000, 20<<10)...)
	uri := "mongodb://" + string(b.Service(0).Address()) + "/?loadBalanced=true&maxPoolSize=10"
	owner, other := replica(t, uri, "", "--cursors-idle=1s"),
		replica(t, uri, "", "--cursors-idle=1s")
	for name, at := range map[string]*gateway{"at its owner": owner, "relayed": other} {
		_, token := owner.find()
		s, err := at.cursors().
			Stream(t.Context(), &mooringv1.CursorServiceStreamRequest{Cursor: token})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatalf("%s: the first message: %v", name, err)
		}
		again, late := time.NewTicker(10*time.Millisecond), time.After(waitTime)
		for b.OpenCursors() > 0 {
			select {
			case <-again.C:
			case <-late:
				t.Fatalf("%s: the cursor of a client that does not read is still open", name)
			}
		}
		again.Stop()
		for err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.DeadlineExceeded ||
			!strings.Contains(err.Error(), "read nothing") {
			t.Errorf("%s: the stream ended with %v, want StreamStalled", name, err)
		}
	}
	owner.stop()
	other.stop()
}
