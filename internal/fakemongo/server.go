// Package fakemongo is a scripted MongoDB server for tests: over net.Pipe, so that it works inside
// testing/synctest, or over TCP on the loopback interface. A test says what each command is
// answered with, or that it is not: hung, delayed, cut off in the middle, answered with garbage.
// What a test does not say behaves like a small standalone server with collections in memory,
// which never filters or sorts. Its framing is fakemongo/wire's, independent of core/wire, so that
// the two check each other.
package fakemongo

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
)

// Handlers represents the answers to commands by name. A name that is absent has the default
// answer, if there is one, else CommandNotFound. "hello" also answers "isMaster" and "ismaster"
// where these are absent.
type Handlers map[string]Handler

// Handler answers one command. It is called on the connection's goroutine and may block.
type Handler func(*Command) Reply

// Server answers as a script says. All methods may be called at any time.
type Server struct {
	addr address.Address

	// These are set before the first connection.

	discard  bool     // commands are not recorded, inserted documents not kept
	listens  bool     // …at addr
	prepared Prepared // nil: the handlers answer

	transactions *transactions // shared by the members of a replica set; nil: the handlers know

	large sync.Mutex // held while a piece of a large text is written: see writeInTurns
	wg    sync.WaitGroup
	done  chan struct{} // closed when the server is closed

	mu          sync.Mutex
	closed      bool
	down        bool
	tls         *tls.Config
	handlers    Handlers
	intercept   func(cmd *Command, next Handler) Reply // nil: none
	guard       *guard                                 // nil: no login is needed
	listener    net.Listener
	conns       map[net.Conn]struct{}
	accepted    int
	commands    []Command
	collections map[string][]bson.Raw
	cursors     map[int64]*cursor
	lastCursor  int64
	killed      int
}

// NewServer makes a server that is reached through Dial only. It ends with the test.
func NewServer(t testing.TB, handlers Handlers) *Server {
	s := newServer(handlers)
	t.Cleanup(s.Close)
	return s
}

// NewTCPServer makes a server that also listens on a free port of 127.0.0.1.
func NewTCPServer(t testing.TB, handlers Handlers) *Server {
	s := NewServer(t, handlers)
	if err := s.listen("127.0.0.1:0"); err != nil {
		t.Fatalf("fakemongo: %v", err)
	}
	return s
}

// Listen makes a server for programs that last: it records no commands and keeps no documents. It
// listens at host:port, or at the path of a Unix domain socket. The caller closes it.
func Listen(addr string, handlers Handlers) (*Server, error) {
	s := newServer(handlers)
	s.discard = true
	return s, s.listen(addr)
}

func newServer(handlers Handlers) *Server {
	s := &Server{
		addr: "fakemongo:27017", done: make(chan struct{}), transactions: newTransactions(),
		handlers:    Handlers{},
		conns:       map[net.Conn]struct{}{},
		collections: map[string][]bson.Raw{},
		cursors:     map[int64]*cursor{},
	}
	maps.Copy(s.handlers, handlers)
	return s
}

// listen accepts connections at addr until the listener is closed.
func (s *Server) listen(addr string) error {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.listens = l, true
	s.addr = address.Address(l.Addr().String())
	s.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // the client has gone, or there are too many open files
			}
			if !s.start(nc) {
				_ = nc.Close()
			}
		}
	})
	return nil
}

// Address returns the address of the server. It is invented if the server is reached through Dial.
func (s *Server) Address() address.Address { return s.addr }

// URI returns a connection string for the server.
func (s *Server) URI() string { return "mongodb://" + string(s.addr) + "/?directConnection=true" }

// Dial opens a connection over net.Pipe, whatever the address. It has the signature of
// conn.Config's Dialer.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	if !s.start(server) {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}
	}
	return client, nil
}

// Handle replaces the answer to a command from now on; nil restores the default.
func (s *Server) Handle(name string, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h == nil {
		delete(s.handlers, name)
		return
	}
	s.handlers[name] = h
}

// Intercept has f answer every command from now on, hello included; next is what would have
// answered it.
func (s *Server) Intercept(f func(cmd *Command, next Handler) Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// UseTLS encrypts connections that are opened from now on.
func (s *Server) UseTLS(conf *tls.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tls = conf
}

// SetDown makes the server refuse connections, and cuts those that exist, or lets it accept them
// again.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down {
		s.CutConnections()
	}
}

// CutConnections closes every open connection from the server's side.
func (s *Server) CutConnections() {
	s.mu.Lock()
	conns := make([]net.Conn, 0, len(s.conns))
	for nc := range s.conns {
		conns = append(conns, nc)
	}
	s.mu.Unlock()
	for _, nc := range conns {
		_ = nc.Close()
	}
}

// Commands returns the commands so far, in order, or only those with the given names.
func (s *Server) Commands(names ...string) []Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(names) == 0 {
		return slices.Clone(s.commands)
	}
	var found []Command
	for _, c := range s.commands {
		if slices.Contains(names, c.Name) {
			found = append(found, c)
		}
	}
	return found
}

// OpenConnections counts the connections that are open now.
func (s *Server) OpenConnections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// AcceptedConnections counts all connections that were ever opened.
func (s *Server) AcceptedConnections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Close cuts everything and waits for the server's goroutines. The test's end calls it.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	l := s.listener
	s.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	s.CutConnections()
	s.wg.Wait()
}

// start serves nc on a goroutine of its own, unless the server is closed or down.
func (s *Server) start(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.down {
		return false
	}
	s.accepted++
	id := s.accepted
	s.conns[nc] = struct{}{}
	conf := s.tls
	s.wg.Go(func() {
		defer func() {
			_ = nc.Close()
			s.mu.Lock()
			delete(s.conns, nc)
			s.mu.Unlock()
		}()
		spoken := nc
		if conf != nil {
			spoken = tls.Server(nc, conf)
		}
		if s.prepared != nil {
			s.servePrepared(spoken)
			return
		}
		s.serve(spoken, id)
	})
	return true
}

func (s *Server) serve(nc net.Conn, id int) {
	for {
		cmd, err := readCommand(nc)
		if err != nil {
			return
		}
		cmd.Connection = id
		if encrypted, ok := nc.(*tls.Conn); ok {
			state := encrypted.ConnectionState()
			cmd.TLS = &state
		}
		reply := s.answer(cmd)
		if !reply.play(s, nc, cmd) {
			return
		}
	}
}

func (s *Server) answer(cmd *Command) Reply {
	s.mu.Lock()
	if !s.discard {
		s.commands = append(s.commands, *cmd)
	}
	h, ok := s.handlers[cmd.Name]
	if !ok && isHello(cmd.Name) {
		h, ok = s.handlers["hello"]
	}
	if !ok {
		h = s.Default
	}
	intercept, guard := s.intercept, s.guard
	s.mu.Unlock()
	if s.transactions != nil {
		handler := h
		h = func(cmd *Command) Reply { return s.transactions.answer(cmd, handler) }
	}
	if guard != nil {
		handler := h
		h = func(cmd *Command) Reply { return guard.answer(cmd, handler) }
	}
	if intercept != nil {
		return intercept(cmd, h)
	}
	return h(cmd)
}

func isHello(name string) bool {
	return name == "hello" || name == "isMaster" ||
		name == "ismaster"
}
