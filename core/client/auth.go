package client

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/core/auth/gssapi"
	"github.com/mooringdb/mooring/core/auth/gssapi/krb5"
	"github.com/mooringdb/mooring/core/auth/oidc"
	"github.com/mooringdb/mooring/core/connstring"
)

// authenticator returns what authenticates the connections of a client of cfg, nil if it has no
// credential. It does no I/O.
func authenticator(cfg *connstring.Config, opt Options) (*auth.Authenticator, error) {
	given := connstring.InCode{User: opt.User != nil, TokenProvider: opt.OIDC != nil}
	if err := cfg.CheckAuth(given); err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
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
	case "MONGODB-X509":
		return auth.X509(user), checkX509(&cfg.TLS, cfg.UseTLS())
	}
	m, err := mechanism(cfg, opt)
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	return auth.SASL(cfg.AuthSource, user, m), nil
}

// mechanism returns the SASL mechanism that cfg names.
func mechanism(cfg *connstring.Config, opt Options) (auth.Mechanism, error) {
	switch cfg.AuthMechanism {
	case "SCRAM-SHA-1":
		return auth.SCRAMSHA1(), nil
	case "SCRAM-SHA-256":
		return auth.SCRAMSHA256(), nil
	case "PLAIN":
		return auth.Plain{}, nil
	case "GSSAPI":
		return gssapiMechanism(cfg, opt)
	case "MONGODB-AWS":
		return aws.New(aws.NewSource(opt.AWS)), nil
	case "MONGODB-OIDC":
		return oidcMechanism(cfg, opt)
	}
	return nil, fmt.Errorf("there is no authMechanism %q", cfg.AuthMechanism)
}

// oidcMechanism returns MONGODB-OIDC with the application's provider, or that of the environment
// in the properties.
func oidcMechanism(cfg *connstring.Config, opt Options) (auth.Mechanism, error) {
	if opt.OIDC != nil {
		return oidc.New(opt.OIDC), nil
	}
	environment, _ := cfg.Property("ENVIRONMENT")
	resource, _ := cfg.Property("TOKEN_RESOURCE")
	p, err := oidc.Environment{Name: environment, Resource: resource}.Provider()
	if err != nil {
		return nil, err
	}
	return oidc.New(p), nil
}

func gssapiMechanism(cfg *connstring.Config, opt Options) (auth.Mechanism, error) {
	property := func(name string) string {
		v, _ := cfg.Property(name)
		return v
	}
	canonicalize, err := gssapi.ParseCanonicalization(property("CANONICALIZE_HOST_NAME"))
	if err != nil {
		return nil, err
	}
	initiator := opt.Kerberos
	if initiator == nil {
		initiator = krb5.New(nil)
	}
	return gssapi.New(gssapi.Config{
		ServiceName:  property("SERVICE_NAME"),
		ServiceRealm: property("SERVICE_REALM"),
		ServiceHost:  property("SERVICE_HOST"),
		Canonicalize: canonicalize,
	}, initiator), nil
}

// checkX509 refuses what cannot work: the certificate is the credential.
func checkX509(opt *connstring.TLS, encrypts bool) error {
	switch {
	case !encrypts:
		return errors.New("connection string: authMechanism MONGODB-X509 needs tls=true")
	case opt.CertificateKeyFile == "":
		return errors.New("connection string: authMechanism MONGODB-X509 needs a client " +
			"certificate " +
			"(tlsCertificateKeyFile)")
	}
	return nil
}

// authWarnings returns what should be said about a credential that works.
func authWarnings(cfg *connstring.Config) []connstring.Warning {
	sent, ok := map[string]string{
		"PLAIN": "password", "MONGODB-OIDC": "access token",
	}[cfg.AuthMechanism]
	if !ok || cfg.UseTLS() {
		return nil
	}
	return []connstring.Warning{{
		Option: "authMechanism",
		Problem: fmt.Sprintf("%s sends the %s as it is, and connections are not encrypted: set "+
			"tls=true.",
			cfg.AuthMechanism, sent),
	}}
}
