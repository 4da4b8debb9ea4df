package paging_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
)

// network is several replicas on one server, and what is between them.
type network struct {
	t *testing.T
	s *server

	mu     sync.Mutex
	nodes  map[string]*node // those that are reached, by address
	asked  []string         // "from>to purpose", in order
	faults faults
	hidden string          // an address that DNS does not know yet
	holder map[int64]*node // the node that continued a cursor last, by the server's ids
	lost   map[int64]bool  // by the server's ids: cursors whose holder may stay unknown
}

// faults are run for each exchange; nil is none.
type faults struct {
	// before is run before a message arrives: an error loses it. after is run on the way back: an
	// error loses the answer.
	before, after func(ctx context.Context, from, to string) error
	twice         func() bool // a message arrives twice
	// late is how much later than its sender hears that it may be lost a message arrives; 0: it is
	// not.
	late func(from, to string) time.Duration
}

// node is one life of a replica.
type node struct {
	*paging.Pager
	link    *link
	address string
	dead    bool // guarded by the network's mu
}

func newNetwork(t *testing.T, addresses ...string) *network {
	t.Helper()
	n := &network{
		t: t, s: newServer(), nodes: map[string]*node{}, lost: map[int64]bool{},
		holder: map[int64]*node{},
	}
	for _, address := range addresses {
		n.start(address, nil)
	}
	return n
}

// start starts a replica, in the place of an earlier life of it.
func (n *network) start(address string, change func(*paging.Config)) *node {
	n.t.Helper()
	life := &node{address: address}
	cfg := paging.Config{
		Keys: ring(n.t, key(n.t, 7)), Deployment: "d", Replica: address,
		Continue: func(
			st cursor.State,
		) paging.Cursor {
			return n.holds(life, n.s.resumed(st))
		},
	}
	if change != nil {
		change(&cfg)
	}
	life.Pager = paging.New(cfg)
	life.link = &link{n: n, from: life}
	life.SetReplicas(life.link)
	if err := life.Start(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		n.mu.Lock()
		n.faults = faults{}
		n.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := life.Close(ctx); err != nil {
			n.t.Error(err)
		}
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[address] = life
	return life
}

// crash ends a replica's life without a word. What it holds is lost.
func (n *network) crash(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if life := n.nodes[address]; life != nil {
		life.dead = true
		for id, holder := range n.holder {
			if holder == life {
				n.lost[id] = true
			}
		}
		delete(n.nodes, address)
	}
}

// stop is an orderly end: drain, then nothing is heard of it.
func (n *network) stop(address string) {
	n.t.Helper()
	life := n.node(address)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := life.Drain(ctx); err != nil {
		n.t.Errorf("Drain() = %v", err)
	}
	n.crash(address)
}

func (n *network) node(address string) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[address]
}

func (n *network) open(address string, total, batch, size int) paging.Page {
	n.t.Helper()
	page, err := n.openAs(address, "anna", func() *fakeCursor {
		return n.s.find(total, batch, size)
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return page
}

func (n *network) openAs(address, principal string, find func() *fakeCursor) (paging.Page, error) {
	return n.node(address).Open(n.t.Context(), paging.Opening{
		Principal: principal, Namespace: paging.Namespace{Database: "shop", Collection: "orders"},
		Run: func(context.Context, int32) (paging.Cursor, error) {
			return n.holds(n.node(address), find()), nil
		},
	})
}

// holds makes a cursor a replica's.
func (n *network) holds(life *node, cur *fakeCursor) *fakeCursor {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holder[cur.state.ID] = life
	if life.dead { // a call that came before
		n.lost[cur.state.ID] = true
	}
	cur.gone = func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return life.dead
	}
	return cur
}

// openPinned opens a pinned cursor of nine documents at a.
func (n *network) openPinned() paging.Page {
	n.t.Helper()
	page, err := n.openAs("a", "anna", func() *fakeCursor { return n.s.findPinned(9, 2) })
	if err != nil {
		n.t.Fatal(err)
	}
	return page
}

func (n *network) next(address, token string) (paging.Page, error) {
	two := int32(2)
	return n.node(address).
		Next(n.t.Context(), paging.Asking{Principal: "anna", Token: token, BatchSize: &two})
}

func (n *network) mustNext(address, token string) paging.Page {
	n.t.Helper()
	page, err := n.next(address, token)
	if err != nil {
		n.t.Fatalf("Next at %s: %v", address, err)
	}
	return page
}

// questions returns what was asked since the last call.
func (n *network) questions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = nil
	return asked
}

// link is one replica's way to the others.
type link struct {
	n    *network
	from *node
}

var _ paging.Replicas = (*link)(nil)

// exchange is one call: do is what the other one does. Once it has begun it goes on, whatever
// becomes of the caller.
func exchange[T any](
	ctx context.Context, l *link, address, what string, do func(context.Context, *node) (T, error),
) (T, error) {
	var none T
	l.n.mu.Lock()
	to, dead, f := l.n.nodes[address], l.from.dead, l.n.faults
	l.n.asked = append(l.n.asked, fmt.Sprintf("%s>%s %s", l.from.address, address, what))
	l.n.mu.Unlock()
	if to == nil || dead {
		return none,
			&paging.UnreachableError{Address: address, Refused: true, Err: errors.New("refused")}
	}
	if f.before != nil {
		err := f.before(ctx, l.from.address, address)
		if _, refused := errors.AsType[*paging.UnreachableError](err); refused {
			return none, err
		} else if err != nil {
			return none, &paging.UnreachableError{Address: address, Sent: true, Err: err}
		}
	}
	if f.late != nil {
		if after := f.late(l.from.address, address); after > 0 {
			time.AfterFunc(after, func() { _, _ = do(context.WithoutCancel(ctx), to) })
			return none, &paging.UnreachableError{Address: address, Sent: true, Err: errLine}
		}
	}
	type result struct {
		v   T
		err error
	}
	results := make(chan result, 2)
	times := 1
	if f.twice != nil && f.twice() {
		times = 2
	}
	for range times {
		go func() {
			v, err := do(context.WithoutCancel(ctx), to)
			results <- result{v, err}
		}()
	}
	var res result
	for range times { // the transport has one of them, and then the answer may be lost
		res = <-results
	}
	err := res.err
	if f.after != nil {
		if lost := f.after(ctx, l.from.address, address); lost != nil {
			res.v, err = none, &paging.UnreachableError{Address: address, Sent: true, Err: lost}
		}
	}
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return none, context.Cause(ctx)
	case to.dead || l.from.dead:
		return none,
			&paging.UnreachableError{Address: address, Sent: true, Err: io.ErrUnexpectedEOF}
	default:
		return res.v, err
	}
}

// mayLose notes a cursor that is between two replicas.
func (n *network) mayLose(ids ...int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		n.lost[id] = true
	}
}

func (n *network) mayBeLost(id int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost[id]
}

func (l *link) Announce(ctx context.Context, address string, to page.Replica) error {
	_, err := exchange(ctx, l, address, "announce", func(
		_ context.Context, other *node,
	) (bool, error) {
		other.Succeeded(l.from.Self().Instance, to)
		return true, nil
	})
	return err
}

func (l *link) Push(
	ctx context.Context, address string, records iter.Seq[paging.Record],
) (page.Replica, error) {
	all := slices.Collect(records)
	to, err := exchange(ctx, l, address, "push", func(
		_ context.Context, to *node,
	) (page.Replica, error) {
		for _, rec := range all {
			if err := to.Accept(rec); err != nil {
				return page.Replica{}, err
			}
		}
		return to.Self(), nil
	})
	if err != nil {
		for _, rec := range all {
			if rec.Holding != nil {
				l.n.mayLose(rec.Holding.State.ID)
			}
		}
	}
	return to, err
}

func (l *link) Kill(ctx context.Context, address, id string) error {
	_, err := exchange(ctx, l, address, "kill", func(ctx context.Context, to *node) (bool, error) {
		return true, to.Kill(ctx, id)
	})
	return err
}

func (l *link) Others(context.Context, bool) []string {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	var others []string
	for address := range l.n.nodes {
		if l.n.hidden == address {
			continue
		}
		others = append(others, address) // this one too: it is for the registry to leave it out
	}
	slices.Sort(others)
	return others
}

// pageStream runs a stream at its owner, one batch a message.
type pageStream struct {
	l     *link
	ctx   context.Context //nolint:containedctx // the stream's
	taken *paging.Taken
	owner *node
	once  sync.Once
}

func (s *pageStream) Recv() (proto.Message, error) {
	s.l.n.mu.Lock()
	dead := s.owner.dead
	s.l.n.mu.Unlock()
	switch docs := s.taken.Documents; {
	case dead:
		return nil,
			&paging.UnreachableError{Address: s.owner.address, Sent: true, Err: io.ErrUnexpectedEOF}
	case s.ctx.Err() != nil:
		return nil, context.Cause(s.ctx)
	case len(docs) > 0:
		s.taken.Documents = nil
		return batch{documents: docs}, nil
	case s.taken.Cursor.Done():
		return nil, io.EOF
	}
	b, err := s.taken.Cursor.NextLent(s.ctx)
	return batch{documents: b.Documents}, err
}

func (s *pageStream) Close() {
	s.once.Do(func() {
		_ = s.taken.Cursor.Close(s.ctx)
		s.taken.Release()
	})
}
