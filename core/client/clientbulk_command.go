package client

import (
	"fmt"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/wire"
)

// wireVersion80 is the first whose servers know the bulkWrite command.
const wireVersion80 = 25

// clientBulk builds the bulkWrite command for the next writes. What the first message of a command
// has, each further one has, until advance.
type clientBulk struct {
	ordered, verbose bool
	opt              *NamespacedBulkWriteOptions
	writeConcern     WriteConcern
	models           []NamespacedWriteModel
	ids              []newID

	// next is the place of the first model that no command before has sent.
	next int
	// sent is the number of models in the command, and size that of its sequences; 0: no message
	// was built yet.
	sent, size int
	// checked is the limit that no document exceeds which is sent without acknowledgement.
	checked int
	// namespaces has the places of the command's namespaces in its sequence nsInfo.
	namespaces map[Namespace]int32
}

// advance goes on to the next command.
func (c *clientBulk) advance() {
	c.next += c.sent
	c.sent, c.size = 0, 0
	clear(c.namespaces)
}

var clientBulkFields = []string{
	"bulkWrite", "errorsOnly", "ordered", "ops", "nsInfo", "bypassDocumentValidation", "comment",
	"let", "cursor",
}

func (*clientBulk) Name() string { return "bulkWrite" }

func (c *clientBulk) Append(b *bson.Builder, to operation.Target) error {
	if to.Hello.MaxWireVersion < wireVersion80 {
		return &ArgumentError{Argument: "bulkWrite", Problem: "is not supported by the server"}
	}
	b.Int32("bulkWrite", 1)
	size := emptyDocumentSize + elementSize("bulkWrite", int32Size) - b.Len()
	b.Bool("errorsOnly", !c.verbose).Bool("ordered", c.ordered)
	appendBool(b, "bypassDocumentValidation", c.opt.BypassDocumentValidation)
	appendValue(b, "comment", c.opt.Comment)
	appendDocument(b, "let", c.opt.Let)
	appendWriteConcern(b, c.writeConcern)
	c.opt.appendTo(b, to)
	if err := b.Err(); err != nil {
		return err
	}
	return c.split(c.own(size+b.Len()), to)
}

// own returns the length of the command's own elements, which have so many bytes. Where a repeated
// call must have the same commands, it does not depend on the write concern, which has a wtimeout
// only without a deadline.
func (c *clientBulk) own(command int) int {
	if s := c.opt.session(); s == nil || !s.IsExact() {
		return command
	}
	return len(c.opt.Comment.Data) + len(c.opt.Let) + len(c.opt.Extra)
}

// messageOverhead is left free in each message for what the driver adds to a command, whatever it
// is (Bulk Write, "Total Message Size").
const messageOverhead = 1000

// split decides how many writes go into the command, whose own elements are so long. If that is
// decided, it checks that this server takes as much.
func (c *clientBulk) split(command int, to operation.Target) error {
	most := limit(to.Hello.MaxWriteBatchSize, defaultMaxWriteBatchSize)
	room := limit(to.Hello.MaxMessageSize, defaultMaxMessageSize) - messageOverhead - command
	if c.sent > 0 {
		if c.sent > most || c.size > room {
			return &ArgumentError{
				Argument: "models." + strconv.Itoa(c.next), TooLarge: true,
				Problem: fmt.Sprintf("begins a command of %d writes and %d bytes; the server "+
					"takes %d and %d", c.sent, c.size, most, room),
			}
		}
		return nil
	}
	if err := c.checkSizes(to); err != nil {
		return err
	}
	if c.namespaces == nil {
		c.namespaces = map[Namespace]int32{}
	}
	for c.next+c.sent < len(c.models) && c.sent < most && c.add(c.next+c.sent, room) {
		c.sent++
	}
	if c.sent == 0 {
		return &ArgumentError{
			Argument: "models." + strconv.Itoa(c.next), TooLarge: true,
			Problem: fmt.Sprintf("has %d bytes; the server takes %d", c.sizeOf(c.next), room),
		}
	}
	return nil
}

// checkSizes objects to a document that the server would refuse, where no acknowledgement could say
// so. Otherwise it is the server that decides.
func (c *clientBulk) checkSizes(to operation.Target) error {
	most := limit(to.Hello.MaxBSONObjectSize, defaultMaxBSONObjectSize)
	if !unacknowledged(c.writeConcern) || c.checked != 0 && c.checked <= most {
		return nil
	}
	for place := c.next; place < len(c.models); place++ {
		size := insertedSize(c.models[place].Document, c.ids[place])
		if size > most {
			return &ArgumentError{
				Argument: "models." + strconv.Itoa(place), TooLarge: true,
				Problem: fmt.Sprintf("has a document of %d bytes; the server takes %d", size, most),
			}
		}
	}
	c.checked = most
	return nil
}

// add counts a write, with its namespace if that is new, and reports whether there is room for it.
func (c *clientBulk) add(place, room int) bool {
	ns := c.models[place].Namespace
	size := c.sizeOf(place)
	_, known := c.namespaces[ns]
	if !known {
		size += emptyDocumentSize + elementSize("ns", len(ns.String())+stringOverhead)
	}
	if c.size+size > room {
		return false
	}
	c.size += size
	if !known {
		c.namespaces[ns] = int32(len(c.namespaces))
	}
	return true
}

// Retryable reports whether no write of the command may change several documents.
func (c *clientBulk) Retryable() bool {
	for i := range c.models[c.next : c.next+c.sent] {
		if c.models[c.next+i].Kind.many() {
			return false
		}
	}
	return true
}

// Single reports whether the command has one write.
func (c *clientBulk) Single() bool { return c.sent == 1 }

// sequenceHeads is what the two sequences have beside their documents.
const sequenceHeads = 32

func (c *clientBulk) AppendSequences(msg []byte, to operation.Target) ([]byte, error) {
	msg, err := to.Grow(msg, c.size+sequenceHeads)
	if err != nil {
		return nil, err
	}
	msg, start := wire.BeginSequence(msg, "ops")
	for place := c.next; place < c.next+c.sent; place++ {
		msg = c.appendOp(msg, place)
	}
	msg, start = wire.BeginSequence(wire.EndSequence(msg, start), "nsInfo")
	return wire.EndSequence(c.appendNamespaces(msg), start), nil
}

// appendNamespaces appends the command's namespaces in the order of their places.
func (c *clientBulk) appendNamespaces(msg []byte) []byte {
	next := int32(0)
	for i := range c.models[c.next : c.next+c.sent] {
		ns := c.models[c.next+i].Namespace
		if c.namespaces[ns] == next {
			b := bson.NewBuilder(msg)
			b.String("ns", ns.String()).Finish()
			msg, next = b.Bytes(), next+1
		}
	}
	return msg
}

// appendOp appends a write as the command has it. sizeOf knows its size.
func (c *clientBulk) appendOp(msg []byte, place int) []byte {
	m := &c.models[place]
	ns := c.namespaces[m.Namespace]
	b := bson.NewBuilder(msg)
	switch m.Kind.command() {
	case insertCommand:
		b.Int32("insert", ns).OpenDocument("document")
		if c.ids[place].generated {
			b.Value("_id", c.ids[place].value)
		}
		b.AppendElements(m.Document).Close()
	case updatesCommand:
		b.Int32("update", ns).Document("filter", m.Filter).Value("updateMods", m.update())
		b.Bool("multi", m.Kind == UpdateMany)
		appendBool(b, "upsert", m.Upsert)
		appendArray(b, "arrayFilters", m.ArrayFilters)
	case deletesCommand:
		b.Int32("delete", ns).Document("filter", m.Filter).Bool("multi", m.Kind == DeleteMany)
	}
	appendValue(b, "hint", m.Hint)
	appendDocument(b, "collation", m.Collation)
	appendDocument(b, "sort", m.Sort)
	b.Finish()
	return b.Bytes()
}

// sizeOf returns the size of what appendOp appends.
func (c *clientBulk) sizeOf(place int) int {
	m := &c.models[place]
	size := emptyDocumentSize
	switch m.Kind.command() {
	case insertCommand:
		size += elementSize("insert", int32Size) +
			elementSize("document", insertedSize(m.Document, c.ids[place]))
	case updatesCommand:
		size += elementSize("update", int32Size) + elementSize("filter", documentSize(m.Filter)) +
			elementSize("updateMods", len(m.update().Data)) + elementSize("multi", boolSize)
		if m.Upsert != nil {
			size += elementSize("upsert", boolSize)
		}
		size += optionSize("arrayFilters", len(m.ArrayFilters))
	case deletesCommand:
		size += elementSize("delete", int32Size) + elementSize("filter", documentSize(m.Filter)) +
			elementSize("multi", boolSize)
	}
	return size + optionSize("hint", len(m.Hint.Data)) + optionSize("collation", len(m.Collation)) +
		optionSize("sort", len(m.Sort))
}

const (
	int32Size = 4
	boolSize  = 1
	// stringOverhead is the size of a BSON string without its text.
	stringOverhead = 5
)

// elementSize returns the size of an element whose value has a size.
func elementSize(key string, value int) int {
	const typeAndZero = 2
	return typeAndZero + len(key) + value
}

// optionSize returns the size of an element that is left out if its value has no bytes.
func optionSize(key string, value int) int {
	if value == 0 {
		return 0
	}
	return elementSize(key, value)
}

// documentSize returns the size of a document, for which nil stands if it is empty.
func documentSize(d bson.Raw) int { return max(len(d), emptyDocumentSize) }
