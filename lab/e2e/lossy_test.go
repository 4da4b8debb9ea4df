package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/lossy"
)

// The clients of one run.
const (
	lossyClients = 100
	patience     = 100 // attempts at one page
)

// TestLostReplies reads cursors from two replicas through a proxy that loses requests and
// replies, with clients that repeat each page call at random on a random replica, sometimes on
// both at once. Each client reads every document exactly once, or ends with one of the two errors
// that say that this is impossible. Behind a load balancer it may also end with the error that says
// that its replica is gone. LOSSY_SEED repeats the clients' decisions.
func TestLostReplies(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LOSSY_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("LOSSY_SEED=%d", seed)
	crash := func(t *testing.T, g *gatewaytest.Gateway) { g.Kill(t) }
	drain := func(t *testing.T, g *gatewaytest.Gateway) {
		if err := g.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	for name, start := range backends {
		for _, row := range []struct {
			name, memory string
			// Happens to a replica when a third of the pages was read.
			meanwhile func(*testing.T, *gatewaytest.Gateway)
		}{
			{"pages are remembered", "64MiB", nil},
			{"no page is remembered", "0", nil},
			{"a replica drains", "64MiB", drain},
			{"a replica crashes", "64MiB", crash},
		} {
			t.Run(name+", "+row.name, func(t *testing.T) {
				backend := start(t)
				// Long enough for a client to go away meanwhile, and for two calls to meet.
				backend.handle("getMore", func(s *fakemongo.Server) fakemongo.Handler {
					return func(c *fakemongo.Command) fakemongo.Reply {
						return s.Default(c).After(2 * time.Millisecond)
					}
				})
				replicas := startReplicas(t, backend.uri, "--cursors-page-memory", row.memory,
					"--cursors-max-per-principal", "none")
				total := &outcomes{counts: map[string]int{}, third: make(chan struct{})}
				var wg sync.WaitGroup
				proxy := lossy.Start(t, replicas[0].REST, replicas[1].REST)
				ran := make(chan struct{})
				wg.Go(func() {
					defer close(ran)
					total.run(t, proxy, seed)
				})
				if row.meanwhile != nil {
					select {
					case <-total.third:
						row.meanwhile(t, replicas[0])
					case <-ran: // too early: no client could read
					case <-t.Context().Done():
					}
				}
				wg.Wait()
				t.Logf("%v", total.counts)
				allowed := named
				if backend.pinned && row.meanwhile != nil {
					allowed = append(slices.Clone(named), "CursorOwnerGone")
				}
				ended := total.counts["complete"]
				for _, reason := range allowed {
					ended += total.counts["ended: "+reason]
				}
				if ended != lossyClients {
					t.Errorf("%d of %d clients ended as they may", ended, lossyClients)
				}
				// Nothing is lost for good where pages are remembered, and their replicas alive.
				if complete := total.counts["complete"]; row.name == "pages are remembered" &&
					complete != lossyClients || complete == 0 {
					t.Errorf("%d of %d complete", complete, lossyClients)
				}
				if row.memory == "0" && total.counts["ended: CursorTokenReused"] == 0 {
					t.Error("no repeated call was refused although no page is remembered")
				}
			})
		}
	}
}

// outcomes counts what became of calls, and of cursors.
type outcomes struct {
	mu     sync.Mutex
	counts map[string]int
	pages  int
	third  chan struct{} // closed when a third of all pages was read
}

// run lets the clients read.
func (o *outcomes) run(t *testing.T, proxy *lossy.Proxy, seed uint64) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range lossyClients {
		c := &lossyClient{url: proxy.URL, random: rand.New(rand.NewPCG(seed, uint64(i))), total: o}
		wg.Go(func() {
			if err := c.read(t.Context()); err != nil {
				o.add("ended: " + reasonOf(err))
				t.Logf("client %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func (o *outcomes) addPage() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pages++; o.pages == lossyClients*pagedBatches/3 {
		close(o.third)
	}
}

func (o *outcomes) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[what]++
}

// lossyClient reads one cursor. Its decisions come from its own random numbers.
type lossyClient struct {
	url    string
	random *rand.Rand
	total  *outcomes
	at     int32 // the next document
}

// named has the errors that may end a cursor. endings adds the error that ends a pinned cursor
// when its replica ends.
var (
	named   = []string{"CursorTokenReused", "CursorPositionUnknown"}
	endings = append(slices.Clone(named), "CursorOwnerGone")
)

// unreachable is a 503 whose advice is to repeat the same call.
const unreachable = "ReplicaUnreachable"

func (c *lossyClient) read(ctx context.Context) error {
	p, err := c.find(ctx)
	for err == nil {
		if err := p.follows(c.at, pagedDocuments); err != nil {
			return err
		}
		c.at += int32(len(p.ids))
		c.total.addPage()
		if p.cursor == "" {
			c.total.add("complete")
			return nil
		}
		p, err = c.next(ctx, p.cursor)
	}
	if reason := reasonOf(err); slices.Contains(endings, reason) {
		c.total.add("ended: " + reason)
		return nil
	}
	return fmt.Errorf("at document %d: %w", c.at, err)
}

// find opens the cursor; a lost reply is a lost cursor.
func (c *lossyClient) find(ctx context.Context) (numbers, error) {
	for range patience {
		p, err := c.pager().find(ctx, "c", pagedBatch)
		if !isLoss(err) {
			return p, err
		}
	}
	return numbers{}, errors.New("no page at all")
}

// next gets the page that a token stands for, as often as it takes, and then perhaps once more.
func (c *lossyClient) next(ctx context.Context, token string) (numbers, error) {
	for range patience {
		p, err := c.attempt(ctx, token)
		if isLoss(err) {
			c.total.add("reply lost")
			if reasonOf(err) == unreachable {
				c.total.add("owner unreachable")
				<-time.After(100 * time.Millisecond)
			}
			continue
		}
		if err != nil || c.random.IntN(3) > 0 {
			return p, err
		}
		return c.repeat(ctx, token, p)
	}
	return numbers{}, errors.New("too many replies were lost")
}

// repeat asks again for a page that was delivered. Whatever token the client goes on with, it is
// the same cursor.
func (c *lossyClient) repeat(
	ctx context.Context, token string, delivered numbers,
) (numbers, error) {
	again, err := c.attempt(ctx, token)
	switch reason := reasonOf(err); {
	case isLoss(err):
		c.total.add("repeated: lost")
	case slices.Contains(endings, reason):
		c.total.add("repeated: " + reason)
	case err != nil:
		return numbers{}, fmt.Errorf("repeated: %w", err)
	case !slices.Equal(again.ids, delivered.ids):
		return numbers{},
			fmt.Errorf("a repeated call brought %v, the first one %v", again.ids, delivered.ids)
	default:
		c.total.add("repeated: same page")
		if c.random.IntN(2) == 0 {
			return again, nil
		}
	}
	return delivered, nil
}

// attempt asks one replica for a page, or both at once.
func (c *lossyClient) attempt(ctx context.Context, token string) (numbers, error) {
	if c.random.IntN(5) > 0 {
		return c.pager().next(ctx, token)
	}
	var pages [2]numbers
	var errs [2]error
	var wg sync.WaitGroup
	for i := range pages {
		pager := c.pager()
		wg.Go(func() { pages[i], errs[i] = pager.next(ctx, token) })
	}
	wg.Wait()
	c.total.add("two at once")
	switch {
	case errs[0] == nil && errs[1] == nil && !slices.Equal(pages[0].ids, pages[1].ids):
		return numbers{},
			fmt.Errorf("two calls at once brought %v and %v", pages[0].ids, pages[1].ids)
	case errs[0] == nil || isLoss(errs[1]) && !isLoss(errs[0]):
		return pages[0], errs[0]
	default:
		return pages[1], errs[1]
	}
}

// pager is a call at a random replica, with a random loss.
func (c *lossyClient) pager() pager {
	loss := lossy.Nothing
	if c.random.IntN(3) == 0 {
		loss = []string{lossy.Request, lossy.Reply, lossy.HangsUp}[c.random.IntN(3)]
	}
	return overREST{base: c.url, header: lossy.Header(c.random.IntN(2), loss)}
}

// isLoss says whether a call ended without an answer, or with one that says to make the same call
// again: elsewhere, or, where the owner of a pinned cursor dies while it is being reached, a
// little later. Neither may be how a cursor ends.
func isLoss(err error) bool {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.Reason == "ShuttingDown" || r.Reason == unreachable
	}
	return err != nil && !errors.Is(err, context.Canceled)
}
