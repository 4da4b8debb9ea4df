package clientaddr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// MaxPROXY is the length of the longest header of the PROXY protocol that Decode accepts. HAProxy
// sends some hundred bytes, and a client's certificate among its extensions has about 2 KiB.
const MaxPROXY = 4 << 10

// The forms of the header, https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt.
const (
	begin1     = "PROXY "
	maxText    = 107 // 2.1: of version 1, with the end of the line
	begin2     = "\r\n\r\n\x00\r\nQUIT\n"
	fixed2     = 16 // 2.2: version, command, family and length after begin2
	version2   = 0x2
	commandOf  = 0xF
	local      = 0x0
	remote     = 0x1
	tcp4       = 0x11
	tcp6       = 0x21
	unixStream = 0x31
	addresses4 = 2*4 + 2*2
	addresses6 = 2*16 + 2*2
)

var (
	errNone = errors.New("the connection does not begin with a header of the PROXY protocol")
	errLong = errors.New("the header of the PROXY protocol is too long")
	errForm = errors.New("the header of the PROXY protocol is malformed")
)

// Decode reads the header of the PROXY protocol, version 1 or 2, at the beginning of b. It returns
// the client's address and the length of the header; a length of 0 without an error means that b
// ends within the header. The address is the zero value if the proxy names none: for a connection
// of its own, such as a check of its health, or for a client without an IP address.
func Decode(b []byte) (client netip.AddrPort, length int, err error) {
	switch {
	case hasPrefix(b, begin2):
		return decode2(b)
	case hasPrefix(b, begin1):
		return decode1(b)
	}
	return netip.AddrPort{}, 0, errNone
}

// BeginsPROXY reports whether b begins a connection as a proxy does, with enough of the header to
// tell it from everything that the ports serve.
func BeginsPROXY(b []byte) bool {
	return bytes.HasPrefix(b, []byte(begin1)) || bytes.HasPrefix(b, []byte(begin2))
}

// hasPrefix reports whether b begins with a text, as far as it has bytes.
func hasPrefix(b []byte, text string) bool {
	n := min(len(b), len(text))
	return string(b[:n]) == text[:n]
}

func decode1(b []byte) (client netip.AddrPort, length int, err error) {
	text, _, ended := strings.Cut(string(b[:min(len(b), maxText)]), "\r\n")
	switch {
	case !ended && len(b) >= maxText:
		return client, 0, errLong
	case !ended:
		return client, 0, nil
	}
	length = len(text) + len("\r\n")
	fields := strings.Split(text, " ")
	if fields[1] == "UNKNOWN" { // what follows does not count
		return client, length, nil
	}
	if len(fields) != 6 {
		return client, 0, errForm
	}
	from, ok := endpoint(fields[1], fields[2], fields[4])
	if _, ok2 := endpoint(fields[1], fields[3], fields[5]); !ok || !ok2 {
		return client, 0, errForm
	}
	return from, length, nil
}

// endpoint reads one of the two ends of a connection.
func endpoint(family, address, port string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != port {
		return netip.AddrPort{}, false
	}
	right := family == "TCP4" && a.Is4() || family == "TCP6" && a.Is6()
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), right
}

func decode2(b []byte) (client netip.AddrPort, length int, err error) {
	if len(b) < fixed2 {
		return client, 0, nil
	}
	command, family := b[12], b[13]
	length = fixed2 + int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case command>>4 != version2 || command&commandOf > remote:
		return client, 0, errForm
	case length > MaxPROXY:
		return client, 0, errLong
	case len(b) < length:
		return client, 0, nil
	case command&commandOf == local:
		return client, length, nil
	}
	from := b[fixed2:length]
	switch family {
	case tcp4:
		return address2(from, 4, addresses4, length)
	case tcp6:
		return address2(from, 16, addresses6, length)
	case 0, unixStream:
		return client, length, nil
	}
	return client, 0, errForm
}

// address2 reads the address of the client, which comes first, and its port, which follows both
// addresses.
func address2(b []byte, size, least, length int) (netip.AddrPort, int, error) {
	if len(b) < least {
		return netip.AddrPort{}, 0, errForm
	}
	a, _ := netip.AddrFromSlice(b[:size]) // the size is that of an address
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b[2*size:])), length, nil
}
