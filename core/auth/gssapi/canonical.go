package gssapi

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// Canonicalization says how the name of a service's host is found.
type Canonicalization uint8

// The ways.
const (
	CanonicalizeNone              Canonicalization = iota // the name as it is given
	CanonicalizeForward                                   // the end of its aliases (CNAME)
	CanonicalizeForwardAndReverse                         // the name of its address (PTR)
)

var canonicalizations = map[string]Canonicalization{
	"": CanonicalizeNone, "false": CanonicalizeNone, "none": CanonicalizeNone,
	"forward": CanonicalizeForward,
	"true":    CanonicalizeForwardAndReverse, "forwardAndReverse": CanonicalizeForwardAndReverse,
}

// ParseCanonicalization reads a value of CANONICALIZE_HOST_NAME.
func ParseCanonicalization(text string) (Canonicalization, error) {
	c, ok := canonicalizations[text]
	if !ok {
		return c, fmt.Errorf("GSSAPI does not support the CANONICALIZE_HOST_NAME %q", text)
	}
	return c, nil
}

// Resolver answers what canonicalization asks of DNS; a *net.Resolver has it.
type Resolver interface {
	LookupHost(ctx context.Context, host string) (addresses []string, err error)
	LookupCNAME(ctx context.Context, host string) (name string, err error)
	LookupAddr(ctx context.Context, address string) (names []string, err error)
}

// name returns the host's name in lower case. If DNS knows none, name returns host unchanged.
func (c Canonicalization) name(ctx context.Context, r Resolver, host string) string {
	if c == CanonicalizeNone {
		return host
	}
	if r == nil {
		r = net.DefaultResolver
	}
	name := ""
	if c == CanonicalizeForward {
		name, _ = r.LookupCNAME(ctx, host)
	} else if addresses, _ := r.LookupHost(ctx, host); len(addresses) > 0 {
		if names, _ := r.LookupAddr(ctx, addresses[0]); len(names) > 0 {
			name = names[0]
		}
	}
	if name = strings.ToLower(strings.TrimSuffix(name, ".")); name == "" {
		return host
	}
	return name
}
