package bank_test

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// overGRPC calls a gateway by gRPC.
type overGRPC struct{ conn *grpc.ClientConn }

func (g overGRPC) documents() mooringv1.DocumentServiceClient {
	return mooringv1.NewDocumentServiceClient(g.conn)
}

func (g overGRPC) transactions() mooringv1.TransactionServiceClient {
	return mooringv1.NewTransactionServiceClient(g.conn)
}

// read makes a failure of a status that the gateway answered with.
func read(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	f := &failure{message: st.Message()}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			f.reason, f.retry = d.GetReason(), d.GetMetadata()["retry"]
		case *errdetails.RetryInfo:
			f.after = d.GetRetryDelay().AsDuration()
		}
	}
	if f.reason == "" {
		return err
	}
	return f
}

func text(json string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: json}}
}

// of returns the fields of a request that say to which transaction it belongs.
func (s statement) of() (transaction *string, number *int32) {
	if s.number > 0 {
		number = &s.number
	}
	return optional(s.transaction), number
}

// optional returns the field of a text, which is unset if there is none.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (g overGRPC) begin(ctx context.Context) (string, error) {
	resp, err := g.transactions().Begin(ctx, &mooringv1.TransactionServiceBeginRequest{
		ReadConcern: &mooringv1.ReadConcern{Level: new("snapshot")},
	})
	return resp.GetTransaction(), read(err)
}

func updateOne(c change) *mooringv1.UpdateOneRequest {
	return &mooringv1.UpdateOneRequest{
		Database: database, Collection: accounts, Filter: text(c.filter()),
		Update: &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: text(c.update())}},
	}
}

func (g overGRPC) add(ctx context.Context, s statement, c change) (bool, error) {
	req := updateOne(c)
	req.Transaction, req.Statement = s.of()
	resp, err := g.documents().UpdateOne(ctx, req)
	return resp.GetMatchedCount() == 1, read(err)
}

func insertOne(f transfer) *mooringv1.InsertOneRequest {
	return &mooringv1.InsertOneRequest{
		Database: database, Collection: f.ledger(), Document: text(f.document()),
	}
}

func (g overGRPC) record(ctx context.Context, s statement, f transfer) error {
	req := insertOne(f)
	req.Transaction, req.Statement = s.of()
	_, err := g.documents().InsertOne(ctx, req)
	return read(err)
}

func (g overGRPC) commit(ctx context.Context, transaction string) error {
	_, err := g.transactions().Commit(ctx, &mooringv1.TransactionServiceCommitRequest{
		Transaction: &transaction,
	})
	return read(err)
}

func (g overGRPC) abort(ctx context.Context, transaction string) error {
	_, err := g.transactions().Abort(ctx, &mooringv1.TransactionServiceAbortRequest{
		Transaction: &transaction,
	})
	return read(err)
}

func (g overGRPC) run(ctx context.Context, f transfer) error {
	add := func(c change) *mooringv1.TransactionOperation {
		return &mooringv1.TransactionOperation{
			Operation: &mooringv1.TransactionOperation_UpdateOne{UpdateOne: updateOne(c)},
			Expect:    &mooringv1.Expectation{MatchedCount: new(int64(1))},
		}
	}
	_, err := g.transactions().Run(ctx, &mooringv1.TransactionServiceRunRequest{
		Operations: []*mooringv1.TransactionOperation{
			{Operation: &mooringv1.TransactionOperation_InsertOne{InsertOne: insertOne(f)}},
			add(change{f.from, -f.amount}), add(change{f.to, f.amount}),
		},
	})
	return read(err)
}

func (g overGRPC) isRecorded(ctx context.Context, f transfer) (bool, error) {
	resp, err := g.documents().Find(ctx, &mooringv1.FindRequest{
		Database: database, Collection: f.ledger(), Filter: text(f.filter()),
		ReadConcern: &mooringv1.ReadConcern{Level: new("majority")},
	})
	return len(resp.GetDocuments()) > 0, read(err)
}

func (g overGRPC) snapshot(ctx context.Context) (string, error) {
	resp, err := mooringv1.NewSessionServiceClient(g.conn).Start(ctx,
		&mooringv1.SessionServiceStartRequest{Snapshot: new(true)})
	return resp.GetSession(), read(err)
}

func (g overGRPC) find(
	ctx context.Context, s statement, session, filter string,
) (page, error) {
	req := &mooringv1.FindRequest{
		Database: database, Collection: accounts, Filter: text(filter), Session: optional(session),
	}
	req.Transaction, req.Statement = s.of()
	resp, err := g.documents().Find(ctx, req)
	return pageOf(resp), read(err)
}

func (g overGRPC) next(ctx context.Context, s statement, before page) (page, error) {
	req := &mooringv1.NextPageRequest{Cursor: before.cursor, Session: optional(before.session)}
	req.Transaction, req.Statement = s.of()
	resp, err := mooringv1.NewCursorServiceClient(g.conn).NextPage(ctx, req)
	return pageOf(resp), read(err)
}

// pageResponse is what brings a page.
type pageResponse interface {
	GetDocuments() []*mooringv1.Document
	GetSession() string
	GetCursor() string
}

func pageOf(resp pageResponse) page {
	p := page{
		accounts: len(resp.GetDocuments()), session: resp.GetSession(), cursor: resp.GetCursor(),
	}
	for _, d := range resp.GetDocuments() {
		p.money += integer(d.GetBson(), "balance")
	}
	return p
}
