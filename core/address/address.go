// Package address holds a normalized endpoint of a deployment as a comparable value. It resolves no
// name and opens no socket.
package address

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// DefaultPort is the port of an address that names none.
const DefaultPort = 27017

// Address names an endpoint in its one normal form, so that == compares endpoints: "host:port" in
// lower case with the port always present, "[ip]:port" for IPv6, or the path of a Unix domain
// socket unchanged. The zero value is not an address. Parse makes one; a conversion from string
// skips the checks.
type Address string

// Parse returns the address of a host with an optional port, or of a Unix domain socket, whose
// path has a slash and ends in ".sock".
func Parse(text string) (Address, error) {
	if text == "" {
		return "", fmt.Errorf("address is empty")
	}
	if isSocketPath(text) {
		return Address(text), nil
	}
	if strings.Contains(text, "/") {
		return "", fmt.Errorf("unsupported host %q: the path of a unix domain socket must end "+
			"in .sock",
			text)
	}
	host, port, err := split(text)
	if err != nil {
		return "", err
	}
	return Address(host + ":" + port), nil
}

// Network returns "unix" for a socket path and "tcp" for any other address, as net.Dial takes it.
func (a Address) Network() string {
	if isSocketPath(string(a)) {
		return "unix"
	}
	return "tcp"
}

// Host returns the name or IP address without port and brackets, or the whole path of a socket.
func (a Address) Host() string {
	host, _ := a.hostPort()
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// Port returns the port, or "" for a socket.
func (a Address) Port() string {
	_, port := a.hostPort()
	return port
}

func (a Address) String() string { return string(a) }

func (a Address) hostPort() (host, port string) {
	if a.Network() == "unix" {
		return string(a), ""
	}
	i := strings.LastIndexByte(string(a), ':')
	if i < 0 {
		return string(a), ""
	}
	return string(a[:i]), string(a[i+1:])
}

// isSocketPath reports whether the text is a path. It needs a slash, since a host may be called
// x.sock.
func isSocketPath(text string) bool {
	return strings.Contains(text, "/") && strings.HasSuffix(text, ".sock")
}

// split returns the host in its normal form, in brackets if it is an IPv6 address, and the port.
func split(text string) (host, port string, err error) {
	var rest string
	if strings.HasPrefix(text, "[") {
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return "", "", fmt.Errorf("address %q: missing ']'", text)
		}
		ip, err := netip.ParseAddr(text[1:end])
		if err != nil || !ip.Is6() {
			return "", "", fmt.Errorf("address %q: the brackets must hold an IPv6 address", text)
		}
		host, rest = strings.ToLower(text[:end+1]), text[end+1:]
		if rest != "" && rest[0] != ':' {
			return "", "", fmt.Errorf("address %q: unexpected text after ']'", text)
		}
	} else {
		i := strings.IndexByte(text, ':')
		if i < 0 {
			i = len(text)
		}
		host, rest = strings.ToLower(text[:i]), text[i:]
		if strings.ContainsAny(host, "[]") {
			return "", "", fmt.Errorf("address %q: brackets are for IPv6 addresses", text)
		}
	}
	if host == "" {
		return "", "", fmt.Errorf("address %q: no host", text)
	}
	if strings.ContainsAny(host, " \t\r\n@?#\\\x00") {
		return "", "", fmt.Errorf("address %q: invalid character in host", text)
	}
	if rest == "" {
		return host, strconv.Itoa(DefaultPort), nil
	}
	port, err = checkPort(rest[1:])
	if err != nil {
		return "", "", fmt.Errorf("address %q: %w", text, err)
	}
	return host, port, nil
}

func checkPort(text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("port is empty")
	}
	if strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }) >= 0 {
		return "", fmt.Errorf("port %q is not a number (an IPv6 address needs brackets)", text)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("port %q is not between 1 and 65535", text)
	}
	return strconv.FormatUint(n, 10), nil
}
