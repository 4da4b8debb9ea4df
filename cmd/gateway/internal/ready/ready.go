// Package ready knows whether the gateway can serve: the deployment has a server that can be
// selected, and the gateway is not stopping. It sets the status of the gRPC health service and
// answers /readyz. It does no I/O: it uses the driver's events.
package ready

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// State holds the gateway's readiness. All its methods may be called at any time.
type State struct {
	health   *health.Server
	services []string
	login    func() error

	// mu guards the fields below.
	mu       sync.Mutex
	usable   bool // the deployment has a server that can be selected
	stopping bool
}

// New returns a state that is not ready. It keeps the health of the services, and of the gateway
// as a whole, in server.
func New(server *health.Server, services ...string) *State {
	s := &State{health: server, services: append([]string{""}, services...), login: func() error {
		return nil
	}}
	s.publishLocked()
	return s
}

// SetLogin makes the gateway ready only while login returns nil. It is called once, before any
// other method.
func (s *State) SetLogin(login func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.login = login
}

// Changed calls login again and updates the readiness.
func (s *State) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked()
}

// Sink returns a sink for the events of the deployment.
func (s *State) Sink() *event.Sink {
	return &event.Sink{TopologyDescriptionChanged: func(e event.TopologyDescriptionChanged) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.usable = usable(e.New)
		s.publishLocked()
	}}
}

// Stop makes the gateway not ready for good.
func (s *State) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	s.publishLocked()
}

// Stopping reports whether Stop has been called.
func (s *State) Stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// Ready returns the reason that the gateway is not ready, or nil.
func (s *State) Ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reasonLocked()
}

func (s *State) reasonLocked() error {
	err := s.login()
	_, refused := errors.AsType[*auth.Error](err)
	switch {
	case s.stopping:
		return errStopping
	case refused: // comes first: it makes servers unknown, and so explains the next case
		return err
	case !s.usable:
		return errNoServer
	}
	return err
}

// The reasons that the gateway is not ready.
var (
	errStopping = &rpcerr.Error{
		Reason: rpcerr.ShuttingDown, Retry: rpcerr.SameRequest,
		Message: "the gateway is shutting down",
	}
	errNoServer = errors.New("no MongoDB server can be selected")
)

func (s *State) publishLocked() {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if s.reasonLocked() == nil {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range s.services {
		s.health.SetServingStatus(name, status)
	}
}

// usable reports whether the deployment has a server for at least some operation. A direct
// connection accepts any.
func usable(t description.Topology) bool {
	if t.CompatibilityError != nil {
		return false
	}
	return slices.ContainsFunc(t.Servers, func(s *description.Server) bool {
		return s.Kind.IsDataBearing() || t.Kind == description.KindSingle && s.IsAvailable()
	})
}
