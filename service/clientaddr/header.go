package clientaddr

import (
	"net/netip"
	"strings"
)

// space holds the optional white space of HTTP (RFC 9110, 5.6.3).
const space = " \t"

// cutLast cuts the last element off a list with commas between its elements. A comma in a quoted
// string separates none. It reads from the end, so that nothing a client has written changes how
// the elements are read that proxies have appended to it.
func cutLast(list string) (before, element string, more bool) {
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch {
		case list[i] == '"' && (!quoted || !isEscaped(list, i)):
			quoted = !quoted
		case list[i] == ',' && !quoted:
			return list[:i], list[i+1:], true
		}
	}
	return "", list, false
}

// isEscaped reports whether the character at i stands behind an odd number of backslashes.
func isEscaped(text string, i int) bool {
	before := strings.TrimRight(text[:i], `\`)
	return (i-len(before))%2 == 1
}

// forwardedFor returns the address of the parameter for in an element of Forwarded.
func forwardedFor(element string) (netip.Addr, bool) {
	var found string
	for rest, more := element, true; more; {
		var name, value string
		var ok bool
		if name, value, rest, more, ok = cutPair(rest); !ok {
			return netip.Addr{}, false
		}
		if !strings.EqualFold(name, "for") {
			continue
		}
		if found != "" {
			return netip.Addr{}, false // of two, no one can say which counts
		}
		found = value
	}
	return node(found)
}

// cutPair cuts the first name=value off an element of Forwarded. Escaped characters stay as they
// are, since no address has any.
func cutPair(element string) (name, value, rest string, more, ok bool) {
	name, rest, ok = strings.Cut(strings.Trim(element, space), "=")
	if !ok || name == "" || strings.ContainsAny(name, `"; `) {
		return "", "", "", false, false
	}
	if !strings.HasPrefix(rest, `"`) {
		value, rest, more = strings.Cut(rest, ";")
		return name, strings.Trim(value, space), rest, more, !strings.Contains(value, `"`)
	}
	rest = rest[1:]
	end := 0
	for end < len(rest) && (rest[end] != '"' || isEscaped(rest, end)) {
		end++
	}
	if end == len(rest) {
		return "", "", "", false, false
	}
	value, rest = rest[:end], strings.TrimLeft(rest[end+1:], space)
	if rest == "" {
		return name, value, "", false, true
	}
	rest, ok = strings.CutPrefix(rest, ";")
	return name, value, rest, true, ok
}

// node returns the address in what a proxy calls a client (RFC 7239, 6), whose port does not
// matter: 192.0.2.1, 192.0.2.1:80, [2001:db8::1], [2001:db8::1]:80, and 2001:db8::1 as
// X-Forwarded-For has it. unknown and names that a proxy has made up are not addresses.
func node(text string) (netip.Addr, bool) {
	host, port, hasPort := text, "", false
	inner, bracketed := strings.CutPrefix(text, "[")
	switch {
	case bracketed:
		var closed bool
		if host, port, closed = strings.Cut(inner, "]"); !closed {
			return netip.Addr{}, false
		}
		if port != "" {
			if port, hasPort = strings.CutPrefix(port, ":"); !hasPort {
				return netip.Addr{}, false
			}
		}
	case strings.Count(text, ":") == 1:
		host, port, hasPort = strings.Cut(text, ":")
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.Zone() != "" || bracketed && !a.Is6() || hasPort && port == "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}
