package replica

import (
	"google.golang.org/grpc/credentials"
)

// Credentials are what a replica with those keys connects with.
func Credentials(keys Keys) credentials.TransportCredentials {
	return credentials.NewTLS((&identity{keys: keys}).config())
}

// Connections are how many replicas the node has a connection to, and how many TLS connections there are of both sides.
func (n *Node) Connections() (clients, links int) {
	n.clients.mu.Lock()
	defer n.clients.mu.Unlock()
	n.links.shared.mu.Lock()
	defer n.links.shared.mu.Unlock()
	return len(n.clients.open), len(n.links.shared.open)
}

// SetMaxPushed bounds what all pushes together hold. It is called before Serve.
func (n *Node) SetMaxPushed(bytes int64) { n.pushes.max = bytes }

// Pushed is how many bytes they hold.
func (n *Node) Pushed() int64 { return n.pushes.bytes.Load() }

// MetSelf notes that a call to an address has come to this replica.
func (n *Node) MetSelf(address string) { n.directory.metSelf(address) }

// Serves is what the node says of its deployment.
func (n *Node) Serves() string { return n.serves }

// What the tests go to the limits of.
const (
	MaxClients      = maxClients
	MaxOthers       = maxOthers
	MaxMessageBytes = maxMessageBytes
	IDKey           = idKey
	DeploymentKey   = deploymentKey
	SelfTTL         = selfTTL
)
