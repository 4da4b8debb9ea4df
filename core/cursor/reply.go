package cursor

import (
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// reply holds the cursor in a reply. Its strings are views on that.
type reply struct {
	id                   int64
	database, collection string
	batch                Batch
}

// parse reads the reply of a command whose batch has this name. It checks all that it uses.
// The batch gets the reference to lent, which is nil if the reply is not in lent memory. After an
// error the collector has the memory.
func parse(
	from address.Address, doc bson.Raw, batchName string, lent *buffer.Buffer,
) (reply, error) {
	p := parser{from: from, batchName: batchName}
	p.batch.Lent = lent
	if err := p.parse(doc); err != nil {
		lent.Keep()
		p.batch.Lent = nil
		return p.reply, err
	}
	p.batch.Buffer = len(doc)
	return p.reply, nil
}

// The names of the batches in the replies of commands that open cursors, and of getMore. Only the
// former need to have the namespace.
const (
	firstBatch = "firstBatch"
	nextBatch  = "nextBatch"
)

type parser struct {
	reply
	from            address.Address
	batchName       string
	hasID, hasBatch bool
	// firstOnly makes the parser read only the first document, into first.
	firstOnly bool
	first     bson.Raw
}

func (p *parser) parse(doc bson.Raw) error {
	v, ok := doc.Lookup("cursor")
	if !ok {
		return p.fail("cursor", "is missing")
	}
	c, ok := v.Document()
	if !ok {
		return p.wrongType("cursor", v)
	}
	return p.walk(c)
}

func (p *parser) fail(field, problem string) error {
	return &mongoerr.MalformedReplyError{Address: p.from, Field: field, Problem: problem}
}

func (p *parser) wrongType(field string, v bson.Value) error {
	return p.fail(field, "has the type "+v.Type.String())
}

func (p *parser) walk(c bson.Raw) error {
	it := c.Iter()
	for it.Next() {
		if err := p.element(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	switch {
	case it.Err() != nil:
		return p.fail("cursor", "is malformed: "+it.Err().Error())
	case !p.hasID:
		return p.fail("cursor.id", "is missing")
	case !p.hasBatch:
		return p.fail("cursor."+p.batchName, "is missing")
	case p.id != 0 && p.collection == "" && p.batchName == firstBatch:
		return p.fail("cursor.ns", "is missing, or not database.collection")
	}
	return nil
}

func (p *parser) element(key string, v bson.Value) (err error) {
	ok := true
	switch key {
	case "id":
		p.id, ok = v.AsInt64()
		p.hasID = true
	case "ns":
		return p.namespace(v)
	case p.batchName:
		a, isArray := v.Array()
		if !isArray {
			return p.wrongType("cursor."+key, v)
		}
		p.hasBatch = true
		p.batch.Documents, err = p.documents(bson.Raw(a))
		p.batch.count()
		return err
	case "postBatchResumeToken":
		p.batch.PostBatchResumeToken, ok = v.Document()
	}
	if !ok {
		return p.wrongType("cursor."+key, v)
	}
	return nil
}

// namespace splits at the first dot, since database names have none.
func (p *parser) namespace(v bson.Value) error {
	ns, ok := v.Str()
	if !ok {
		return p.wrongType("cursor.ns", v)
	}
	if db, coll, ok := strings.Cut(ns, "."); ok && db != "" && coll != "" {
		p.database, p.collection = db, coll
	}
	return nil
}

// documents counts them first, so that the list is one allocation of the right size.
func (p *parser) documents(a bson.Raw) ([]bson.Raw, error) {
	if p.firstOnly {
		return nil, p.firstDocument(a)
	}
	n := 0
	it := a.Iter()
	for it.Next() {
		n++
	}
	if it.Err() != nil {
		return nil, p.fail("cursor."+p.batchName, "is malformed: "+it.Err().Error())
	}
	if n == 0 {
		return nil, nil
	}
	docs := p.batch.Lent.Documents(n)[:0]
	for it = a.Iter(); it.Next(); {
		d, ok := it.Value().Document()
		if !ok {
			return nil, p.wrongType("cursor."+p.batchName+"."+strconv.Itoa(len(docs)), it.Value())
		}
		docs = append(docs, d)
	}
	return docs, nil
}

func (p *parser) firstDocument(a bson.Raw) error {
	it := a.Iter()
	if !it.Next() {
		if it.Err() != nil {
			return p.fail("cursor."+p.batchName, "is malformed: "+it.Err().Error())
		}
		return nil
	}
	d, ok := it.Value().Document()
	if !ok {
		return p.wrongType("cursor."+p.batchName+".0", it.Value())
	}
	p.first = d
	return nil
}

func (b *Batch) count() {
	b.Bytes = 0
	for _, d := range b.Documents {
		b.Bytes += len(d)
	}
}

// cut drops the documents from n on.
func (b *Batch) cut(n int) {
	b.Documents = b.Documents[:n]
	b.count()
}

// Left returns the state of the cursor that a reply says is open on a server. ok is false if there
// is none. The state keeps no part of the reply.
func Left(from address.Address, doc bson.Raw) (s State, ok bool) {
	r, err := parse(from, doc, firstBatch, nil)
	if err != nil || r.id == 0 {
		return State{}, false
	}
	return State{
		Server: from, ID: r.id,
		Database: strings.Clone(r.database), Collection: strings.Clone(r.collection),
	}, true
}
