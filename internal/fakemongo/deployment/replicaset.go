package deployment

import (
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// freeze keeps a secondary from becoming primary, until it is called with 0 seconds.
func (h *host) freeze(cmd *request) (reply, error) {
	if h.deployment.topology != ReplicaSet {
		return reply{}, failure.NoReplicationEnabled.Errorf("not running with --replSet")
	}
	if role, _ := h.Role(); role == fakemongo.Primary {
		return reply{}, failure.NotSecondary.Errorf(
			"cannot freeze node when primary or running for election")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen = integer(cmd.Body, "replSetFreeze") > 0
	return ok(nil)
}

// stepDown makes the primary a secondary. The first other member that is not frozen becomes
// primary; if there is none, the set is left without one.
func (h *host) stepDown(*request) (reply, error) {
	if h.deployment.topology != ReplicaSet {
		return reply{}, failure.NoReplicationEnabled.Errorf("not running with --replSet")
	}
	if role, _ := h.Role(); role != fakemongo.Primary {
		return reply{}, failure.NotWritablePrimary.Errorf("not primary so can't step down")
	}
	for _, other := range h.deployment.hosts {
		if other != h && !other.isFrozen() {
			other.Elect()
			return ok(nil)
		}
	}
	h.deployment.cluster.StepDown()
	return ok(nil)
}

func (h *host) isFrozen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.frozen
}
