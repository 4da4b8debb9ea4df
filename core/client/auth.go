package client

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/core/auth/oidc"
	"github.com/mooringdb/mooring/core/connstring"
)

// authenticator returns what authenticates the connections of a client of cfg, nil if it has no
// credential. It does no I/O.
func authenticator(cfg *connstring.Config, opt Options) (*auth.Authenticator, error) {
	if !cfg.HasCredential {
		return nil, nil
	}
	user := opt.User
	if user == nil {
		user = auth.FixedUser(auth.User{Name: cfg.Username, Password: cfg.Password})
	}
	switch cfg.AuthMechanism {
	case "":
		return auth.Negotiate(cfg.AuthSource, user), nil
	case "SCRAM-SHA-1":
		return auth.SASL(cfg.AuthSource, user, auth.SCRAMSHA1()), nil
	case "SCRAM-SHA-256":
		return auth.SASL(cfg.AuthSource, user, auth.SCRAMSHA256()), nil
	case "PLAIN":
		return auth.SASL(cfg.AuthSource, user, auth.Plain{}), nil
	case "MONGODB-AWS":
		return auth.SASL(cfg.AuthSource, nil, aws.New(aws.NewSource(aws.Config{}))), nil
	case "MONGODB-OIDC":
		m, err := oidcMechanism(cfg)
		if err != nil {
			return nil, err
		}
		return auth.SASL(cfg.AuthSource, user, m), nil
	case "MONGODB-X509":
		return auth.X509(user), checkX509(&cfg.TLS, cfg.UseTLS())
	}
	return nil, &NotBuiltError{Option: "authMechanism=" + cfg.AuthMechanism}
}

// oidcMechanism returns MONGODB-OIDC in the environment that the properties name.
func oidcMechanism(cfg *connstring.Config) (*oidc.Mechanism, error) {
	environment, _ := cfg.Property("ENVIRONMENT")
	resource, _ := cfg.Property("TOKEN_RESOURCE")
	p, err := oidc.Environment{Name: environment, Resource: resource}.Provider()
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	return oidc.New(p), nil
}

// checkX509 refuses what cannot work: the certificate is the credential.
func checkX509(opt *connstring.TLS, encrypts bool) error {
	switch {
	case !encrypts:
		return errors.New("connection string: authMechanism MONGODB-X509 needs tls=true")
	case opt.CertificateKeyFile == "":
		return errors.New("connection string: authMechanism MONGODB-X509 needs a client certificate " +
			"(tlsCertificateKeyFile)")
	}
	return nil
}

// authWarnings returns what should be said about a credential that works.
func authWarnings(cfg *connstring.Config) []connstring.Warning {
	if cfg.HasCredential && cfg.AuthMechanism == "PLAIN" && !cfg.UseTLS() {
		return []connstring.Warning{{
			Option:  "authMechanism",
			Problem: "PLAIN sends the password as it is, and connections are not encrypted: set tls=true.",
		}}
	}
	return nil
}
