// Package transfer moves many documents: from a file into a collection, and from a collection into
// a file. Both go on after a kill where a checkpoint says, with no document twice and none
// missing. It makes its calls by package client.
//
// An import has at most six batches in memory, each of 1,000 documents and 4 MiB, or of one larger
// document.
package transfer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/checkpoint"
	"github.com/mooringdb/mooring/core/bson"
)

const (
	// batchDocs and batchBytes end a batch. A run that goes on divides a file as the first one.
	batchDocs, batchBytes = 1000, 4 << 20
	// inFlight is how many batches are sent at a time.
	inFlight = 4
)

// Import says what is imported, and where to.
type Import struct {
	Collection *client.Collection[bson.Raw]
	Source     SourceOptions
	// UpsertFields names the fields by which a document finds the older one that it replaces; nil:
	// documents are inserted.
	UpsertFields []string
	// Checkpoint is the path of a file; "": the import cannot go on after a kill.
	Checkpoint string
	// Target names the collection and the options, and Address what the calls go to, for the
	// checkpoint.
	Target, Address string
	// Ends says that the end of the source is that of a file. That of a pipe may be too early.
	Ends bool
	// Rejects takes the documents that are not written.
	Rejects Rejects
	// Progress, if set, is called after each batch.
	Progress func(Imported)
}

// Rejects takes the documents that are not written. At lets go what came after a number of bytes
// that Size has returned: a run that goes on writes it again. Sync makes what was written outlast a
// crash of the machine.
type Rejects interface {
	Reject(*Trouble) error
	Size() (int64, error)
	At(size int64) error
	Sync() error
}

// Imported counts what an import has done.
type Imported struct {
	Inserted int64 `json:"inserted"`
	Replaced int64 `json:"replaced"`
	Rejected int64 `json:"rejected"`
	// Unacknowledged is the first failure of the write concern.
	Unacknowledged string `json:"unacknowledged,omitempty"`
}

// FinishedError says that a checkpoint is that of an import which has come to the end of its file,
// and that the file has no more documents since.
type FinishedError struct {
	Checkpoint string
	Imported
}

// Error returns what was done, and how to import again.
func (e *FinishedError) Error() string {
	return fmt.Sprintf("this import is finished, with %d written and %d rejected: remove %s to "+
		"import again", e.Inserted+e.Replaced, e.Rejected, e.Checkpoint)
}

// state holds what a checkpoint has: everything up to Read is done.
type state struct {
	Target  string `json:"target"`
	Address string `json:"address,omitempty"` // empty: of an earlier release
	Head    string `json:"head"`              // a hash of the file's first HeadBytes
	// HeadBytes is less than headBytes if the file was shorter, and 0 if an earlier release has
	// taken all that there was.
	HeadBytes int    `json:"headBytes,omitempty"`
	ID        string `json:"id"` // of the import, random
	Begun     int64  `json:"begun"`
	Read      int64  `json:"read"` // how many documents of the file, rejected ones included
	Rest      int64  `json:"rejectBytes"`
	Done      bool   `json:"done,omitempty"` // so is the file
	// Open is the line of the last document if that had no end; nil: it had one.
	Open *openLine `json:"open,omitempty"`

	Imported
}

// openLine says what a last line without an end was, of which there may be more later.
type openLine struct {
	Hash     string `json:"hash"`
	Rejected bool   `json:"rejected,omitempty"`
	Rest     int64  `json:"rejectBytes,omitempty"` // before it was rejected
	// Written says that it was rejected because a part of it was written before.
	Written bool `json:"written,omitempty"`
}

// importing holds the state of one run.
type importing struct {
	Import

	state state
	// unkeyed says that the deployment takes no idempotency keys.
	unkeyed atomic.Bool
	// reached says that a gateway has answered.
	reached atomic.Bool
}

// batch holds documents that one call writes.
type batch struct {
	first int64    // the number of the first document in the file, from 0
	next  int64    // that of the first one after the batch
	docs  []record // those to write
	bytes int
	bad   []*Trouble // those that cannot be read
	open  *openLine  // of the last document; nil: its line has an end
	// again says that the batch may have been written before.
	again bool

	done    chan struct{} // closed when the fields below are set
	counts  Imported
	rejects []*Trouble
	err     error
}

// Run imports a file. Its error says why it ended early; what it counts is done.
func (i Import) Run(ctx context.Context, r io.Reader) (Imported, error) {
	src, head, err := newSource(r, i.Source)
	if err != nil {
		return Imported{}, err
	}
	m := &importing{Import: i}
	resumed, err := m.load(head)
	if err != nil {
		return m.state.Imported, err
	}
	done, before := m.state.Done, m.state.Read
	m.state.Done = false // the file may have grown
	var last record
	for n := range before {
		if last, err = src.next(); err != nil {
			if m.state.Open != nil && n == before-1 && !errors.Is(err, io.EOF) {
				return m.state.Imported, err // what the line has since is at fault
			}
			return m.state.Imported, fmt.Errorf(
				"the checkpoint belongs to another file: after %d documents: %w", n, err)
		}
	}
	if o := m.state.Open; o != nil && o.Hash != hashOfLine(src.text()) {
		done = false
		if src, err = m.ended(src, last); err != nil {
			return m.state.Imported, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan *batch, inFlight-1) // in the order of the file
	finished := make(chan error, 1)
	go func() { finished <- m.collect(sent, cancel) }()
	readErr := m.read(ctx, src, resumed, sent)
	close(sent)
	if err := <-finished; err != nil {
		return m.state.Imported, err
	}
	if readErr == nil && done && m.state.Read == before {
		return m.state.Imported, &FinishedError{m.Checkpoint, m.state.Imported}
	}
	if readErr == nil && m.Ends {
		m.state.Done = true
		readErr = m.save()
	}
	return m.state.Imported, readErr
}

// load reads the checkpoint, or begins a new import.
func (m *importing) load(head []byte) (resumed bool, err error) {
	begun := state{
		Target: m.Target, Address: m.Address, Head: hashOf(head), HeadBytes: len(head),
		ID: rand.Text(), Begun: time.Now().Unix(),
	}
	m.state = begun
	if m.Checkpoint == "" {
		return false, nil
	}
	var before state
	resumed, err = checkpoint.Load(m.Checkpoint, &before)
	switch {
	case err != nil:
		return false, err
	case !resumed:
		return false, errors.Join(m.Rejects.At(0), m.save())
	case before.Target != begun.Target:
		return false, fmt.Errorf("%s belongs to another import: %s", m.Checkpoint, before.Target)
	case !isSame(before.Address, m.Address):
		return false, fmt.Errorf("%s belongs to an import at %s", m.Checkpoint, before.Address)
	case before.HeadBytes == 0 && before.Head != hashOf(nil):
		before.HeadBytes = len(head)
	}
	if before.HeadBytes < 0 || before.HeadBytes > len(head) ||
		before.Head != hashOf(head[:before.HeadBytes]) {
		return false, fmt.Errorf("%s belongs to another file", m.Checkpoint)
	}
	m.state, m.state.Address = before, m.Address
	m.state.Head, m.state.HeadBytes = begun.Head, begun.HeadBytes // the file may have grown
	return true, m.Rejects.At(before.Rest)
}

// ended takes the last document of the run before, whose line has more now: it is read again. If a
// part of the line was written, it is rejected, since it may be any part.
func (m *importing) ended(src source, last record) (source, error) {
	before := m.state.Open
	m.state.Open = nil
	m.state.Read--
	last.written = before.Written || !before.Rejected
	if last.written {
		last.trouble = &Trouble{
			Line: last.line, Column: 1, Text: clip(src.text()),
			Reason: "an earlier run has written this line without its end: correct the document",
		}
	}
	if !before.Rejected {
		return &unread{src, &last}, nil
	}
	m.state.Rejected--
	return &unread{src, &last}, m.Rejects.At(before.Rest)
}

// hashOfLine returns a hash of a line without its end.
func hashOfLine(line []byte) string { return hashOf(bytes.TrimRight(line, "\r\n")) }

// hashOf returns a hash of a part of a file.
func hashOf(head []byte) string {
	hash := sha256.Sum256(head)
	return hex.EncodeToString(hash[:8])
}

// isSame reports whether a checkpoint belongs to an address. One of an earlier release has none.
func isSame(before, address string) bool { return before == "" || before == address }

func (m *importing) save() error {
	if m.Checkpoint == "" {
		return nil
	}
	if err := m.Rejects.Sync(); err != nil {
		return err
	}
	return checkpoint.Save(m.Checkpoint, &m.state, true)
}

// read divides the file into batches and sends them.
func (m *importing) read(
	ctx context.Context, src source, resumed bool, sent chan<- *batch,
) error {
	at, batches := m.state.Read, 0
	for {
		b, err := m.fill(src, at)
		if b.next > b.first {
			b.again = resumed && batches < inFlight
			batches++
			select {
			case sent <- b:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			go func() {
				defer close(b.done)
				b.err = m.send(ctx, b)
			}()
			if m.UpsertFields != nil {
				<-b.done // the last of several documents with the same fields counts
			}
			at = b.next
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// fill reads a batch. What it returns beside an error is to be sent, too.
func (m *importing) fill(src source, at int64) (*batch, error) {
	b := &batch{first: at, next: at, done: make(chan struct{})}
	for len(b.docs)+len(b.bad) < batchDocs && b.bytes < batchBytes {
		r, err := src.next()
		if err != nil {
			if t, ok := errors.AsType[*Trouble](err); ok && t.Number == 0 {
				t.Number = b.next + 1
			}
			return b, err
		}
		r.number = b.next + 1
		b.next++
		b.open = nil
		if line := src.text(); len(line) > 0 && !bytes.HasSuffix(line, []byte{'\n'}) {
			b.open = &openLine{Hash: hashOfLine(line), Written: r.written}
		}
		if r.trouble == nil {
			r.doc, r.trouble = m.prepare(r)
		}
		if r.trouble != nil {
			r.trouble.Number = r.number
			b.bad = append(b.bad, r.trouble)
			b.bytes += len(r.trouble.Text)
			continue
		}
		b.docs = append(b.docs, r)
		b.bytes += len(r.doc)
	}
	return b, nil
}

// prepare returns the document as it is written: it begins with its _id, which an import derives
// from its own id if the document has none, so that a second attempt has the same.
func (m *importing) prepare(r record) (bson.Raw, *Trouble) {
	for _, field := range m.UpsertFields {
		if v, ok := r.doc.Lookup(strings.Split(field, ".")...); !ok || v.IsZero() {
			return nil, &Trouble{
				Line: r.line, Column: 1, Reason: "the document has no " + field +
					", which is one of --upsert-fields",
			}
		}
	}
	id, ok := r.doc.Lookup("_id")
	switch {
	case ok && r.doc.FirstKey() != "_id":
		return bson.PrependID(bson.Without(r.doc, "_id"), "_id", id), nil
	case !ok && m.UpsertFields == nil:
		return bson.PrependID(r.doc, "_id", bson.ObjectIDValue(m.id(r.number))), nil
	}
	return r.doc, nil
}

// id returns the _id of a document: the time of the import, five bytes of its id, and a counter,
// whose higher bytes are added to the time.
func (m *importing) id(number int64) (id bson.ObjectID) {
	hash := sha256.Sum256([]byte(m.state.ID))
	binary.BigEndian.PutUint32(id[:4], uint32(m.state.Begun+number>>24))
	copy(id[4:9], hash[:5])
	id[9], id[10], id[11] = byte(number>>16), byte(number>>8), byte(number)
	return id
}

// collect takes the results of batches in their order, and saves how far the import has come. At
// the first error it cancels what is in flight.
func (m *importing) collect(sent <-chan *batch, cancel func()) (err error) {
	for b := range sent {
		<-b.done
		if err == nil {
			if err = m.finish(b); err != nil {
				cancel()
			}
		}
	}
	return err
}

// rest returns the size of the rejects, which only a checkpoint needs: a pipe has none.
func (m *importing) rest() (int64, error) {
	if m.Checkpoint == "" {
		return 0, nil
	}
	return m.Rejects.Size()
}

// finish records the result of a batch.
func (m *importing) finish(b *batch) error {
	if b.err != nil {
		return b.err
	}
	var err error
	for _, t := range b.rejects {
		if b.open != nil && t.Number == b.next {
			b.open.Rejected = true
			if b.open.Rest, err = m.rest(); err != nil {
				return err
			}
		}
		if err := m.Rejects.Reject(t); err != nil {
			return err
		}
	}
	if m.state.Rest, err = m.rest(); err != nil {
		return err
	}
	m.state.Read, m.state.Open = b.next, b.open
	m.state.Inserted += b.counts.Inserted
	m.state.Replaced += b.counts.Replaced
	m.state.Rejected += int64(len(b.rejects))
	m.state.Unacknowledged = cmp.Or(m.state.Unacknowledged, b.counts.Unacknowledged)
	if err := m.save(); err != nil {
		return err
	}
	if m.Progress != nil {
		m.Progress(m.state.Imported)
	}
	return nil
}
