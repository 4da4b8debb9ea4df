package connstring

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	external    = "$external"
	serviceName = "SERVICE_NAME"
)

// mechanism states what one authentication mechanism needs.
type mechanism struct {
	needsUser, needsPassword, refusesPassword bool
	environment                               bool // credentials come from the environment only
	external                                  bool // the source is $external and nothing else
	source                                    string
	properties                                []string
	// check checks the values of the properties.
	check func(c *Config, given InCode) error
}

var mechanisms = map[string]mechanism{
	"":              {needsUser: true, needsPassword: true, source: "admin"},
	"SCRAM-SHA-1":   {needsUser: true, needsPassword: true, source: "admin"},
	"SCRAM-SHA-256": {needsUser: true, needsPassword: true, source: "admin"},
	"PLAIN":         {needsUser: true, needsPassword: true, source: external},
	"GSSAPI": {
		needsUser: true, external: true,
		properties: []string{
			serviceName, "SERVICE_REALM", "SERVICE_HOST",
			"CANONICALIZE_HOST_NAME",
		},
		check: checkGSSAPI,
	},
	"MONGODB-X509": {refusesPassword: true, external: true},
	"MONGODB-AWS":  {environment: true, external: true},
	"MONGODB-OIDC": {
		refusesPassword: true, external: true,
		properties: []string{"ENVIRONMENT", "TOKEN_RESOURCE"}, check: checkOIDC,
	},
}

func (p *parser) checkCredential() error {
	c := &p.config
	c.HasCredential = c.HasCredential || c.AuthMechanism != ""
	if !c.HasCredential {
		return nil
	}
	m := mechanisms[c.AuthMechanism]
	name := named(c.AuthMechanism)
	switch {
	case m.environment && (c.Username != "" || c.HasPassword):
		return fmt.Errorf("%s takes neither a user name nor a password: %s", name, fromEnvironment)
	case m.needsUser && c.Username == "":
		return fmt.Errorf("%s needs a user name", name)
	case m.refusesPassword && c.HasPassword:
		return fmt.Errorf("%s takes no password", name)
	case m.external && c.AuthSource != "" && c.AuthSource != external:
		return fmt.Errorf("%s needs the authSource %s", name, external)
	case c.AuthSource == "":
		c.AuthSource = c.defaultSource()
	}
	if _, ok := c.Property(serviceName); !ok && c.AuthMechanism == "GSSAPI" {
		c.AuthMechanismProperties = append(slices.Clip(c.AuthMechanismProperties),
			Property{serviceName, "mongodb"})
	}
	return nil
}

// defaultSource returns the database of the user if authSource does not name it.
func (c *Config) defaultSource() string {
	m := mechanisms[c.AuthMechanism]
	switch {
	case m.external:
		return external
	case c.Database != "":
		return c.Database
	}
	return m.source
}

// InCode tells which parts of a credential a program sets in code instead of in the connection
// string.
type InCode struct {
	User          bool // a user with a password
	TokenProvider bool // a provider of MONGODB-OIDC's access tokens
}

// CheckAuth returns an error if the mechanism lacks a password that it needs, or if its properties
// are wrong. Call it before you connect: Parse does not, since the specification's tests expect it
// to take such strings.
func (c *Config) CheckAuth(given InCode) error {
	if given.TokenProvider && c.AuthMechanism != "MONGODB-OIDC" {
		return errors.New("a provider of access tokens needs authMechanism=MONGODB-OIDC")
	}
	if !c.HasCredential {
		return nil
	}
	m := mechanisms[c.AuthMechanism]
	if m.needsPassword && !given.User && !c.HasPassword && c.Password == "" {
		return fmt.Errorf("%s needs a password", named(c.AuthMechanism))
	}
	for _, p := range c.AuthMechanismProperties {
		if why := c.refused(p); why != "" {
			return fmt.Errorf("option authMechanismProperties: %s takes no %s: %s",
				c.AuthMechanism, strings.ToUpper(p.Name), why)
		}
		isName := func(name string) bool { return strings.EqualFold(name, p.Name) }
		if !slices.ContainsFunc(m.properties, isName) {
			return fmt.Errorf("option authMechanismProperties: %s takes no property %s",
				named(c.AuthMechanism), p.Name)
		}
	}
	if m.check == nil {
		return nil
	}
	if err := m.check(c, given); err != nil {
		return fmt.Errorf("option authMechanismProperties: %s %w", named(c.AuthMechanism), err)
	}
	return nil
}

const fromEnvironment = "its credentials come from the environment, not from the connection string"

// refused returns why the mechanism refuses a property that its users may expect, or "".
func (c *Config) refused(p Property) string {
	switch {
	case mechanisms[c.AuthMechanism].environment && strings.EqualFold(p.Name, "AWS_SESSION_TOKEN"):
		return fromEnvironment
	case c.AuthMechanism == "MONGODB-OIDC" && strings.EqualFold(p.Name, "ALLOWED_HOSTS"):
		return "it belongs to the human flow, which is not supported"
	}
	return ""
}

func named(mechanism string) string {
	if mechanism == "" {
		return "authentication"
	}
	return mechanism
}

func checkGSSAPI(c *Config, _ InCode) error {
	v, ok := c.Property("CANONICALIZE_HOST_NAME")
	if ok && !slices.Contains([]string{"true", "false", "none", "forward", "forwardAndReverse"},
		v) {
		return fmt.Errorf("does not support the CANONICALIZE_HOST_NAME %q", v)
	}
	return nil
}

func checkOIDC(c *Config, given InCode) error {
	environment, hasEnvironment := c.Property("ENVIRONMENT")
	resource, hasResource := c.Property("TOKEN_RESOURCE")
	needsResource := environment == "azure" || environment == "gcp"
	switch {
	case given.TokenProvider && (hasEnvironment || hasResource):
		return errors.New("takes neither ENVIRONMENT nor TOKEN_RESOURCE with a provider of " +
			"access tokens")
	case given.TokenProvider:
		return nil
	case environment == "":
		return errors.New("needs the property ENVIRONMENT")
	case !needsResource && environment != "test" && environment != "k8s":
		return fmt.Errorf("does not support the ENVIRONMENT %q", environment)
	case needsResource && resource == "":
		return fmt.Errorf("needs the property TOKEN_RESOURCE for ENVIRONMENT %s", environment)
	case !needsResource && hasResource:
		return fmt.Errorf("takes no TOKEN_RESOURCE for ENVIRONMENT %s", environment)
	case environment == "test" && c.Username != "":
		return errors.New("takes no user name for ENVIRONMENT test")
	}
	return nil
}
