package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/haproxy"
)

// Every collection of these tests has so many documents, in so many batches.
const (
	pagedDocuments = 100
	pagedBatches   = 10
	pagedBatch     = pagedDocuments / pagedBatches
)

// crowdSize is how many clients have a cursor open at the same time: half of them read pages, a
// quarter each a gRPC stream and NDJSON.
const crowdSize = 200

// The collection of these tests reads differently on each service: its _ids begin at the
// service's number times this.
const serviceStride = 1_000_000

func startServices(t testing.TB, cfg fakemongo.BalancedConfig) *fakemongo.Balanced {
	cfg.TCP = true
	b := fakemongo.NewBalanced(t, cfg)
	for i, s := range b.Services() {
		s.SetDocuments("lab.c", fakemongo.Numbered(i*serviceStride, pagedDocuments, 100)...)
	}
	return b
}

// balance puts haproxy before the services.
func balance(t testing.TB, b *fakemongo.Balanced) *haproxy.Balancer {
	t.Helper()
	var servers []string
	for _, s := range b.Services() {
		servers = append(servers, string(s.Address()))
	}
	return haproxy.Start(t, servers...)
}

// TestLoadBalancer reads 200 cursors of ten batches at the same time through haproxy, which leads
// to two services that know their own cursors only.
func TestLoadBalancer(t *testing.T) {
	b := startServices(t, fakemongo.BalancedConfig{Strict: true})
	g := suite.Start(t, "mongodb://"+balance(t, b).Address+"/?loadBalanced=true&maxPoolSize=300",
		"--cursors-max-per-principal", "none")
	errs := runCrowd(t, b, g, func() {
		if n := g.Vars(t).CheckedOut(); n < crowdSize {
			t.Errorf("%d connections are checked out while %d cursors are open", n, crowdSize)
		}
		for i, s := range b.Services() {
			if n := s.OpenCursors(); n < crowdSize/4 {
				t.Errorf("service %d has %d cursors", i, n)
			}
		}
	})
	for i, err := range errs {
		if err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
	gatewaytest.Eventually(t, 10*time.Second, func() error {
		if v := g.Vars(t); b.OpenCursors() > 0 || v.CheckedOut() > 0 {
			return fmt.Errorf("%d cursors are open, %+v", b.OpenCursors(), v.Pools)
		}
		return nil
	})
	wantOneConnectionEach(t, b)
}

// wantOneConnectionEach looks at the commands of the services: each cursor was read over the
// connection that it was opened on, and none needed more than its batches.
func wantOneConnectionEach(t testing.TB, b *fakemongo.Balanced) {
	t.Helper()
	for i, s := range b.Services() {
		opened := map[int]int{} // by connection
		var finds int
		for _, c := range s.Commands("find") {
			if !c.Body.Has("limit") { // that of runCrowd leaves no cursor
				opened[c.Connection]++
				finds++
			}
		}
		getMores := s.Commands("getMore")
		for _, c := range getMores {
			if opened[c.Connection] == 0 {
				t.Errorf("service %d: a getMore on connection %d, which opened no cursor", i,
					c.Connection)
			}
		}
		if want := finds * (pagedBatches - 1); len(getMores) != want {
			t.Errorf("service %d: %d getMores for %d cursors, want %d", i, len(getMores), finds,
				want)
		}
		t.Logf("service %d: %d cursors, %d getMores, %d connections", i, finds, len(getMores),
			s.AcceptedConnections())
	}
}

// TestLoadBalancerUnknownToTheGateway is the same with a gateway that takes haproxy for a server:
// that is what pinning is for.
func TestLoadBalancerUnknownToTheGateway(t *testing.T) {
	b := startServices(t, fakemongo.BalancedConfig{})
	g := suite.Start(t, "mongodb://"+balance(t, b).Address+"/?directConnection=true&maxPoolSize=300",
		"--cursors-max-per-principal", "none")
	reasons := map[string]int{}
	for _, err := range runCrowd(t, b, g, func() {}) {
		reasons[reasonOf(err)]++
	}
	t.Logf("reasons: %v", reasons)
	if reasons["CursorNotFound"] < crowdSize/2 {
		t.Errorf("%v: want most cursors to be lost", reasons)
	}
	if reasons[""]+reasons["CursorNotFound"] != crowdSize {
		t.Errorf("%v: want CursorNotFound and nothing else", reasons)
	}
}

// runCrowd lets the clients read their first page, calls meanwhile when all of them have, and
// lets them read on: no service answers a getMore before that.
func runCrowd(t *testing.T, b *fakemongo.Balanced, g *gatewaytest.Gateway,
	meanwhile func(),
) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	goOn := make(chan struct{})
	// Once the gateway knows the size of the documents, a first page needs no getMore.
	known := map[string]any{"limit": 4}
	_, err := overREST{base: g.REST}.post(ctx, gatewaytest.Documents("lab", "c", "find"), known)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range b.Services() {
		s.Handle("getMore", func(cmd *fakemongo.Command) fakemongo.Reply {
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return s.Default(cmd)
		})
	}
	documents := g.Documents(t)
	var begun, done sync.WaitGroup
	errs := make([]error, crowdSize)
	for i := range errs {
		begun.Add(1)
		first := sync.OnceFunc(func() {
			begun.Done()
			<-goOn
		})
		done.Go(func() {
			switch i % 4 {
			case 0, 1:
				errs[i] = readPages(ctx, g, first)
			case 2:
				errs[i] = readStream(ctx, documents, first)
			default:
				errs[i] = readLinesOf(ctx, g, first)
			}
			first()
		})
	}
	begun.Wait()
	meanwhile()
	close(goOn)
	done.Wait()
	return errs
}

// begin is where the service's documents begin that a first document is of.
func begin(id int32) int32 { return id / serviceStride * serviceStride }

// readPages reads a cursor in pages.
func readPages(ctx context.Context, g *gatewaytest.Gateway, first func()) error {
	rest := overREST{base: g.REST}
	p, err := rest.find(ctx, "c", pagedBatch)
	if err != nil {
		return err
	}
	first()
	if len(p.ids) == 0 {
		return errors.New("the first page is empty")
	}
	at := begin(p.ids[0])
	pages, err := readOn(ctx, p, at, at+pagedDocuments, rest)
	if err == nil && pages != pagedBatches-1 {
		err = fmt.Errorf("%d more pages, want %d", pages, pagedBatches-1)
	}
	return err
}

// sequence checks numbered documents that come one after the other.
type sequence struct{ at, end int32 }

func (s *sequence) add(id int32) error {
	if s.end == 0 {
		s.at = begin(id)
		s.end = s.at + pagedDocuments
	}
	if id != s.at {
		return fmt.Errorf("document %d where %d should be", id, s.at)
	}
	s.at++
	return nil
}

func (s *sequence) complete() error {
	if s.end == 0 || s.at != s.end {
		return fmt.Errorf("it ended at %d, want %d", s.at, s.end)
	}
	return nil
}

// readStream reads a cursor as a gRPC stream.
func readStream(ctx context.Context, c mooringv1.DocumentServiceClient, first func()) error {
	batch := int32(pagedBatch)
	stream, err := c.StreamFind(ctx,
		&mooringv1.StreamFindRequest{Database: "lab", Collection: "c", BatchSize: &batch})
	if err != nil {
		return asRefusal(err)
	}
	var s sequence
	return errors.Join(readMessages(stream, &s, first), s.complete())
}

// readMessages reads a gRPC stream to its end, and calls read after each message.
func readMessages[M interface{ GetDocuments() []*mooringv1.Document }](stream interface {
	Recv() (M,
		error)
}, s *sequence, read func(),
) error {
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return asRefusal(err)
		}
		for _, d := range message.GetDocuments() {
			if err := s.add(bson.Raw(d.GetBson()).Lookup("_id").Int32()); err != nil {
				return err
			}
		}
		read()
	}
}

// readLinesOf reads a cursor as NDJSON.
func readLinesOf(ctx context.Context, g *gatewaytest.Gateway, first func()) error {
	var s sequence
	path := gatewaytest.Documents("lab", "c", "streamFind")
	return errors.Join(readNDJSON(ctx, g.REST+path, fmt.Sprintf(`{"batchSize": %d}`, pagedBatch),
		&s, first), s.complete())
}

// readNDJSON reads the stream that a request answers with to its last line, and calls read after
// each document.
func readNDJSON(ctx context.Context, url, body string, s *sequence, read func()) error {
	req, err := streamRequest(ctx, url, body)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		_, err := parseNumbers(resp.StatusCode, body)
		return err
	}
	scanner := bufio.NewScanner(resp.Body)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		l, err := parseLine(scanner.Bytes())
		switch {
		case err != nil:
			return err
		case l.Error != nil:
			return &refusal{
				HTTP: resp.StatusCode, Status: l.Error.Status, Reason: l.Error.Reason,
				Message: l.Error.Message,
			}
		case l.End != nil:
			return nil
		}
		var d struct {
			ID int32 `bson:"_id"`
		}
		if err := bson.UnmarshalExtJSON(l.Document, false, &d); err != nil {
			return err
		}
		if err := s.add(d.ID); err != nil {
			return err
		}
		read()
	}
	return errors.Join(errors.New("no last line"), scanner.Err())
}
