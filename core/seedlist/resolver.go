package seedlist

import (
	"context"
	"errors"
	"net"
	"time"
)

// Resolver looks records up. Names end in a dot.
type Resolver interface {
	// LookupSRV returns the SRV records of a name. Records beside an error mean that some could
	// not be used.
	LookupSRV(ctx context.Context, name string) ([]SRV, error)

	// LookupTXT returns the TXT records of a name, with the strings of each joined. It is no error
	// if there is none.
	LookupTXT(ctx context.Context, name string) ([]string, error)
}

// SRV holds one SRV record without its priority and weight, which do not matter here.
type SRV struct {
	Target string
	Port   uint16
	TTL    time.Duration // 0 where it is not known
}

// System implements Resolver with the DNS client of the process. It does not learn how long an
// answer is valid.
type System struct {
	Resolver *net.Resolver // nil: net.DefaultResolver
}

var _ Resolver = System{}

func (s System) resolver() *net.Resolver {
	if s.Resolver == nil {
		return net.DefaultResolver
	}
	return s.Resolver
}

// LookupSRV implements Resolver.
func (s System) LookupSRV(ctx context.Context, name string) ([]SRV, error) {
	_, found, err := s.resolver().LookupSRV(ctx, "", "", name)
	records := make([]SRV, 0, len(found))
	for _, r := range found {
		records = append(records, SRV{Target: r.Target, Port: r.Port})
	}
	return records, err
}

// LookupTXT implements Resolver.
func (s System) LookupTXT(ctx context.Context, name string) ([]string, error) {
	found, err := s.resolver().LookupTXT(ctx, name)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return nil, nil
	}
	return found, err
}

func or(r Resolver) Resolver {
	if r == nil {
		return System{}
	}
	return r
}
