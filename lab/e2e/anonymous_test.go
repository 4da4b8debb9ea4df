package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// TestAnonymousGets sends 500 plain GETs of a collection whose cursors the client does not read on.
// Each is answered, and the cursors on the server and the gateway's memory go down again when the
// unread pages have expired.
func TestAnonymousGets(t *testing.T) {
	const gets = 500
	server := startCanned(t)
	g := suite.Start(t, server.URI(), "--cursors-unread-idle", "3s", "--debug-address",
		"127.0.0.1:0")
	heap := func() uint64 { return g.Vars(t).Memory.HeapAlloc }
	before := heap()
	begun := time.Now()
	for i := range gets {
		if code, err := get(t.Context(),
			g.REST+"/v1/databases/lab/collections/"+memoryCollection+"/documents"); err != nil ||
			code != http.StatusOK {
			t.Fatalf("GET %d: %d, %v", i, code, err)
		}
	}
	most := server.Stats().CursorsOpen
	t.Logf("%d GETs in %s, each 200; %d cursors open on the server, heap %d KiB, %d KiB before",
		gets, time.Since(begun).Round(time.Millisecond), most, heap()>>10, before>>10)
	if most == 0 || most > gets {
		t.Errorf("%d cursors are open", most)
	}
	gatewaytest.Eventually(t, 20*time.Second, func() error {
		if n := server.Stats().CursorsOpen; n > 0 {
			return fmt.Errorf("%d cursors are open", n)
		}
		return nil
	})
	if after := heap(); after > before+(64<<20) {
		t.Errorf("the heap has %d MiB, and had %d", after>>20, before>>20)
	}
}

func get(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
