package fakemongo

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// Command holds one command as it was received.
type Command struct {
	Name       string
	Database   string
	Body       bson.Raw // as sent; document sequences are not in it
	Sequences  map[string][]bson.Raw
	Connection int // counted from 1 in the order of acceptance
	RequestID  int32
	Legacy     bool // it came by OP_QUERY
	MoreToCome bool // no reply is wanted, and none is sent
	Compressed bool // it came by OP_COMPRESSED, and is answered so

	ExhaustAllowed bool // several replies may be sent

	TLS *tls.ConnectionState // nil: the connection is not encrypted
}

// Documents returns the documents of a sequence, or of the array with that name in the body.
func (c *Command) Documents(name string) []bson.Raw {
	if docs, ok := c.Sequences[name]; ok {
		return docs
	}
	value, _ := c.Body.Lookup(name)
	array, _ := value.Array()
	return slices.Collect(array.Documents())
}

// readCommand reads one OP_MSG or OP_QUERY, or an OP_COMPRESSED that stands for one. A message that
// is not right ends the connection, as on a real server.
func readCommand(r io.Reader) (*Command, error) {
	m, err := wire.Read(r, nil)
	if err != nil {
		return nil, err
	}
	cmd := &Command{RequestID: m.Header().ID}
	if m.Header().OpCode == wire.OpCompressed {
		cmd.Compressed = true
		if m, err = m.Decompress(); err != nil {
			return nil, err
		}
	}
	switch op := m.Header().OpCode; op {
	case wire.OpMsg:
		err = cmd.parseMsg(m)
	case wire.OpQuery:
		err = cmd.parseQuery(m)
	default:
		err = fmt.Errorf("opcode %d", op)
	}
	if err == nil {
		err = cmd.Body.Validate()
	}
	if err != nil {
		return nil, err
	}
	cmd.Name = cmd.Body.FirstKey()
	return cmd, nil
}

func (c *Command) parseMsg(m wire.Message) error {
	flags := m.Flags()
	c.MoreToCome, c.ExhaustAllowed = flags&wire.MoreToCome != 0, flags&wire.ExhaustAllowed != 0
	for section, err := range m.Sections() {
		switch {
		case err != nil:
			return err
		case section.Body:
			c.Body = section.Documents
			continue
		}
		if err := c.addSequence(section); err != nil {
			return err
		}
	}
	database, _ := c.Body.Lookup("$db")
	name, ok := database.Str()
	if !ok {
		return errors.New("no body with $db")
	}
	c.Database = name
	return nil
}

func (c *Command) addSequence(section wire.Section) error {
	name := string(section.Name)
	if _, ok := c.Sequences[name]; ok {
		return fmt.Errorf("second sequence %q", name)
	}
	docs := []bson.Raw{}
	for doc, err := range wire.Documents(section.Documents) {
		if err == nil {
			err = doc.Validate()
		}
		if err != nil {
			return err
		}
		docs = append(docs, doc)
	}
	if c.Sequences == nil {
		c.Sequences = map[string][]bson.Raw{}
	}
	c.Sequences[name] = docs
	return nil
}

func (c *Command) parseQuery(m wire.Message) error {
	namespace, body, err := m.Query()
	if err != nil {
		return err
	}
	database, isCommand := strings.CutSuffix(namespace, ".$cmd")
	if !isCommand || database == "" {
		return fmt.Errorf("query of %q", namespace)
	}
	c.Legacy, c.Database, c.Body = true, database, body
	return nil
}

// reply returns the message that answers a request with doc, in the kind that the command came in.
func (c *Command) reply(doc bson.Raw, responseTo int32) wire.Message {
	h := wire.Header{ID: c.RequestID + firstReply, ResponseTo: responseTo}
	m := wire.Message(nil)
	if c.Legacy {
		m = wire.Reply(h, doc)
	} else {
		m = wire.Msg(h, 0, doc, nil)
	}
	if c.Compressed {
		return m.Compress()
	}
	return m
}

// firstReply is what the id of a reply has more than that of its request.
const firstReply = 1_000_000

// WithZlib adds to a reply to hello that messages may be compressed with zlib. A message that comes
// compressed is answered so.
func WithZlib(hello Reply) Reply {
	b := bson.NewBuilder(nil).OpenArray("compression").String("", "zlib").Close()
	return hello.With(b.Finish())
}
