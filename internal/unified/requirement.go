package unified

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// environment describes a deployment as tests ask for it.
type environment struct {
	topology deployment.Topology
	version  deployment.Version
	login    deployment.Login
}

func (e environment) String() string {
	name := string(e.topology) + "-" + string(e.version)
	if e.login != deployment.NoLogin {
		name += "-" + string(e.login)
	}
	return name
}

// environments returns those that a test is run on: on each topology the first version where one
// requirement of the file and one of the test are met. Where there is none, unmet says why.
func (f *File) environments(test Test) (all []environment, unmet string) {
	for _, e := range environments() {
		reason := cmp.Or(unmetBy(f.Requirements, e), unmetBy(test.Requirements, e))
		if reason == "" && !slices.ContainsFunc(all,
			func(other environment) bool { return other.topology == e.topology }) {
			all = append(all, e)
		}
		// Another topology, or another login, says least: of all reasons it is the one to tell
		// last.
		if unmet == "" || weight(reason) > weight(unmet) {
			unmet = reason
		}
	}
	return all, unmet
}

// environments returns those that there are, in the order in which they are tried.
func environments() (all []environment) {
	for _, login := range deployment.Logins {
		for _, version := range deployment.Versions {
			for _, topology := range deployment.Topologies {
				if topology == deployment.LoadBalanced &&
					compareVersions(string(version), "5.0") < 0 {
					continue // no server of these versions runs behind a load balancer
				}
				all = append(all, environment{topology, version, login})
			}
		}
	}
	return all
}

// weight orders reasons by what they say.
func weight(reason string) int {
	switch reason {
	case "":
		return 0
	case otherTopology:
		return 1
	case otherLogin:
		return 2
	}
	return 3
}

const (
	otherTopology = "needs another topology"
	otherLogin    = "needs authentication"
)

// unmetBy returns what is missing, or "" if one of the requirements is met or there is none.
func unmetBy(requirements []bson.Raw, e environment) string {
	unmet := ""
	for _, r := range requirements {
		reason := unmetRequirement(r, e)
		if reason == "" {
			return ""
		}
		if unmet == "" || weight(reason) > weight(unmet) {
			unmet = reason
		}
	}
	return unmet
}

func unmetRequirement(requirement bson.Raw, e environment) string {
	for key, v := range requirement.All() {
		switch key {
		case "topologies":
			names := texts(requirement, key)
			if slices.Contains(names, "sharded-replicaset") { // an old word for it
				names = append(names, string(deployment.Sharded))
			}
			if !slices.Contains(names, string(e.topology)) {
				return otherTopology
			}
		case "minServerVersion":
			if least, _ := v.Str(); compareVersions(string(e.version), least) < 0 {
				return "needs a server of version " + least + " or later"
			}
		case "maxServerVersion":
			if most, _ := v.Str(); compareVersions(string(e.version), most) > 0 {
				return "needs a server of version " + most + " or before"
			}
		case "auth":
			if wanted, _ := v.Bool(); wanted != (e.login != deployment.NoLogin) {
				return map[bool]string{true: otherLogin, false: otherLogin + " to be off"}[wanted]
			}
		case "serverless":
			if wanted, _ := v.Str(); wanted == "require" {
				return "needs a serverless deployment"
			}
		case "csfle":
			if wanted, isBool := v.Bool(); wanted || !isBool {
				return "needs client-side encryption"
			}
		case "authMechanism":
			if wanted, _ := v.Str(); wanted != string(e.login) {
				return otherLogin + " by " + wanted
			}
		case "serverParameters":
			parameters, _ := v.Document()
			for name, value := range parameters.All() {
				if has, known := deployment.Parameters[name]; !known ||
					!value.Equal(bson.BoolValue(has)) {
					return "needs the server parameter " + name
				}
			}
		default:
			return "needs " + key
		}
	}
	return ""
}

// compareVersions compares versions as numbers, part by part. Parts that are missing are 0.
func compareVersions(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(x), len(y)) {
		if c := cmp.Compare(part(x, i), part(y, i)); c != 0 {
			return c
		}
	}
	return 0
}

func part(version []string, i int) int {
	if i >= len(version) {
		return 0
	}
	n, err := strconv.Atoi(version[i])
	if err != nil {
		return 0
	}
	return n
}
