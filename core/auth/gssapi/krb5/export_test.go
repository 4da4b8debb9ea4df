package krb5

import (
	"time"

	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/mooringdb/mooring/core/auth/gssapi"
)

var (
	Frame   = frame
	Unframe = unframe
)

// NewContext returns a context that has sent its request, under a session key.
func NewContext(key types.EncryptionKey, sent types.Authenticator) gssapi.SecurityContext {
	return &securityContext{ticket: &ticket{key: key}, sent: sent}
}

// Keep caches a ticket for the service of a host, as Initiate does.
func (i *Initiator) Keep(host string, expires time.Time) {
	i.store(gssapi.Service{Host: host}, &ticket{expires: expires})
}

// Kept returns the number of cached tickets.
func (i *Initiator) Kept() int { return len(i.tickets) }
