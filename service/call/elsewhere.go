package call

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/service/page"
)

// Elsewhere describes the error of a call that another replica has to make. The interceptors call
// Route.
type Elsewhere interface {
	error
	// Route has the call made by there, at one replica after the other until one of them has made
	// it. If what the call needs has come here meanwhile, here runs the call, and the reply is
	// empty.
	Route(ctx context.Context, here func(context.Context) error, there There) (Reply, error)
}

// There makes the call at another replica. Its errors are those of paging.Replicas.
type There func(ctx context.Context, to page.Replica) (Reply, error)

// Reply holds what another replica has answered: a response or, if the call answers with a stream,
// that stream once the replica has agreed.
type Reply struct {
	Response proto.Message
	Stream   Stream
}

// Drop ends a reply that is not used.
func (r Reply) Drop() {
	if r.Stream != nil {
		r.Stream.Close()
	}
}

// Message names what streams bring, for packages that know no transport.
type Message = proto.Message

// Stream brings the messages of a stream that another replica sends.
type Stream interface {
	// Recv returns the next message, or io.EOF at the end. It ends with the stream's context.
	Recv() (Message, error)
	// Close ends the stream there. It may be repeated.
	Close()
}

// Forwarding describes a client's call that another replica makes.
type Forwarding struct {
	// To is the replica. If it has an instance, another life of the replica makes no such call.
	To page.Replica
	// Method is the full name of the RPC.
	Method  string
	Request proto.Message
	// Streams says that the RPC answers with a stream. Answer is the type of what it answers.
	Streams bool
	Answer  protoreflect.MessageType
	// Local is what the replica is told of the client and the call.
	Local Local
	// Metadata holds the client's metadata that handlers know.
	Metadata map[string][]string
}
