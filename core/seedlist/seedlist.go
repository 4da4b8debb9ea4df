// Package seedlist turns a mongodb+srv string into seeds, by SRV and TXT records, and keeps the
// hosts of a sharded cluster in accord with the SRV records. What to add and remove, and when to
// look again, are pure functions; Poller.Run is the one loop. It connects to nothing and keeps no
// topology.
package seedlist

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/connstring"
)

// defaultService is the service of the SRV records unless srvServiceName names another.
const defaultService = "mongodb"

// Resolve looks up the SRV and TXT records of cfg's host. It returns cfg with its seeds and the
// options of the TXT record, validated again, and the interval after which to look the records up
// again. At most srvMaxHosts seeds are taken, at random. A Config that is not of a mongodb+srv
// string is returned unchanged. A nil Resolver is System.
//
// If the records cannot be looked up or name no usable host, the error is a *LookupError: the same
// call may succeed later. Any other error says that the string and the records contradict each
// other.
func Resolve(
	ctx context.Context, r Resolver, cfg connstring.Config,
) (resolved connstring.Config, interval time.Duration, err error) {
	if !cfg.SRV {
		return cfg, 0, nil
	}
	resolved, interval, err = resolve(ctx, or(r), cfg)
	if err != nil {
		return connstring.Config{}, 0, fmt.Errorf("mongodb+srv://%s: %w", cfg.SRVHost, err)
	}
	return resolved, interval, nil
}

// LookupError says that DNS gave no usable hosts for a mongodb+srv string, which may change.
type LookupError struct{ Err error }

func (e *LookupError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *LookupError) Unwrap() error { return e.Err }

func resolve(
	ctx context.Context, r Resolver, cfg connstring.Config,
) (connstring.Config, time.Duration, error) {
	scan := look(ctx, r, cfg)
	if len(scan.Problems) > 0 {
		return cfg, 0, &LookupError{scan.Problems[0]}
	}
	txt, err := r.LookupTXT(ctx, queryName(cfg.SRVHost))
	switch {
	case err != nil:
		return cfg, 0, &LookupError{fmt.Errorf("look up TXT record: %w", err)}
	case len(txt) > 1:
		return cfg, 0, fmt.Errorf("there are %d TXT records, at most one is allowed", len(txt))
	case len(txt) == 0:
		txt = []string{""}
	}
	seeds, _ := Changes(nil, scan.Hosts, maxHosts(cfg), rand.Shuffle)
	resolved, err := cfg.Resolve(seeds, txt[0])
	return resolved, scan.Interval(cfg.HeartbeatInterval), err
}

// Scan holds the result of one lookup of SRV records.
type Scan struct {
	Hosts    []address.Address // verified, each once; nil after a failure
	TTL      time.Duration     // the lowest of all records; 0 where it is not known
	Problems []error           // why the lookup failed, and which hosts were refused
}

// look returns what the SRV records say. A scan has at least one host or one problem.
func look(ctx context.Context, r Resolver, cfg connstring.Config) Scan {
	service := cfg.SRVServiceName
	if service == "" {
		service = defaultService
	}
	name := "_" + service + "._tcp." + queryName(cfg.SRVHost)
	records, err := r.LookupSRV(ctx, name)
	var s Scan
	switch {
	case err != nil:
		s.Problems = append(s.Problems, fmt.Errorf("look up SRV records: %w", err))
	case len(records) == 0:
		s.Problems = append(s.Problems,
			fmt.Errorf("there are no SRV records of %s", strings.TrimSuffix(name, ".")))
	}
	for i, record := range records {
		if i == 0 || record.TTL < s.TTL {
			s.TTL = record.TTL
		}
		host, err := verify(cfg.SRVHost, record)
		switch {
		case err != nil:
			s.Problems = append(s.Problems, err)
		case !slices.Contains(s.Hosts, host):
			s.Hosts = append(s.Hosts, host)
		}
	}
	return s
}

// HostError reports a host in an SRV record that is outside of the domain of the name that was
// looked up. The client must not connect to it.
type HostError struct {
	Host   string // as it came
	Domain string // what it should be in
}

func (e *HostError) Error() string {
	return fmt.Sprintf("host %q of an SRV record is not inside the domain %q", e.Host, e.Domain)
}

// verify returns the address of a record's host. The host must be inside the domain of the SRV
// name: what follows the first label if there are three or more labels, else the whole name.
func verify(srvHost string, r SRV) (address.Address, error) {
	domain := plainName(srvHost)
	if strings.Count(domain, ".") >= 2 {
		_, domain, _ = strings.Cut(domain, ".")
	}
	host := plainName(r.Target)
	if sub, ok := strings.CutSuffix(host, "."+domain); !ok || sub == "" {
		return "", &HostError{r.Target, domain}
	}
	addr, err := address.Parse(host + ":" + strconv.Itoa(int(r.Port)))
	if err != nil {
		return "", fmt.Errorf("host of an SRV record: %w", err)
	}
	if addr.Host() != host { // a host with a colon or a slash in it is two things at once
		return "", &HostError{r.Target, domain}
	}
	return addr, nil
}

// plainName returns a name for comparison: in lower case and without the dot at the end.
func plainName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// queryName returns a name with a dot at the end, so that no search domain is tried.
func queryName(name string) string { return strings.TrimSuffix(name, ".") + "." }

func maxHosts(cfg connstring.Config) int {
	if cfg.SRVMaxHosts == nil {
		return 0
	}
	return int(*cfg.SRVMaxHosts)
}
