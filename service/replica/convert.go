package replica

import (
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	peerv1 "github.com/mooringdb/mooring/gen/mooring/peer/v1"
	"github.com/mooringdb/mooring/service/handle"
)

// errMessage is what another version, or nobody of ours, has sent.
var errMessage = errors.New("message between replicas is malformed")

// reader reads messages of others; err is the first thing that was wrong, and stays.
type reader struct{ err error }

func (r *reader) fail() {
	if r.err == nil {
		r.err = errMessage
	}
}

// id reads 16 bytes; none is the zero value.
func (r *reader) id(b []byte) (id [16]byte) {
	if len(b) != 0 && len(b) != len(id) {
		r.fail()
		return id
	}
	copy(id[:], b)
	return id
}

func newID(id [16]byte) []byte {
	if id == [16]byte{} {
		return nil
	}
	return id[:]
}

func newReplica(r handle.Replica) *peerv1.Replica {
	return &peerv1.Replica{Address: r.Address, Instance: newID(r.Instance)}
}

func (r *reader) replica(m *peerv1.Replica) handle.Replica {
	return handle.Replica{Address: m.GetAddress(), Instance: r.id(m.GetInstance())}
}

// purposes are those of handle, by their numbers here.
var purposes = map[peerv1.Purpose]handle.Purpose{
	peerv1.Purpose_PURPOSE_PAGE:   handle.ForPage,
	peerv1.Purpose_PURPOSE_STREAM: handle.ForStream,
	peerv1.Purpose_PURPOSE_CLOSE:  handle.ForClose,
}

func newPurpose(p handle.Purpose) peerv1.Purpose {
	for number, purpose := range purposes {
		if purpose == p {
			return number
		}
	}
	return peerv1.Purpose_PURPOSE_UNSPECIFIED
}

func newQuestion(q handle.Question) *peerv1.Question {
	return &peerv1.Question{
		Asker: newReplica(q.Asker), Owner: newID(q.Owner), Attempt: q.Attempt, Purpose: newPurpose(q.Purpose),
		Principal: q.Principal, Token: q.Token, AllowGap: q.AllowGap,
		BatchSize: q.BatchSize, MaxAwaitTimeMs: q.MaxAwaitTimeMS, Inflation: int64(q.Inflation),
	}
}

func (r *reader) question(m *peerv1.Question) handle.Question {
	purpose, ok := purposes[m.GetPurpose()]
	if !ok {
		r.fail()
	}
	return handle.Question{
		Asker: r.replica(m.GetAsker()), Owner: r.id(m.GetOwner()), Attempt: m.GetAttempt(), Purpose: purpose,
		Principal: m.GetPrincipal(), Token: m.GetToken(), AllowGap: m.GetAllowGap(),
		BatchSize: m.BatchSize, MaxAwaitTimeMS: m.MaxAwaitTimeMs, Inflation: int(m.GetInflation()),
	}
}

func newAnswer(a handle.Answer) *peerv1.AskResponse {
	switch {
	case a.Page != nil:
		return &peerv1.AskResponse{Answer: &peerv1.AskResponse_Page{Page: &peerv1.Page{Documents: join(a.Page.Documents), Token: a.Page.Token}}}
	case a.Grant != nil:
		return &peerv1.AskResponse{Answer: &peerv1.AskResponse_Grant{Grant: newHolding(a.Grant)}}
	case a.Moved != nil:
		return &peerv1.AskResponse{Answer: &peerv1.AskResponse_Moved{Moved: &peerv1.Moved{To: newReplica(a.Moved.To), Next: a.Moved.Next, Moves: a.Moved.Moves}}}
	default:
		return &peerv1.AskResponse{Answer: &peerv1.AskResponse_Closed{Closed: a.Closed}}
	}
}

func (r *reader) answer(m *peerv1.AskResponse) handle.Answer {
	switch a := m.GetAnswer().(type) {
	case *peerv1.AskResponse_Page:
		return handle.Answer{Page: &handle.Page{Documents: r.split(a.Page.GetDocuments()), Token: a.Page.GetToken()}}
	case *peerv1.AskResponse_Grant:
		return handle.Answer{Grant: r.holding(a.Grant)}
	case *peerv1.AskResponse_Moved:
		return handle.Answer{Moved: &handle.Moved{To: r.replica(a.Moved.GetTo()), Next: a.Moved.GetNext(), Moves: a.Moved.GetMoves()}}
	case *peerv1.AskResponse_Closed:
		if a.Closed {
			return handle.Answer{Closed: true}
		}
	}
	r.fail()
	return handle.Answer{}
}

func newHolding(h *handle.Holding) *peerv1.Holding {
	if h == nil {
		return nil
	}
	return &peerv1.Holding{
		State: handle.AppendState(nil, &h.State), Rest: join(h.Rest), Chosen: h.Chosen, Mean: int64(h.Mean), Count: h.Count,
		Opened: newTime(h.Opened), Pages: h.Pages, Moves: h.Moves,
	}
}

func (r *reader) holding(m *peerv1.Holding) *handle.Holding {
	if m == nil {
		return nil
	}
	state, err := handle.DecodeState(m.GetState())
	if err != nil {
		r.fail()
	}
	return &handle.Holding{
		State: state, Rest: r.split(m.GetRest()), Chosen: m.GetChosen(), Mean: int(m.GetMean()), Count: m.GetCount(),
		Opened: readTime(m.GetOpened()), Pages: m.GetPages(), Moves: m.GetMoves(),
	}
}

func newRecord(rec handle.Record) *peerv1.Record {
	m := &peerv1.Record{
		Id: newID(rec.ID), Principal: rec.Principal, Database: rec.Namespace.Database, Collection: rec.Namespace.Collection,
		Next: rec.Next, Phase: uint32(rec.Phase), Moves: rec.Moves, Holding: newHolding(rec.Holding),
	}
	if rec.To != nil {
		m.To = newReplica(*rec.To)
	}
	return m
}

func (r *reader) record(m *peerv1.Record) handle.Record {
	rec := handle.Record{
		ID: r.id(m.GetId()), Principal: m.GetPrincipal(), Namespace: handle.Namespace{Database: m.GetDatabase(), Collection: m.GetCollection()},
		Next: m.GetNext(), Phase: uint8(m.GetPhase()), Moves: m.GetMoves(), Holding: r.holding(m.GetHolding()),
	}
	if m.GetPhase() > 0xff || m.GetTo() != nil && m.GetHolding() != nil {
		r.fail()
	}
	if m.GetTo() != nil {
		to := r.replica(m.GetTo())
		rec.To = &to
	}
	return rec
}

func newQuery(q handle.Query) *peerv1.ListRequest {
	return &peerv1.ListRequest{
		Principal: q.Principal, Database: q.Database, Collection: q.Collection, Pinned: q.Pinned,
		AfterOpened: newTime(q.After.Opened), AfterId: q.After.ID, Limit: int64(q.Limit),
	}
}

// query reads what is to be listed; nobody gets more than maxListed.
func query(m *peerv1.ListRequest) handle.Query {
	return handle.Query{
		Principal: m.Principal, Database: m.GetDatabase(), Collection: m.GetCollection(), Pinned: m.Pinned,
		After: handle.Mark{Opened: readTime(m.GetAfterOpened()), ID: m.GetAfterId()},
		Limit: int(min(max(m.GetLimit(), 0), maxListed)),
	}
}

func newInfo(i handle.Info) *peerv1.Info {
	return &peerv1.Info{
		Id: i.ID, Kind: string(i.Kind), Principal: i.Principal, Database: i.Namespace.Database, Collection: i.Namespace.Collection,
		Server: string(i.Server), Pinned: i.Pinned, Busy: i.Busy,
		Opened: newTime(i.Opened), LastUse: newTime(i.LastUse), Expires: newTime(i.Expires), Pages: i.Pages, Replica: i.Replica,
	}
}

func readInfo(m *peerv1.Info) handle.Info {
	return handle.Info{
		ID: m.GetId(), Kind: handle.Kind(m.GetKind()), Principal: m.GetPrincipal(),
		Namespace: handle.Namespace{Database: m.GetDatabase(), Collection: m.GetCollection()},
		Server:    address.Address(m.GetServer()), Pinned: m.GetPinned(), Busy: m.GetBusy(),
		Opened: readTime(m.GetOpened()), LastUse: readTime(m.GetLastUse()), Expires: readTime(m.GetExpires()),
		Pages: m.GetPages(), Replica: m.GetReplica(),
	}
}

// newTime leaves out the zero time.
func newTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func readTime(m *timestamppb.Timestamp) time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.AsTime()
}

// join puts documents one behind the other: each says itself how long it is.
func join(docs []bson.Raw) []byte {
	n := 0
	for _, doc := range docs {
		n += len(doc)
	}
	if n == 0 {
		return nil
	}
	b := make([]byte, 0, n)
	for _, doc := range docs {
		b = append(b, doc...)
	}
	return b
}

// split is the reverse of join. The documents are views on b.
func (r *reader) split(b []byte) []bson.Raw {
	var docs []bson.Raw
	for len(b) > 0 {
		doc, rest, err := bson.Read(b)
		if err != nil {
			r.fail()
			return nil
		}
		docs = append(docs, doc[:len(doc):len(doc)])
		b = rest
	}
	return docs
}
