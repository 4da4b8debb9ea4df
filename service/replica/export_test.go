package replica

import (
	"time"

	"google.golang.org/grpc/credentials"
)

// Credentials are what a replica with those keys connects with.
func Credentials(keys Keys) credentials.TransportCredentials {
	return credentials.NewTLS((&identity{keys: keys}).config())
}

// Connections returns how many replicas the transport has a connection to, and how many TLS connections there are of both sides.
func (t *Transport) Connections() (clients, links int) {
	t.connections.mu.Lock()
	defer t.connections.mu.Unlock()
	t.links.shared.mu.Lock()
	defer t.links.shared.mu.Unlock()
	return len(t.connections.open), len(t.links.shared.open)
}

// SetMaxPushed bounds what all pushes together hold. It is called before Serve.
func (t *Transport) SetMaxPushed(bytes int64) { t.pushes.max = bytes }

// Pushed is how many bytes they hold.
func (t *Transport) Pushed() int64 { return t.pushes.bytes.Load() }

// MetSelf notes that a call to an address has come to this replica.
func (t *Transport) MetSelf(address string) { t.directory.metSelf(address) }

// Serves is what the transport says of its deployment.
func (t *Transport) Serves() string { return t.serves }

// What the tests go to the limits of.
const (
	MaxConnected    = maxConnected
	MaxOthers       = maxOthers
	MaxMessageBytes = maxMessageBytes
	IDKey           = idKey
	DeploymentKey   = deploymentKey
	SelfTTL         = selfTTL
)

// SetClock sets the transport's clock. It is called before Bind.
func (t *Transport) SetClock(now func() time.Time) { t.now = now }

// Learn notes the address of another replica.
func (t *Transport) Learn(address string) { t.directory.learn(address) }
