// Package protocols has judges of the gateway's listeners that others wrote, as tests: the
// conformance suite of Connect, the interoperability cases of gRPC, and h2spec. They run against
// the listeners of service/server, with service/front and service/web on the port of REST, and
// services of the suites in place of the gateway's own. tools/protocols pins the suites.
package protocols
