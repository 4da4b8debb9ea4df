package replica

import (
	"errors"
	"math"
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
)

// errMessage refuses a message that this version cannot read.
var errMessage = errors.New("message between replicas is malformed")

// reader reads messages of other replicas. err is the first fault and stays.
type reader struct{ err error }

func (r *reader) fail() {
	if r.err == nil {
		r.err = errMessage
	}
}

// id reads 16 bytes. No bytes are the zero value.
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

func newReplica(r page.Replica) *replicav1.Replica {
	return &replicav1.Replica{Address: r.Address, Instance: newID(r.Instance)}
}

func (r *reader) replica(m *replicav1.Replica) page.Replica {
	return page.Replica{Address: m.GetAddress(), Instance: r.id(m.GetInstance())}
}

func newPage(p *paging.Page) *replicav1.Page {
	if p == nil {
		return nil
	}
	return &replicav1.Page{Documents: join(p.Documents), Token: p.Token}
}

func (r *reader) page(m *replicav1.Page) *paging.Page {
	if m == nil {
		return nil
	}
	return &paging.Page{Documents: r.split(m.GetDocuments()), Token: m.GetToken()}
}

func newHolding(h *paging.Holding) *replicav1.Holding {
	if h == nil {
		return nil
	}
	return &replicav1.Holding{
		State: paging.AppendState(nil, &h.State), Leftover: join(h.Leftover),
		Chosen: h.Chosen, Mean: int64(h.Mean), Count: h.Count,
	}
}

func (r *reader) holding(m *replicav1.Holding) *paging.Holding {
	if m == nil {
		return nil
	}
	state, err := paging.DecodeState(m.GetState())
	if err != nil {
		r.fail()
	}
	return &paging.Holding{
		State: state, Leftover: r.split(m.GetLeftover()),
		Chosen: m.GetChosen(), Mean: int(m.GetMean()), Count: m.GetCount(),
	}
}

func newLedger(l page.Record) *replicav1.Ledger {
	return &replicav1.Ledger{Next: l.Next, Phase: uint32(l.Phase), Moves: l.Moves}
}

func (r *reader) ledger(m *replicav1.Ledger) page.Record {
	if m == nil || m.GetPhase() > math.MaxUint8 {
		r.fail()
		return page.Record{}
	}
	return page.Record{Next: m.GetNext(), Phase: uint8(m.GetPhase()), Moves: m.GetMoves()}
}

func newRecord(rec paging.Record) *replicav1.Record {
	return &replicav1.Record{
		Id: newID(rec.ID), Principal: rec.Principal,
		Database: rec.Namespace.Database, Collection: rec.Namespace.Collection,
		Opened: newTime(rec.Opened), Pages: rec.Pages,
		Ledger: newLedger(rec.Ledger), Holding: newHolding(rec.Holding),
		Asked: rec.Asked, Client: rec.Client.AsSlice(), Undelivered: newPage(rec.Undelivered),
		Taken: []byte(rec.Taken),
	}
}

func (r *reader) record(m *replicav1.Record) paging.Record {
	return paging.Record{
		ID: r.id(m.GetId()), Principal: m.GetPrincipal(),
		Namespace: paging.Namespace{Database: m.GetDatabase(), Collection: m.GetCollection()},
		Opened:    readTime(m.GetOpened()), Pages: m.GetPages(),
		Ledger: r.ledger(m.GetLedger()), Holding: r.holding(m.GetHolding()),
		Asked: m.GetAsked(), Client: r.client(m.GetClient()), Taken: string(m.GetTaken()),
		Undelivered: r.page(m.GetUndelivered()),
	}
}

// client reads an IP address; none is the invalid one.
func (r *reader) client(b []byte) netip.Addr {
	client, ok := netip.AddrFromSlice(b)
	if !ok && len(b) > 0 {
		r.fail()
	}
	return client
}

func newQuery(q handle.Query) *replicav1.ListRequest {
	return &replicav1.ListRequest{
		Principal: q.Principal, Database: q.Database, Collection: q.Collection, Pinned: q.Pinned,
		AfterOpened: newTime(q.After.Opened), AfterId: q.After.ID, Limit: int64(q.Limit),
	}
}

// query reads a query and limits it to maxListed handles.
func query(m *replicav1.ListRequest) handle.Query {
	return handle.Query{
		Principal: m.Principal, Database: m.GetDatabase(), Collection: m.GetCollection(),
		Pinned: m.Pinned,
		After:  handle.Mark{Opened: readTime(m.GetAfterOpened()), ID: m.GetAfterId()},
		Limit:  int(min(max(m.GetLimit(), 0), maxListed)),
	}
}

func newInfo(i handle.Info) *replicav1.Info {
	return &replicav1.Info{
		Id: i.ID, Kind: string(i.Kind), Principal: i.Principal,
		Database: i.Database, Collection: i.Collection,
		Server: string(i.Server), Pinned: i.Pinned, Busy: i.Busy,
		Opened: newTime(i.Opened), LastUse: newTime(i.LastUse), Expires: newTime(i.Expires),
		Pages: i.Pages, Replica: i.Replica,
	}
}

func readInfo(m *replicav1.Info) handle.Info {
	return handle.Info{
		ID: m.GetId(), Kind: handle.Kind(m.GetKind()), Principal: m.GetPrincipal(),
		Database: m.GetDatabase(), Collection: m.GetCollection(),
		Server: address.Address(m.GetServer()), Pinned: m.GetPinned(), Busy: m.GetBusy(),
		Opened: readTime(m.GetOpened()), LastUse: readTime(m.GetLastUse()),
		Expires: readTime(m.GetExpires()),
		Pages:   m.GetPages(), Replica: m.GetReplica(),
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

// join concatenates documents. Each document begins with its own length.
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

// split reverses join. The documents are views on b.
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
