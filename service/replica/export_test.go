package replica

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
)

// Credentials returns the credentials with which a replica with those keys connects.
func Credentials(keys Keys) credentials.TransportCredentials {
	return credentials.NewTLS((&identity{keys: keys}).config())
}

// Connections returns the number of replicas to which the transport has a connection, and the
// number of TLS connections of both sides.
func (t *Transport) Connections() (clients, links int) {
	t.connections.mu.Lock()
	defer t.connections.mu.Unlock()
	t.links.shared.mu.Lock()
	defer t.links.shared.mu.Unlock()
	return len(t.connections.open), len(t.links.shared.open)
}

// SetMaxPushed bounds the bytes that all pushes together hold. It is called before Serve.
func (t *Transport) SetMaxPushed(bytes int64) { t.pushes.max = bytes }

// Pushed returns how many bytes all pushes hold.
func (t *Transport) Pushed() int64 { return t.pushes.bytes.Load() }

// MetSelf records that a call to an address has come to this replica.
func (t *Transport) MetSelf(address string) { t.directory.metSelf(address) }

// Serves returns the id of the transport's deployment.
func (t *Transport) Serves() string { return t.serves }

// These are the limits that the tests reach.
const (
	MaxConnected    = maxConnected
	MaxOthers       = maxOthers
	MaxHeard        = maxHeard
	MaxMessageBytes = maxMessageBytes
	IDKey           = idKey
	DeploymentKey   = deploymentKey
	ForwardingKey   = forwardingKey
	SelfTTL         = selfTTL
)

// SetClock sets the transport's clock. It is called before Bind.
func (t *Transport) SetClock(now func() time.Time) { t.now = now }

// SetLeaveTime sets how long the transport may take to tell the others that it ends. It is called
// before Close.
func (t *Transport) SetLeaveTime(d time.Duration) { t.leaveTime = d }

// Learn adds the address of another replica.
func (t *Transport) Learn(address string) { t.directory.learn(address, false) }

// Report adds the address of another replica that a replica has reported.
func (t *Transport) Report(address string) { t.directory.learn(address, true) }

// Leave records that the replica at an address has left.
func (t *Transport) Leave(address string) { t.directory.leave(address) }

// Directory returns how many addresses the transport has met itself at, learned, and seen leave.
func (t *Transport) Directory() (met, heard, left int) {
	d := t.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.met), len(d.heard), len(d.left)
}

// HasLeft reports whether the replica at an address has left in order.
func (t *Transport) HasLeft(address string) bool { return t.directory.hasLeft(address) }

// BindTo makes the transport listen on l and reach other replicas with dial. It replaces Bind.
func (t *Transport) BindTo(
	l net.Listener, dial func(ctx context.Context, network, address string) (net.Conn, error),
) {
	t.connections.dial = dial
	t.bindTo(l)
}

// Convert reads a message as the transport does, and writes it again.
func Convert(m proto.Message) (proto.Message, error) {
	var r reader
	var again proto.Message
	switch m := m.(type) {
	case *replicav1.Record:
		again = newRecord(r.record(m))
	case *replicav1.ListRequest:
		again = newQuery(query(m))
	case *replicav1.Info:
		again = newInfo(readInfo(m))
	}
	return again, r.err
}
