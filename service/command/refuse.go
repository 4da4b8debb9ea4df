package command

import (
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
)

// driverKeys has the keys that belong to the driver in every command, beside those that begin with
// a dollar sign.
var driverKeys = map[string]struct{}{
	"lsid": {}, "txnNumber": {}, "autocommit": {}, "startTransaction": {},
}

// Reasons for refusals.
const (
	sessions     = "the gateway manages sessions"
	transactions = "the gateway manages transactions"
	connections  = "the gateway manages connections"
	others       = "it affects the operations of other clients"
	servers      = "it is used between servers"
)

// foreignCommands has, in lower case, the commands that reach cursors, sessions, transactions,
// operations and connections of other clients. Each value is the reason for the refusal.
var foreignCommands = map[string]string{
	"getmore":                  "CursorService continues cursors",
	"killcursors":              "CursorService closes cursors",
	"killsessions":             sessions,
	"killallsessions":          sessions,
	"killallsessionsbypattern": sessions,
	"endsessions":              sessions,
	"refreshsessions":          sessions,
	"committransaction":        transactions,
	"aborttransaction":         transactions,
	"killop":                   others,
	"dropconnections":          others,

	// A connection serves one client after the other. So clients must not change the user that it
	// is authenticated as.
	"authenticate": connections,
	"logout":       connections,
	"saslstart":    connections,
	"saslcontinue": connections,
	"getnonce":     connections,

	// Members of a replica set and of a sharded cluster.
	"replsetheartbeat":      servers,
	"replsetrequestvotes":   servers,
	"replsetupdateposition": servers,
	"replsetfresh":          servers,
	"applyops":              servers,
	"dotxn":                 servers,

	"internalrenameifoptionsandindexesmatch": servers,
}

// helloKeys has the keys of a hello that change the connection it is sent over, or hold it.
var helloKeys = map[string]struct{}{
	"speculativeAuthenticate": {}, "client": {}, "compression": {}, "internalClient": {},
	"loadBalanced": {}, "topologyVersion": {}, "maxAwaitTimeMS": {},
}

// whyForeign returns the reason that a command is refused, or "" if it is not.
func whyForeign(name string) string {
	name = strings.ToLower(name)
	// Such as _configsvrAddShard and clusterFind.
	if strings.HasPrefix(name, "_") || strings.HasPrefix(name, "cluster") {
		return servers
	}
	return foreignCommands[name]
}

// isForeignKey reports whether a key may not be in a command with that name, in lower case.
func isForeignKey(command, key string) bool {
	_, ofDriver := driverKeys[key]
	_, ofHello := helloKeys[key]
	isHello := command == "hello" || command == "ismaster"
	return ofDriver || ofHello && isHello || request.IsInternal(key)
}

// readCommand reads a command and refuses what may not be in it.
func readCommand(r *request.Reader, d *mooringv1.Document) bson.Raw {
	cmd := r.Required("command", d)
	name := strings.ToLower(cmd.FirstKey())
	if why := whyForeign(name); why != "" {
		r.Refuse("command", "clients cannot run %s: %s", cmd.FirstKey(), why)
	}
	for key := range cmd.All() {
		if isForeignKey(name, key) {
			r.Refuse("command."+key, "is reserved for the gateway and for servers")
		}
	}
	return cmd
}
