// Package injections sends what attackers put into requests, lists of the kind that OWASP
// describes, to every place of REST, gRPC and the Data API. It judges four things: no answer is a
// fault of the gateway, the gateway lives, no answer shows what another tenant owns, and nothing
// outside the tenant's own database has changed. It does not tell tenants apart by counts or
// errors, which lab/tenant does.
package injections
