package replicaset

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// position says how far a change stream has come in the oplog.
type position struct {
	at          timestamp
	part        uint32
	invalidated bool // by the change there
}

// last is behind all changes of a time.
const last = math.MaxUint32

func (p position) compare(o position) int {
	return cmp.Or(p.at.compare(o.at), cmp.Compare(p.part, o.part))
}

// token returns the resume token of a position.
func (p position) token() bson.Raw {
	flag := 0
	if p.invalidated {
		flag = 1
	}
	return bson.NewBuilder(nil).String("_data",
		fmt.Sprintf("%08x%08x%08x%02x", p.at.t, p.at.i, p.part, flag)).Finish()
}

func parseToken(token bson.Raw) (p position, err error) {
	text, _ := field(token, "_data").Str()
	var flag int
	n, _ := fmt.Sscanf(text, "%08x%08x%08x%02x", &p.at.t, &p.at.i, &p.part, &flag)
	p.invalidated = flag == 1
	if n != 4 || !slices.Equal(p.token(), bson.NewBuilder(nil).String("_data", text).Finish()) {
		return p, failure.InvalidResumeToken.Errorf("no resume token of this server: %q", text)
	}
	return p, nil
}

// stream holds an open change stream.
type stream struct {
	ns     namespace // whose changes it sees; no collection: the database's; no database: all
	stages []bson.Raw
	// The options fullDocument and fullDocumentBeforeChange.
	lookup              bool
	nullAfter, nullThen bool // "whenAvailable", where no images are kept
	used                time.Time

	mu      sync.Mutex // guards the fields below; held while events are made
	pos     position   // behind what was read from the oplog
	given   bson.Raw   // the token behind what was given
	pending []bson.Raw
	ended   bool // by an invalidate event
}

// stagesOfStreams are those that the backend has of what may follow $changeStream.
var stagesOfStreams = []string{"$match", "$project", "$addFields", "$set", "$unset"}

// openStream answers an aggregate whose first stage is $changeStream.
func (s *Server) openStream(
	cmd *fakemongo.Command, options bson.Raw, stages []bson.Raw,
) (bson.Raw, error) {
	st := &stream{ns: namespaceOf(cmd), stages: clones(slices.Clone(stages))}
	st.pos = position{at: s.log.now(), part: last}
	if err := st.set(options); err != nil {
		return nil, err
	}
	for _, stage := range stages {
		if !slices.Contains(stagesOfStreams, stage.FirstKey()) {
			return nil, failure.NotImplemented.Errorf(
				"the embedded database has no %s in a change stream",
				stage.FirstKey())
		}
	}
	if _, err := s.shaped(nil, st.stages); err != nil {
		return nil, err
	}
	st.given = st.pos.token()
	if _, err := s.collect(st); err != nil {
		return nil, err
	}
	size, given := field(cmd.Body, "cursor", "batchSize").AsInt64()
	if !given {
		size = 101
	}
	return s.batch(st, s.addStream(st), "firstBatch", size), nil
}

// set applies the options of the stage.
func (st *stream) set(options bson.Raw) error {
	for key, v := range options.All() {
		doc, _ := v.Document()
		text, _ := v.Str()
		yes, _ := v.Bool()
		switch {
		case key == "resumeAfter" || key == "startAfter":
			p, err := parseToken(doc)
			if err != nil {
				return err
			}
			if p.invalidated && key == "resumeAfter" {
				return failure.InvalidResumeToken.Errorf(
					"Attempting to resume a change stream using 'resumeAfter' is not allowed " +
						"from an invalidate notification.")
			}
			p.invalidated = false
			st.pos = p
		case key == "startAtOperationTime":
			t := timestampOf(v)
			if t.i--; t.i == math.MaxUint32 {
				t.t--
			}
			st.pos = position{at: t, part: last}
		case key == "allChangesForCluster" && yes:
			st.ns = namespace{}
		case (key == "allChangesForCluster" || key == "showExpandedEvents") && !yes:
		case key == "fullDocument" && text == "default":
		case key == "fullDocument" && text == "updateLookup":
			st.lookup = true
		case key == "fullDocument" && text == "whenAvailable":
			st.nullAfter = true
		case key == "fullDocumentBeforeChange" && text == "off":
		case key == "fullDocumentBeforeChange" && text == "whenAvailable":
			st.nullThen = true
		case key == "showExpandedEvents" || text == "required":
			return failure.NotImplemented.Errorf("the embedded database has no %s: %s", key, text)
		default:
			return failure.UnknownField.Errorf(
				"BSON field '$changeStream.%s' is not understood", key)
		}
	}
	return nil
}

// moreEvents answers a getMore of a change stream. It blocks until there are events, for a second
// or the command's maxTimeMS.
func (s *Server) moreEvents(cmd *fakemongo.Command, id int64, st *stream) (bson.Raw, error) {
	wait := time.Second
	if ms := integer(cmd.Body, "maxTimeMS"); ms > 0 {
		wait = time.Duration(ms) * time.Millisecond
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	size := cmp.Or(integer(cmd.Body, "batchSize"), math.MaxInt32)
	for {
		s.useStream(st)
		more, err := s.collect(st)
		if err != nil {
			s.closeCursor(id)
			return nil, err
		}
		if st.ready() {
			return s.batch(st, id, "nextBatch", size), nil
		}
		select {
		case <-more:
		case <-timer.C:
			return s.batch(st, id, "nextBatch", size), nil
		case <-s.ctx.Done():
			return s.batch(st, id, "nextBatch", size), nil
		}
	}
}

// ready reports whether there is something to give.
func (st *stream) ready() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.pending) > 0 || st.ended
}

// batch gives events, and a token to resume behind them.
func (s *Server) batch(st *stream, id int64, name string, size int64) bson.Raw {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := min(int(size), largest(st.pending))
	batch := st.pending[:n]
	st.pending = st.pending[n:]
	switch {
	case len(st.pending) == 0:
		st.given = st.pos.token()
	case n > 0:
		st.given = document(batch[n-1], "_id").Clone()
	}
	if st.ended && len(st.pending) == 0 {
		s.closeCursor(id)
		id = 0
	}
	ns := st.ns
	if ns.coll == "" {
		ns = namespace{cmp.Or(ns.db, "admin"), "$cmd.aggregate"}
	}
	return okay(func(b *bson.Builder) {
		b.OpenDocument("cursor").OpenArray(name)
		for _, event := range batch {
			b.Document("", event)
		}
		b.Close().Int64("id", id).String("ns", ns.String()).
			Document("postBatchResumeToken", st.given).Close()
	})
}

// collect adds the events that have come since the last call. It returns a channel that is closed
// when there are more.
func (s *Server) collect(st *stream) (<-chan struct{}, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	list, now, more, ok := s.log.after(st.pos)
	if !ok {
		return nil, failure.ChangeStreamHistoryLost.Errorf("Resume of change stream was not " +
			"possible, as the resume point may no longer be in the oplog.")
	}
	if st.ended || len(list) == 0 {
		return more, nil
	}
	var events []bson.Raw
	for _, c := range list {
		st.pos = position{at: c.at, part: c.part}
		if st.sees(c) {
			event, err := s.event(st, c)
			if err != nil {
				return nil, err
			}
			events = append(events, event)
		}
		if st.isEndedBy(c) {
			st.pos.invalidated, st.ended = true, true
			events = append(events, bson.NewBuilder(nil).Document("_id", st.pos.token()).
				String("operationType", "invalidate").Value("clusterTime", c.at.value()).
				Time("wallTime", c.wall).Finish())
			break
		}
	}
	if !st.ended {
		st.pos = position{at: now, part: last}
	}
	events, err := s.shaped(events, st.stages)
	st.pending = append(st.pending, events...)
	return more, err
}
