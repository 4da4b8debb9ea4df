package connstring

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mooringdb/mooring/core/address"
)

// exclusive has the pairs of options that must not both appear, whatever their values.
var exclusive = [][2]string{
	{"tlsInsecure", "tlsAllowInvalidCertificates"},
	{"tlsInsecure", "tlsAllowInvalidHostnames"},
	{"tlsInsecure", "tlsDisableOCSPEndpointCheck"},
	{"tlsInsecure", "tlsDisableCertificateRevocationCheck"},
	{"tlsAllowInvalidCertificates", "tlsDisableOCSPEndpointCheck"},
	{"tlsAllowInvalidCertificates", "tlsDisableCertificateRevocationCheck"},
	{"tlsDisableOCSPEndpointCheck", "tlsDisableCertificateRevocationCheck"},
}

// check returns an error for options that contradict each other, and completes the credential.
func (p *parser) check() error {
	for _, pair := range exclusive {
		if p.has(pair[0]) && p.has(pair[1]) {
			return fmt.Errorf("options %s and %s cannot be used together", pair[0], pair[1])
		}
	}
	if p.isTLSContradictory() {
		return errors.New("options tls and ssl have different values")
	}
	for _, check := range []func() error{
		p.checkTopology, p.checkSRV, p.checkPool, p.checkReadPreference, p.checkProxy,
		p.checkWriteConcern, p.checkCredential,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// isTLSContradictory reports whether the values of tls and ssl differ. Values that are not booleans
// were ignored.
func (p *parser) isTLSContradictory() bool {
	var seen [2]bool
	for _, text := range slices.Concat(p.given["tls"], p.given["ssl"]) {
		if v, ok := booleans[text]; ok && v {
			seen[1] = true
		} else if ok {
			seen[0] = true
		}
	}
	return seen[0] && seen[1]
}

func (p *parser) checkTopology() error {
	c := &p.config
	direct := c.DirectConnection != nil && *c.DirectConnection
	switch {
	case direct && c.SRV:
		return errors.New("directConnection=true cannot be used with mongodb+srv")
	case direct && len(c.Hosts) > 1:
		return errors.New("directConnection=true needs exactly one host")
	case !c.LoadBalanced:
		return nil
	case len(c.Hosts) > 1:
		return errors.New("loadBalanced=true needs exactly one host")
	case c.ReplicaSet != "":
		return errors.New("loadBalanced=true and replicaSet cannot be used together")
	case direct:
		return errors.New("loadBalanced=true and directConnection=true cannot be used together")
	case c.SRVMaxHosts != nil && *c.SRVMaxHosts > 0:
		return errors.New("loadBalanced=true and srvMaxHosts cannot be used together")
	}
	return nil
}

func (p *parser) checkSRV() error {
	c := &p.config
	switch {
	case !c.SRV && (p.has("srvMaxHosts") || p.has("srvServiceName")):
		return errors.New("srvMaxHosts and srvServiceName need mongodb+srv")
	case c.SRVMaxHosts != nil && *c.SRVMaxHosts > 0 && c.ReplicaSet != "":
		return errors.New("srvMaxHosts and replicaSet cannot be used together")
	}
	return nil
}

func (p *parser) checkPool() error {
	c := &p.config
	if c.MinPoolSize == nil {
		return nil
	}
	most := uint64(100)
	if c.MaxPoolSize != nil {
		most = *c.MaxPoolSize
	}
	if most > 0 && *c.MinPoolSize > most {
		return fmt.Errorf("minPoolSize %d is more than maxPoolSize %d", *c.MinPoolSize, most)
	}
	return nil
}

func (p *parser) checkReadPreference() error {
	c := &p.config
	if c.ReadPreference != "" && c.ReadPreference != "primary" {
		return nil
	}
	if slices.ContainsFunc(c.ReadPreferenceTags, func(t TagSet) bool { return len(t) > 0 }) {
		return errors.New("readPreferenceTags cannot be used with readPreference primary")
	}
	if c.MaxStaleness != nil {
		return errors.New("maxStalenessSeconds cannot be used with readPreference primary")
	}
	return nil
}

func (p *parser) checkProxy() error {
	proxy := &p.config.Proxy
	hasPort := p.has("proxyPort")
	switch {
	case proxy.Host == "" && (hasPort || proxy.Username != "" || proxy.Password != ""):
		return errors.New("proxyPort, proxyUsername and proxyPassword need proxyHost")
	case proxy.Host != "" && slices.ContainsFunc(p.config.Hosts, isSocket):
		return errors.New("proxyHost cannot be used with a unix domain socket")
	case (proxy.Username == "") != (proxy.Password == ""):
		return errors.New("proxyUsername and proxyPassword must be set together")
	case proxy.Host != "" && proxy.Port == 0:
		proxy.Port = DefaultProxyPort
	}
	return nil
}

func isSocket(a address.Address) bool { return a.Network() == "unix" }

func (p *parser) checkWriteConcern() error {
	w := p.config.WriteConcern
	if w.Nodes != nil && *w.Nodes == 0 && w.Journal != nil && *w.Journal {
		return errors.New("w=0 and journal=true cannot be used together")
	}
	return nil
}
