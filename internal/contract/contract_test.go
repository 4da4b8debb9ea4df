package contract_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/contract"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/servicetest"
)

// goClient makes calls as client/ does.
type goClient struct {
	c            *client.Client
	documents    mooringv1.DocumentServiceClient
	cursors      mooringv1.CursorServiceClient
	transactions mooringv1.TransactionServiceClient
}

func newGoClient(cc grpc.ClientConnInterface, retries int) *goClient {
	return &goClient{
		client.New(cc, client.Options{Retries: retries}), mooringv1.NewDocumentServiceClient(cc),
		mooringv1.NewCursorServiceClient(cc), mooringv1.NewTransactionServiceClient(cc),
	}
}

const plusOne = client.JSON(`{"$inc": {"n": 1}}`)

// Do makes a call.
func (g *goClient) Do(ctx context.Context, call contract.Call) contract.Answer {
	answer, err := g.do(ctx, call)
	if err == nil {
		return answer
	}
	answer.Failure = &contract.Failure{Message: err.Error(), Retry: "never"}
	if e, ok := errors.AsType[*client.Error](err); ok {
		answer.Failure.Reason, answer.Failure.Retry = e.Reason, string(e.Retry)
		answer.Failure.RetryAfter = e.RetryAfter.Seconds()
		answer.Failure.Inserted = int(e.Result.GetInsertedCount())
	}
	return answer
}

func (g *goClient) do(ctx context.Context, call contract.Call) (a contract.Answer, err error) {
	if call.Key != "" {
		ctx = client.WithIdempotencyKey(ctx, call.Key)
	}
	orders := client.In[bson.Raw](g.c, contract.Database, call.Collection)
	filter := client.JSON(fmt.Sprintf(`{"_id": %d}`, call.ID))
	token := &call.Transaction
	switch call.Verb {
	case contract.UpdateOne:
		_, err = orders.UpdateOne(ctx, filter, plusOne, func(r *mooringv1.UpdateOneRequest) {
			if call.Transaction != "" {
				r.Transaction, r.Statement = token, proto.Int32(int32(call.Statement))
			}
		})
	case contract.InsertOne:
		_, err = orders.InsertOne(ctx, bson.NewBuilder(nil).Int32("_id", int32(call.ID)).Finish())
	case contract.Begin:
		var begun *mooringv1.TransactionServiceBeginResponse
		begun, err = client.Call(ctx, g.c, g.transactions.Begin,
			&mooringv1.TransactionServiceBeginRequest{})
		a.Transaction = begun.GetTransaction()
	case contract.CommitIt:
		_, err = client.Call(ctx, g.c, g.transactions.Commit,
			&mooringv1.TransactionServiceCommitRequest{Transaction: token})
	case contract.AbortIt:
		_, err = client.Call(ctx, g.c, g.transactions.Abort,
			&mooringv1.TransactionServiceAbortRequest{Transaction: token})
	case contract.RunAll:
		_, err = client.Call(ctx, g.c, g.transactions.Run, runRequest(call.Collection))
	case contract.Find:
		var page *mooringv1.FindResponse
		page, err = client.Call(ctx, g.c, g.documents.Find, &mooringv1.FindRequest{
			Database: contract.Database, Collection: call.Collection,
			BatchSize: proto.Int32(contract.BatchSize),
		})
		a.IDs, a.Cursor = ids(page.GetDocuments()), page.GetCursor()
	case contract.NextPage:
		var page *mooringv1.NextPageResponse
		page, err = client.Call(ctx, g.c, g.cursors.NextPage, &mooringv1.NextPageRequest{
			Cursor: call.Cursor, BatchSize: proto.Int32(contract.BatchSize),
		})
		a.IDs, a.Cursor = ids(page.GetDocuments()), page.GetCursor()
	case contract.StreamAll:
		size := func(r *mooringv1.StreamFindRequest) {
			r.BatchSize = proto.Int32(contract.BatchSize)
		}
		for doc, failed := range orders.Stream(ctx, nil, size) {
			if err = failed; err == nil {
				a.IDs = append(a.IDs, idOf(doc))
			}
		}
	case contract.ImportAll:
		_, err = client.Call(ctx, g.c, g.importAll, call)
	}
	return a, err
}

func runRequest(collection string) *mooringv1.TransactionServiceRunRequest {
	run := &mooringv1.TransactionServiceRunRequest{}
	for id := 1; id <= 2; id++ {
		json := fmt.Sprintf(`{"_id": %d}`, id)
		run.Operations = append(run.Operations, &mooringv1.TransactionOperation{
			Operation: &mooringv1.TransactionOperation_UpdateOne{
				UpdateOne: &mooringv1.UpdateOneRequest{
					Database: contract.Database, Collection: collection,
					Filter: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: json}},
					Update: &mooringv1.Update{Kind: &mooringv1.Update_Operators{
						Operators: &mooringv1.Document{
							Encoding: &mooringv1.Document_Json{Json: string(plusOne)},
						},
					}},
				},
			},
		})
	}
	return run
}

// importAll imports the documents from the first on, which have no _id.
func (g *goClient) importAll(
	ctx context.Context, call contract.Call, options ...grpc.CallOption,
) (*mooringv1.ImportResponse, error) {
	s, err := g.documents.Import(ctx, options...)
	if err != nil {
		return nil, err
	}
	request := &mooringv1.ImportRequest{Database: contract.Database, Collection: call.Collection}
	for i := call.First; i < contract.Imports && err == nil; i++ {
		doc := bson.NewBuilder(nil).Int32("i", int32(i)).
			Binary("pad", 0, make([]byte, contract.ImportSize)).Finish()
		request.Documents = []*mooringv1.Document{
			{Encoding: &mooringv1.Document_Bson{Bson: doc}},
		}
		err = s.Send(request)
		request = &mooringv1.ImportRequest{}
	}
	return s.CloseAndRecv()
}

func ids(docs []*mooringv1.Document) (all []int) {
	for _, d := range docs {
		all = append(all, idOf(d.GetBson()))
	}
	return all
}

func idOf(doc bson.Raw) int {
	id, _ := doc.Lookup("_id")
	n, _ := id.Int32()
	return int(n)
}

// cable is a client's way to the gateway.
type cable struct {
	dial func(context.Context) (net.Conn, error)

	mu   sync.Mutex
	last *cuttable
}

func (c *cable) connect(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = &cuttable{Conn: conn, left: -1}
	return c.last, nil
}

// cut closes the connection after so many more bytes from the gateway.
func (c *cable) cut(after int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil {
		c.last.cut(after)
	}
}

// cuttable is a connection that is cut.
type cuttable struct {
	net.Conn

	mu   sync.Mutex
	left int // bytes that it still brings; below 0: no end
}

func (c *cuttable) cut(after int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left = after; after == 0 {
		_ = c.Close()
	}
}

func (c *cuttable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < 0 || err != nil {
		return n, err
	}
	n = min(n, c.left)
	if c.left -= n; c.left == 0 {
		_ = c.Close()
		return n, net.ErrClosed
	}
	return n, nil
}

// experiment runs operations in fake time.
func experiment(
	t *testing.T, profile contract.Profile, seed uint64,
) (report *contract.Report) {
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.ReplicaSet, "8.0.0")
		g := servicetest.StartOn(t, d.URI(false, nil)+profile.URIOptions(), d.Dial, config(profile))
		retries := 0 // the client's own
		if seed%2 == 0 {
			retries = -1
		}
		var hands []contract.Hands
		for range profile.Clients() {
			c := &cable{dial: g.Dial}
			cc, err := grpc.NewClient("passthrough:///gateway",
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(c.connect))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cc.Close() })
			hands = append(hands, contract.Hands{
				Client: newGoClient(cc, retries), Cut: c.cut, MayLeave: true,
			})
		}
		report = contract.Perform(t.Context(), contract.Config{
			Seed: seed, Deployment: d, Hands: hands, Operations: operations, Profile: profile,
			Wait: wait,
		})
	})
	return report
}

// config is that of the gateway.
func config(profile contract.Profile) servicetest.Config {
	switch profile {
	case contract.Crowd:
		return servicetest.Config{Admission: admission.New(admission.Config{
			Bytes: 1 << 30, Calls: admission.Limits{Total: 6, Each: 6},
		})}
	case contract.Late:
		return servicetest.Config{DefaultTimeout: 6 * wait}
	default:
		return servicetest.Config{}
	}
}

// wait is the longest wait of the machine.
const wait = 50 * time.Millisecond

// number returns an environment variable, or n where it is not set.
func number(t *testing.T, name string, n int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return n
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestContract makes operations through the Go client in fake time: those of CONTRACT_SEEDS seeds,
// the first of which is CONTRACT_FIRST.
func TestContract(t *testing.T) {
	first, seeds := number(t, "CONTRACT_FIRST", 1), number(t, "CONTRACT_SEEDS", 2)
	all := contract.NewReport()
	for seed := range seeds {
		for _, profile := range contract.Profiles {
			all.Add(experiment(t, profile, uint64(first+seed)))
		}
	}
	t.Log("\n" + all.String())
	for _, line := range all.Violations() {
		t.Error(line)
	}
	if missing := all.Missing(); len(missing) > 0 || len(all.Cells) < leastCells {
		t.Errorf("%d cells, and nothing of %q has happened", len(all.Cells), missing)
	}
}

// operations is how many operations an experiment makes.
const operations = 120

// leastCells is how many reasons, by way and advice, even the shortest run tells.
const leastCells = 50
