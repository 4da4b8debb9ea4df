package changestream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/session"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/hub"
	"github.com/mooringdb/mooring/service/match"
	"github.com/mooringdb/mooring/service/projection"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/stream"
)

const (
	// maxShown is how many documents a client of Live has at a time.
	maxShown = 100_000
	// maxLivePart is how many bytes its filter may have, and its projection.
	maxLivePart = 16 << 10
)

type findOpt = client.FindOptions

var liveOptions = request.NewTable(
	[]proto.Message{&mooringv1.LiveRequest{}},
	nil,
	request.Rows(
		request.Caller(func(o *findOpt) *client.Common { return &o.Common }),
		request.Value("comment", func(o *findOpt) *bson.Value { return &o.Comment }),
		request.OwnComment(func(o *findOpt) *client.Common { return &o.Common }),
		request.Document("filter", func(o *findOpt) *bson.Raw { return &o.Filter }),
		request.Document("projection", func(o *findOpt) *bson.Raw { return &o.Projection }),
	),
)

// live holds one stream of live documents. The goroutine of the call owns it.
type live struct {
	server *Server
	reader *request.Reader
	ss     grpc.ServerStreamingServer[mooringv1.LiveResponse]
	// ids is charged for the ids of the documents that the client has. It has no overdraft: what
	// the client has is given back late.
	ids  admission.Account
	ns   client.Namespace
	find client.FindOptions
	view view
	// ended says that an event took all documents away.
	ended bool
}

// Live sends the documents that match, and then what becomes of them, until the client goes away or
// the gateway stops.
func (s *Server) Live(
	req *mooringv1.LiveRequest, ss grpc.ServerStreamingServer[mooringv1.LiveResponse],
) error {
	ctx, leave, err := s.enter(ss.Context())
	if err != nil {
		return err
	}
	defer leave()
	r := request.ReadPlain(ctx, req)
	l := newLive(r, req)
	if err := r.Err(); err != nil {
		return err
	}
	if err := charge(ctx, l.view.filter); err != nil {
		return err
	}
	l.server, l.ss = s, ss
	admission.From(ctx).OpenFor(&l.ids)
	defer l.ids.Close()
	for err == nil {
		err = l.follow(ctx)
	}
	return s.explain(ctx, err)
}

// newLive returns what a request asks for.
func newLive(r *request.Reader, req *mooringv1.LiveRequest) *live {
	l := &live{
		reader: r,
		ns:     client.Namespace{Database: req.GetDatabase(), Collection: req.GetCollection()},
		find:   liveOptions.Read(r, req),
	}
	l.compile()
	return l
}

// compile compiles what this process evaluates of a request.
func (l *live) compile() {
	r, find := l.reader, &l.find
	switch {
	case l.ns.Database == "":
		r.Refuse("database", "is required")
	case l.ns.Collection == "":
		r.Refuse("collection", "is required")
	case len(find.Filter) > maxLivePart:
		r.Refuse("filter", "has %d bytes, must have at most %d", len(find.Filter), maxLivePart)
	case len(find.Projection) > maxLivePart:
		r.Refuse("projection", "has %d bytes, must have at most %d", len(find.Projection),
			maxLivePart)
	}
	if r.Err() != nil {
		return
	}
	l.view.shown = map[string]struct{}{}
	var err error
	if !find.Filter.IsEmpty() {
		if l.view.filter, err = match.Compile(find.Filter); err != nil {
			r.Refuse("filter", "%s", problemOf(err))
		}
	}
	if l.view.projection, err = projection.Compile(find.Projection); err != nil {
		r.Refuse("projection", "%s", problemOf(err))
	}
	find.Collation = bson.NewBuilder(nil).String("locale", "simple").Finish()
	find.RunOn, find.TimeoutMode = true, client.Iteration
}

// problemOf returns what is wrong with a part of a request, without the part's name.
func problemOf(err error) string {
	at, problem := "", err.Error()
	if e, ok := errors.AsType[*match.Error](err); ok {
		at, problem = e.At, e.Problem
	}
	if e, ok := errors.AsType[*projection.Error](err); ok {
		at, problem = e.Path, e.Problem
	}
	if at == "" {
		return problem
	}
	return at + ": " + problem
}

// follow sends the documents that are there, and then changes. It returns nil when an event has
// taken all documents away. The stream of changes is opened first, so that nothing is missed
// between the two.
func (l *live) follow(ctx context.Context) error {
	l.ended = false
	of := share{key: hub.Key{
		Database: l.ns.Database, Collection: l.ns.Collection, FullDocument: "updateLookup",
	}}
	opener := l.server.newOpener(ctx, l.ns, &client.WatchOptions{
		FullDocument: of.key.FullDocument,
		Common:       client.Common{Caller: l.find.Caller},
	})
	changes, err := l.server.subscribe(ctx, of, opener)
	if err != nil {
		return err
	}
	if err := l.snapshot(ctx); err != nil {
		_ = changes.Close(ctx)
		return err
	}
	if err := l.send(kindReady, nil); err != nil { //nolint:contextcheck // a turn comes soon
		_ = changes.Close(ctx)
		return err
	}
	err = l.server.cfg.Streams.Watch(ctx, stream.Watch{
		Changes:  changes,
		Send:     func(events []bson.Raw) error { return l.events(ctx, events) },
		Progress: func(bson.Raw) error { return nil },
	})
	_, ofChanges := errors.AsType[*hub.Error](err)
	switch {
	case err == nil && !l.ended:
		return hub.ErrBehind // the server has ended the stream, which tells nothing of documents
	case ofChanges && isRefusal(err, cappedPositionLost, invalidResumeToken, changeStreamFatalError,
		changeStreamHistoryLost, bsonObjectTooLarge):
		return &rpcerr.Error{
			Reason: rpcerr.ChangeStreamBehind, Err: err,
			Message: "the server could not send a change: open the stream again",
		}
	}
	return err
}

// wireVersion50 is the first whose servers read from snapshots.
const wireVersion50 = 13

// readsSnapshots reports whether all servers of a deployment read from snapshots.
func (s serversOf) readsSnapshots() bool {
	for _, server := range s {
		if server.IsAvailable() && server.MaxWireVersion < wireVersion50 &&
			server.Kind != description.ServerLoadBalancer {
			return false
		}
	}
	return true
}

const (
	// snapshotTries is how often a server is asked for a snapshot that it does not have, and
	// snapshotPause the time between.
	snapshotTries = 30
	snapshotPause = 100 * time.Millisecond
)

// snapshot sends the documents that are there. Servers may have no snapshot of a collection that
// was made a moment ago.
func (l *live) snapshot(ctx context.Context) error {
	for range snapshotTries {
		err := l.documents(ctx)
		switch {
		case !isRefusal(err, snapshotTooOld, snapshotUnavailable):
			return err
		case len(l.view.shown) > 0:
			return errSlow
		}
		select {
		case <-time.After(snapshotPause):
		case <-ctx.Done(): // the next find says why
		}
	}
	return errNoSnapshot
}

// documents sends the documents of one snapshot.
func (l *live) documents(ctx context.Context) error {
	find := l.find
	l.view.since = session.Timestamp{}
	// No change that the stream has passed already is later.
	now := l.server.cfg.Client.ClusterTime().Timestamp()
	topology, _ := l.server.cfg.Client.WatchTopology()
	snapshots := serversOf(topology.Servers).readsSnapshots()
	if snapshots {
		reads, err := l.server.cfg.Client.StartSession(session.Options{
			Snapshot: true, SnapshotTime: now,
		})
		if err != nil {
			return err
		}
		defer func() { reads.End(ctx) }()
		find.Session = reads
	} else {
		end, err := l.notBefore(ctx, &find, now)
		if err != nil {
			return err
		}
		defer end()
	}
	of := batch.Source{Database: l.ns.Database, Collection: l.ns.Collection}
	find.BatchSize = l.server.cfg.Streams.First(of, nil)
	cur, err := stream.Open(ctx, func() (*cursor.Cursor, error) {
		return l.server.cfg.Client.Find(ctx, l.ns, find)
	})
	switch {
	case find.Collation != nil && isRefusal(err, commandNotSupported, notImplemented):
		// The server is not MongoDB, and knows no collations: it compares texts by their bytes.
		l.find.Collation = nil
		return l.documents(ctx)
	case err != nil:
		return err
	}
	cur.SetRunOn(false)
	if snapshots {
		l.view.since, err = find.Session.SnapshotTime()
		if err != nil {
			_ = cur.Close(ctx)
			return err
		}
	}
	return l.server.cfg.Streams.Run(ctx,
		stream.Source{Cursor: cur, Of: of, ReadAhead: true, GoesOn: true},
		func(docs []bson.Raw) error { return l.added(ctx, docs) })
}

// notBefore has a find see what a majority of servers has, at a time or later; zero: the server has
// no times. The caller must call end.
func (l *live) notBefore(
	ctx context.Context, find *client.FindOptions, at session.Timestamp,
) (end func(), err error) {
	// What no majority has could be lost again, which no change would tell.
	find.ReadConcern = &client.ReadConcern{Level: "majority"}
	if at.IsZero() {
		return func() {}, nil
	}
	reads, err := l.server.cfg.Client.StartSession(session.Options{})
	if err != nil {
		return nil, err
	}
	reads.AdvanceOperationTime(at)
	find.Session = reads
	return func() { reads.End(ctx) }, nil
}

// errSlow ends a stream whose client has read the documents so slowly that the server no longer has
// their snapshot.
var errSlow = &rpcerr.Error{
	Reason: rpcerr.ChangeStreamBehind,
	Message: "the documents were read too slowly, and the server no longer has their snapshot: " +
		"open the stream again",
}

// errNoSnapshot ends a stream before its first document.
var errNoSnapshot = &rpcerr.Error{
	Reason:  rpcerr.ChangeStreamBehind,
	Message: "the server has no snapshot of the collection yet: open the stream again",
}

// The codes of servers' errors.
const (
	commandNotSupported     = 115
	cappedPositionLost      = 136
	notImplemented          = 238
	snapshotTooOld          = 239
	snapshotUnavailable     = 246
	invalidResumeToken      = 260
	changeStreamFatalError  = 280
	changeStreamHistoryLost = 286
	bsonObjectTooLarge      = 10334
)

// isRefusal reports whether a server has answered with an error that has one of these codes.
func isRefusal(err error, codes ...int32) bool {
	failed, ok := errors.AsType[*mongoerr.CommandError](err)
	return ok && slices.Contains(codes, failed.Code)
}

// added sends documents of the snapshot.
func (l *live) added(ctx context.Context, docs []bson.Raw) error {
	most := l.view.bytes
	for _, d := range docs {
		id, _ := d.Lookup("_id")
		most += cost(id)
	}
	if err := l.charge(ctx, most); err != nil {
		return err
	}
	for _, d := range docs {
		l.view.show(d)
	}
	if err := l.checkShown(); err != nil {
		return err
	}
	return l.send(kindAdded, docs) //nolint:contextcheck // a turn comes soon
}

// charge has ids charged with so many bytes, or more. If they do not fit, it fails, even after
// documents were sent: streams that wait for each other's ids would wait for ever.
func (l *live) charge(ctx context.Context, bytes int64) error {
	return l.ids.Grow(ctx, bytes-l.ids.Held())
}

// checkShown returns an error if the client has too many documents.
func (l *live) checkShown() error {
	if len(l.view.shown) <= maxShown {
		return nil
	}
	return &rpcerr.Error{
		Reason: rpcerr.TooLarge, Field: "filter",
		Message: fmt.Sprintf("matches more than %d documents, which is the most that can be live",
			maxShown),
	}
}

// events sends what events tell the client.
func (l *live) events(ctx context.Context, events []bson.Raw) error {
	var run []bson.Raw
	kind := ""
	flush := func() error { //nolint:contextcheck // see added
		docs := run
		run = nil
		return l.send(kind, docs)
	}
	for _, event := range events {
		told, ends, err := l.event(ctx, event)
		if err != nil {
			return err
		}
		if ends || told.document != nil && told.kind != kind {
			if err := flush(); err != nil {
				return err
			}
		}
		if ends {
			l.ended, kind, run = true, kindRemoved, l.view.clear()
		} else if told.document != nil {
			kind, run = told.kind, append(run, told.document)
		}
		if err := l.charge(ctx, l.view.bytes); err != nil {
			return err
		}
	}
	err := flush()
	l.ids.Shrink(l.ids.Held() - l.view.bytes)
	return err
}

// event returns what an event tells the client, or that it takes all documents away.
func (l *live) event(ctx context.Context, event bson.Raw) (told change, ends bool, err error) {
	of, _ := event.Lookup("operationType")
	kind, _ := of.Str()
	if isEnd(kind) {
		return change{}, true, nil
	}
	told, asked := l.view.event(kind, event)
	if asked != nil {
		matches, err := l.ask(ctx, asked)
		switch {
		case err != nil:
			return change{}, false, err
		case !matches:
			told = l.view.remove(asked.id)
		case asked.document != nil:
			told = l.view.add(asked.document)
		}
	}
	return told, false, l.checkShown()
}

// ask asks a server whether a document matches now. If it has changed since the event, another one
// follows.
func (l *live) ask(ctx context.Context, of *question) (bool, error) {
	find := client.FindOptions{
		Common: l.find.Common, Collation: l.find.Collation,
		Filter: bson.NewBuilder(nil).OpenArray("$and").
			Document("", of.id).Document("", l.find.Filter).Close().Finish(),
		Projection: bson.NewBuilder(nil).Int32("_id", 1).Finish(),
	}
	find.RunOn = false
	end, err := l.notBefore(ctx, &find, of.at)
	if err != nil {
		return false, err
	}
	defer end()
	return stream.Open(ctx, func() (bool, error) {
		_, found, err := l.server.cfg.Client.FindOne(ctx, l.ns, find)
		return found, err
	})
}

// send sends documents of one kind.
func (l *live) send(kind string, docs []bson.Raw) error {
	if kind == kindReady {
		return l.ss.Send(&mooringv1.LiveResponse{Kind: kind})
	}
	bytes := l.server.cfg.Streams.MessageBytes()
	return l.reader.Batches(bytes, func(docs []*mooringv1.Document) error {
		return l.ss.Send(&mooringv1.LiveResponse{Kind: kind, Documents: docs})
	})(docs)
}
