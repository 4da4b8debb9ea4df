package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/mooringdb/mooring/service/clientaddr"
)

// Proxied returns the proxies whose word on a client's address counts; nil: none.
func (c *Config) Proxied() *clientaddr.Proxies {
	if len(c.Proxies.Networks) == 0 {
		return nil
	}
	return &c.Proxies
}

// checkProxies refuses options that would have no effect.
func (c *Config) checkProxies(refuse func(option, problem string)) {
	listed := len(c.Proxies.Networks) > 0
	says := c.Proxies.Header != clientaddr.NoHeader
	for _, port := range []struct {
		option, address string
		proxied         bool
	}{
		{"grpc.proxyProtocol", c.GRPC.Address, c.GRPC.Proxied},
		{"rest.proxyProtocol", c.REST.Address, c.REST.Proxied},
	} {
		switch {
		case !port.proxied:
			continue
		case !listed:
			refuse(port.option, "needs proxies.addresses")
		case port.address == "" || strings.HasPrefix(port.address, unixPrefix):
			refuse(port.option, "is only for TCP addresses")
		}
		says = true
	}
	switch {
	case c.Proxies.Header != clientaddr.NoHeader && !listed:
		refuse("proxies.header", "needs proxies.addresses")
	case listed && !says:
		refuse("proxies.addresses", "needs proxies.header, grpc.proxyProtocol or "+
			"rest.proxyProtocol: without one of them, proxies cannot name the client")
	}
}

// parseNetworks reads a list of IP addresses and networks. A network of all addresses is refused:
// every client could name an address of its choice.
func parseNetworks(text string) ([]netip.Prefix, error) {
	items, _ := parseList(text)
	var networks []netip.Prefix
	for _, item := range items {
		n, err := parseNetwork(item)
		if err != nil {
			return nil, err
		}
		networks = append(networks, n)
	}
	return networks, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	bad := fmt.Errorf("%q is not an IP address or a network such as 10.0.0.0/8", text)
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, bad
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	n, err := netip.ParsePrefix(text)
	switch {
	case err != nil || n.Addr().Is4In6():
		return netip.Prefix{}, bad
	case n.Bits() == 0:
		return netip.Prefix{}, fmt.Errorf("%q contains every address: any client could name "+
			"another address as its own", text)
	case n != n.Masked():
		return netip.Prefix{}, fmt.Errorf("%q is not the first address of the network: write %s",
			text, n.Masked())
	}
	return n, nil
}

func parseProxyHeader(text string) (clientaddr.Header, error) {
	if text == none {
		return clientaddr.NoHeader, nil
	}
	for _, h := range clientaddr.Headers() {
		if strings.EqualFold(text, string(h)) {
			return h, nil
		}
	}
	return "", fmt.Errorf("%q is not one of %v or none", text, clientaddr.Headers())
}
