package krb5

import (
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
