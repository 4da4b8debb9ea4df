package fakemongo

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
)

// BalancedConfig says what the services behind a load balancer are like. The zero value is reached
// over net.Pipe.
type BalancedConfig struct {
	Services int // two if zero
	// Services listen on the loopback interface, behind a balancer of the test's own.
	TCP bool
	// A client that does not ask for loadBalanced is refused, as on the load-balancer port of a
	// mongos.
	Strict  bool
	Discard bool // commands are not recorded, and inserted documents not kept
}

// Balanced represents a deployment behind a load balancer: services that look like mongoses, say a
// serviceId of their own where hello asks for loadBalanced, and know no cursors but their own; and
// a balancer that leads each connection to the next service in turn. All methods may be called at
// any time.
type Balanced struct {
	services []*Service
	next     chan int // holds the number of the service whose turn it is
}

// Service holds one server behind the load balancer. The methods of its Server work as usual:
// handlers, cut connections, SetDown.
type Service struct {
	*Server
	strict bool
	id     bson.ObjectID // guarded by Server.mu
}

// NewBalanced makes the services. They end with the test.
func NewBalanced(t testing.TB, cfg BalancedConfig) *Balanced {
	if cfg.Services == 0 {
		cfg.Services = 2
	}
	b := &Balanced{next: make(chan int, 1)}
	b.next <- 0
	for i := range cfg.Services {
		newServer := NewServer
		if cfg.TCP {
			newServer = NewTCPServer
		}
		s := &Service{Server: newServer(t, nil), strict: cfg.Strict, id: bson.NewObjectID()}
		s.discard = cfg.Discard
		s.lastCursor = firstCursor(i)
		s.Handle("hello", s.hello)
		b.services = append(b.services, s)
	}
	return b
}

// firstCursor has each server of a deployment name its cursors differently, so that none is taken
// for another's.
func firstCursor(server int) int64 { return int64(server+1) << 40 }

// Services returns all services, in the order in which the balancer chooses them.
func (b *Balanced) Services() []*Service { return b.services }

// Service returns the one of that number, counted from 0.
func (b *Balanced) Service(i int) *Service { return b.services[i] }

// Address returns the balancer's, for Dial; over TCP there is no balancer there.
func (b *Balanced) Address() address.Address { return "balancer:27017" }

// URI returns a connection string for the balancer; options are what follows loadBalanced=true,
// with their ampersand.
func (b *Balanced) URI(options string) string {
	return "mongodb://" + string(b.Address()) + "/?loadBalanced=true" + options
}

// Dial opens a connection over net.Pipe to the service whose turn it is, or the next that takes
// it. It has the signature of conn.Config's Dialer.
func (b *Balanced) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	first := <-b.next
	b.next <- (first + 1) % len(b.services)
	err := errors.New("no service")
	for i := range b.services {
		var nc net.Conn
		if nc, err = b.services[(first+i)%len(b.services)].Dial(ctx, network, addr); err == nil {
			return nc, nil
		}
	}
	return nil, err
}

// SetDocuments makes docs the contents of a collection, "database.collection", whichever service
// is asked.
func (b *Balanced) SetDocuments(namespace string, docs ...bson.Raw) {
	for _, s := range b.services {
		s.SetDocuments(namespace, docs...)
	}
}

// Numbered returns n documents {_id: first, first+1, …} with int32 ids, each with a filler of the
// given size.
func Numbered(first, n, filler int) []bson.Raw {
	text := string(make([]byte, filler))
	docs := make([]bson.Raw, n)
	for i := range docs {
		docs[i] = bson.NewBuilder(nil).Int32("_id", int32(first+i)).String("filler", text).Finish()
	}
	return docs
}

// OpenCursors counts those of all services.
func (b *Balanced) OpenCursors() int {
	n := 0
	for _, s := range b.services {
		n += s.OpenCursors()
	}
	return n
}

// ID returns what the service calls itself in hello.
func (s *Service) ID() bson.ObjectID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Kill ends the service as a crash does. It closes the listener and every connection, and drops
// every cursor.
func (s *Service) Kill() {
	s.mu.Lock()
	l := s.listener
	s.listener = nil
	clear(s.cursors)
	s.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	s.SetDown(true)
}

// Restart starts a service that was killed anew: at the same address, with another serviceId.
func (s *Service) Restart(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	s.id = bson.NewObjectID()
	s.mu.Unlock()
	s.SetDown(false)
	if s.listens {
		if err := s.listen(string(s.addr)); err != nil {
			t.Fatalf("fakemongo: %v", err)
		}
	}
}

func (s *Service) hello(cmd *Command) Reply {
	asked, _ := field(cmd.Body, "loadBalanced").Bool()
	if !asked && s.strict {
		return Error(354, "LoadBalancerSupportMismatch",
			"The server is being accessed through a load balancer, "+
				"but this driver does not have load balancing enabled")
	}
	return Hello(cmd, func(b *bson.Builder) {
		b.String("msg", "isdbgrid")
		if asked {
			b.ObjectID("serviceId", s.ID())
		}
	})
}
