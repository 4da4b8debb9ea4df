package auth

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	external = "$external"
	x509Name = "MONGODB-X509"
)

// X509 returns an authenticator by the client certificate of the TLS connection (MONGODB-X509). The
// name of a user is sent if there is one; else the server takes it from the certificate.
func X509(user UserSource) *Authenticator { return newAuthenticator(external, user, x509Login{}) }

type x509Login struct{}

func (x509Login) mechanism() string { return x509Name }

func (x509Login) hello(b *bson.Builder, to Target) (exchange, error) {
	x := x509(to.User.Name)
	b.OpenDocument("speculativeAuthenticate").AppendElements(x.command()).
		String("db", external).Close()
	return x, nil
}

func (l x509Login) choose(bson.Raw, bool, Target) (login, error) { return l, nil }

func (x509Login) begin(_ context.Context, to Target) (exchange, error) {
	return x509(to.User.Name), nil
}

func (x509Login) refused(exchange, error) bool { return false }

func (x509Login) discloses() bool { return false }

// x509 holds the user's name and builds the one command of MONGODB-X509.
type x509 string

func (x x509) first() (bson.Raw, error) { return x.command(), nil }

func (x509) next(bson.Raw) (bson.Raw, error) { return nil, nil }

func (x x509) command() bson.Raw {
	b := bson.NewBuilder(nil).Int32("authenticate", 1).String("mechanism", x509Name)
	if x != "" {
		b.String("user", string(x))
	}
	return b.Finish()
}
