package client

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/wire"
)

// bulk builds the insert, update or delete command for the next writes: the inserts of docs or,
// where that is nil, those of models. It sends as many as fit. What the first message of a command
// has, each further one has, until advance.
type bulk struct {
	collection   string
	ordered      bool
	common       *Common
	bypass       *bool
	let          bson.Raw
	writeConcern WriteConcern

	docs   []bson.Raw
	single bool // docs is the only document of InsertOne
	models []WriteModel
	ids    []newID
	// order has the places of the writes in the order in which they are sent; nil: as they are.
	order []int

	// next is the number of writes that commands before have sent, and sent that of this command;
	// 0: no message was built for it yet.
	next, sent int
	// checked are the limits of the last server; the zero value: there was none yet.
	checked checkedLimits
}

// checkedLimits holds the limits of a server that all writes not sent yet keep to.
type checkedLimits struct {
	size int
	wire int32
}

// sort puts the writes of one command beside each other, where their order does not matter.
func (c *bulk) sort() {
	if c.ordered {
		return
	}
	c.order = make([]int, len(c.models))
	for i := range c.order {
		c.order[i] = i
	}
	slices.SortStableFunc(c.order, func(a, b int) int {
		return cmp.Compare(c.models[a].Kind.command(), c.models[b].Kind.command())
	})
}

// left returns the number of writes that are not sent yet.
func (c *bulk) left() int { return len(c.ids) - c.next }

// advance goes on to the next command.
func (c *bulk) advance() { c.next, c.sent = c.next+c.sent, 0 }

// place returns where write i of the command is in the caller's list.
func (c *bulk) place(i int) int {
	if c.order == nil {
		return c.next + i
	}
	return c.order[c.next+i]
}

// commandOf returns the command of a write.
func (c *bulk) commandOf(place int) writeCommand {
	if c.docs != nil {
		return insertCommand
	}
	return c.models[place].Kind.command()
}

// command returns the next command.
func (c *bulk) command() writeCommand { return c.commandOf(c.place(0)) }

func (c *bulk) Name() string { return kinds[c.command()].name }

func (c *bulk) Append(b *bson.Builder, to operation.Target) error {
	if err := c.check(to); err != nil {
		return err
	}
	command := c.command()
	b.String(kinds[command].name, c.collection).Bool("ordered", c.ordered)
	if command != deletesCommand {
		appendBool(b, "bypassDocumentValidation", c.bypass)
	}
	if command != insertCommand {
		appendDocument(b, "let", c.let)
	}
	appendValue(b, "comment", c.common.Comment)
	appendWriteConcern(b, c.writeConcern)
	c.common.appendTo(b, to)
	return nil
}

// check compares all writes that are not sent yet with what this server takes, so that nothing is
// sent of a bulk that would be refused later. Another server may take less than the one before.
func (c *bulk) check(to operation.Target) error {
	limits := checkedLimits{
		size: limit(to.Hello.MaxBSONObjectSize, defaultMaxBSONObjectSize),
		wire: to.Hello.MaxWireVersion,
	}
	if limits == c.checked {
		return nil
	}
	for i := range c.left() {
		if err := c.checkWrite(c.place(i), limits); err != nil {
			return err
		}
	}
	c.checked = limits
	return nil
}

func (c *bulk) checkWrite(place int, limits checkedLimits) error {
	if size := c.documentSize(place); size > limits.size {
		return &ArgumentError{
			Argument: c.argument(place), TooLarge: true,
			Problem: fmt.Sprintf("has a document of %d bytes; the server takes %d", size,
				limits.size),
		}
	}
	if c.docs != nil || !unacknowledged(c.writeConcern) {
		return nil
	}
	m := &c.models[place]
	return hintGate(m.Hint, limits.wire, kinds[m.Kind.command()].hintsUnseen)
}

// documentSize returns the size of the document that is inserted or put in place of another, 0 for
// other writes.
func (c *bulk) documentSize(place int) int {
	if c.docs != nil {
		return insertedSize(c.docs[place], c.ids[place])
	}
	return insertedSize(c.models[place].Document, c.ids[place])
}

// argument returns the name of a write in the caller's words.
func (c *bulk) argument(place int) string {
	switch {
	case c.single:
		return "document"
	case c.docs != nil:
		return "documents." + strconv.Itoa(place)
	}
	return "requests." + strconv.Itoa(place)
}

func (c *bulk) AppendSequences(msg []byte, to operation.Target) ([]byte, error) {
	msg, start := wire.BeginSequence(msg, kinds[c.command()].sequence)
	most := limit(to.Hello.MaxWriteBatchSize, defaultMaxWriteBatchSize)
	if c.sent == 0 {
		longest := c.messageLimit(len(msg), to)
		msg, err := to.Grow(msg, c.length(min(c.left(), most), longest-len(msg)))
		if err != nil {
			return nil, err
		}
		msg = c.fill(msg, most, longest)
		return wire.EndSequence(msg, start), nil
	}
	if c.sent > most {
		return nil, &ArgumentError{
			Argument: c.argument(c.place(0)), TooLarge: true,
			Problem: fmt.Sprintf("begins a command of %d writes; the server takes %d", c.sent,
				most),
		}
	}
	msg, err := to.Grow(msg, c.length(c.sent, defaultMaxMessageSize))
	if err != nil {
		return nil, err
	}
	for i := range c.sent {
		msg = c.appendStatement(msg, c.place(i))
	}
	return wire.EndSequence(msg, start), nil
}

// length returns about how long the next n writes are in a message, and at most so much: a large
// message is allocated once.
func (c *bulk) length(n, most int) (sum int) {
	for i := range n {
		place := c.place(i)
		sum += c.documentSize(place)
		if c.docs == nil {
			m := &c.models[place]
			sum += statementOverhead + len(m.Filter) + len(m.Update.Data) +
				optionSize("arrayFilters", len(m.ArrayFilters)) +
				optionSize("collation", len(m.Collation)) +
				optionSize("hint", len(m.Hint.Data)) + optionSize("sort", len(m.Sort))
		}
		if sum >= most {
			return max(most, 0)
		}
	}
	return sum
}

// statementOverhead is about what a statement has beside the documents in it.
const statementOverhead = 48

// Retryable reports whether no write of the command may change several documents.
func (c *bulk) Retryable() bool {
	if c.docs != nil {
		return true
	}
	for i := range c.sent {
		if c.models[c.place(i)].Kind.many() {
			return false
		}
	}
	return true
}

// Single reports whether the command has one write.
func (c *bulk) Single() bool { return c.sent == 1 }

// messageLimit returns how long the message may become whose body is that long. Where a repeated
// call must have the same commands, the writes get a room that does not depend on what the driver
// adds to the body.
func (c *bulk) messageLimit(body int, to operation.Target) int {
	most := limit(to.Hello.MaxMessageSize, defaultMaxMessageSize)
	if s := c.common.session(); s == nil || !s.IsExact() {
		return most
	}
	given := len(c.collection) + len(c.let) + len(c.common.Comment.Data) + len(c.common.Extra)
	return body + most - messageOverhead - given
}

// fill appends as many of the next writes as fit, and at least one.
func (c *bulk) fill(msg []byte, most, maxMessage int) []byte {
	command := c.command()
	for i := range min(c.left(), most) {
		place := c.place(i)
		if c.commandOf(place) != command {
			break
		}
		before := len(msg)
		if i > 0 && before+c.documentSize(place) > maxMessage {
			return msg // which would grow
		}
		msg = c.appendStatement(msg, place)
		if i > 0 && len(msg) > maxMessage {
			return msg[:before]
		}
		c.sent++
	}
	return msg
}

// appendStatement appends a write as its command has it.
func (c *bulk) appendStatement(msg []byte, place int) []byte {
	if c.docs != nil {
		return appendInserted(msg, c.docs[place], c.ids[place])
	}
	m := &c.models[place]
	if m.Kind == InsertOne {
		return appendInserted(msg, m.Document, c.ids[place])
	}
	b := bson.NewBuilder(msg)
	b.Document("q", m.Filter)
	switch m.Kind {
	case DeleteOne:
		b.Int32("limit", 1)
	case DeleteMany:
		b.Int32("limit", 0)
	default:
		b.Value("u", m.update())
		if m.Kind == UpdateMany {
			b.Bool("multi", true)
		}
		appendBool(b, "upsert", m.Upsert)
		appendArray(b, "arrayFilters", m.ArrayFilters)
	}
	appendDocument(b, "collation", m.Collation)
	appendValue(b, "hint", m.Hint)
	appendDocument(b, "sort", m.Sort)
	b.Finish()
	return b.Bytes()
}
