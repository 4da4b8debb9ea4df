package config

import (
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	"github.com/mooringdb/mooring/service/policy"
)

// Policy says what clients may do.
type Policy struct {
	// File is the file with the rules; empty: clients may do everything.
	File string
	// JavaScript allows $where, $function, $accumulator and the commands mapReduce, group and eval
	// under a policy.
	JavaScript bool
	// Rules has the rules of the file; nil: there is none.
	Rules *policy.Policy
	// Sum is watch.Sum of the text of the file.
	Sum string
}

// read reads the file of the policy.
func (p *Policy) read(refuse func(option, problem string)) {
	if p.File == "" {
		return
	}
	text, err := watch.Read(p.File)
	if err == nil {
		p.Sum = watch.Sum(text)
		p.Rules, err = policy.Parse([]byte(text))
	}
	if err != nil {
		refuse(policyFile, p.File+" cannot be used: "+err.Error())
	}
}

// checkOperators refuses operators where something else decides who they are.
func (c *Config) checkOperators(refuse func(option, problem string)) {
	switch {
	case len(c.Auth.Operators) == 0:
	case c.Policy.File != "":
		refuse(operators, "cannot be used with "+policyFile+": permit operate there")
	case !c.AuthEnabled():
		refuse(operators, "needs authentication: without it no client has a name")
	}
}

// Operators returns the principals that may call DeploymentService; nil: all may, or the policy
// decides.
func (c *Config) Operators() []string {
	if c.Policy.File != "" || !c.AuthEnabled() {
		return nil
	}
	return append([]string{}, c.Auth.Operators...)
}

// warnWithoutPolicy warns of listeners that other machines can reach without a policy.
func (c *Config) warnWithoutPolicy() {
	if c.Policy.File != "" {
		return
	}
	for _, address := range []string{c.GRPC.Address, c.REST.Address} {
		if address != "" && !isLocal(address) {
			c.Warnings = append(c.Warnings, policyFile+" is not set: every client may do "+
				"everything that the MongoDB user may")
			return
		}
	}
}
