package drill_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb"
)

// database is the one server that the gateway stands before.
type database struct {
	*fakemongo.Server
	disturb func(func(*fakemongo.Command, fakemongo.Handler) fakemongo.Reply) // nil: no more
	fill    func(docs []bson.Raw)                                             // shop.orders
}

// scripted starts a server with canned replies.
func scripted(t *testing.T) database {
	s := fakemongo.NewTCPServer(t, nil)
	return database{s, s.Intercept, func(docs []bson.Raw) {
		s.SetDocuments("shop.orders", docs...)
	}}
}

// onEngine starts PostgreSQL with DocumentDB behind a server that can be disturbed.
func onEngine(t *testing.T) database {
	d := deployment.ListenUnrecorded(t, deployment.Single, "7.0.0")
	docdb.Serve(t, d)
	return database{
		d.Cluster().Host(0).Server,
		func(f func(*fakemongo.Command, fakemongo.Handler) fakemongo.Reply) { d.Disturb(f) },
		func(docs []bson.Raw) {
			if err := d.SetCollection("shop", "orders", nil, docs); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// setOnEngine starts it behind three members, of which the first is primary.
func setOnEngine(t *testing.T) *fakemongo.Cluster {
	d := deployment.ListenUnrecorded(t, deployment.ReplicaSet, "7.0.0")
	docdb.Serve(t, d)
	return d.Cluster()
}

// TestOnEngine has the same faults before PostgreSQL with DocumentDB, which answers the commands
// that are answered, has the documents, and keeps the cursors. Those of the server, its members and
// its logins are the scripted deployment's, as the engine has none; what the gateway shows of them
// is the same. It leaves out the faults in which no command reaches a database.
func TestOnEngine(t *testing.T) {
	for name, fault := range map[string]func(*testing.T, func(*testing.T) database){
		"database down": databaseDown, "slow database": slowDatabase, "pool exhausted": poolExhausted,
		"flood": flood, "wrong password": wrongPassword, "policy broken": policyBroken,
		"replica unreachable": replicaUnreachable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault(t, onEngine)
		})
	}
	for name, fault := range map[string]func(*testing.T, func(*testing.T) *fakemongo.Cluster){
		"no primary": noPrimary, "elections": elections,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault(t, setOnEngine)
		})
	}
}
