package connstring

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mooringdb/mooring/core/address"
)

// given records which options that a TXT record may give the string itself gives with a usable
// value.
type given struct{ authSource, replicaSet, loadBalanced bool }

// givenBySelf reports what the string itself gives. The caller calls it before check, which
// completes the credential.
func (p *parser) givenBySelf() given {
	return given{
		authSource: p.config.AuthSource != "",
		replicaSet: p.config.ReplicaSet != "",
		loadBalanced: slices.ContainsFunc(p.given["loadbalanced"], func(value string) bool {
			_, ok := booleans[value]
			return ok
		}),
	}
}

// Resolve returns the Config of a mongodb+srv string, completed with what DNS has returned; it does
// no I/O. hosts become the seeds. txt is the contents of the TXT record, or empty. An option of it
// applies if the string does not give that option. It may have only authSource, replicaSet and
// loadBalanced. Any other option, an option without a value, and a contradiction to the rest of the
// Config are errors. SRV stays set in the result: TLS stays on by default, and SRVHost is the name
// to poll.
func (c Config) Resolve(hosts []address.Address, txt string) (Config, error) {
	p := &parser{config: c}
	if err := p.resolve(hosts, txt); err != nil {
		return Config{}, err
	}
	return p.config, nil
}

func (p *parser) resolve(hosts []address.Address, txt string) error {
	if !p.config.SRV {
		return errors.New("only mongodb+srv strings are resolved")
	}
	p.config.Hosts = slices.Clone(hosts)
	p.config.Warnings = slices.Clip(p.config.Warnings)
	if err := p.defaults(txt); err != nil {
		return fmt.Errorf("TXT record: %w", err)
	}
	for _, check := range []func() error{p.checkTopology, p.checkSRV, p.checkCredential} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// defaults applies the options of a TXT record, which may have only these three.
func (p *parser) defaults(txt string) error {
	if err := p.split(txt); err != nil {
		return err
	}
	own := map[string]bool{
		"authsource": p.config.given.authSource, "replicaset": p.config.given.replicaSet,
		"loadbalanced": p.config.given.loadBalanced,
	}
	for _, key := range p.order {
		if _, ok := own[key]; !ok {
			return fmt.Errorf("option %q is not authSource, replicaSet or loadBalanced", p.as[key])
		}
	}
	p.order = slices.DeleteFunc(p.order, func(key string) bool { return own[key] })
	if !own["authsource"] {
		p.config.AuthSource = "" // what check filled in; it does so again
	}
	return p.apply()
}
