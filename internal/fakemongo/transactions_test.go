package fakemongo_test

import (
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// inTransaction sends a command of transaction 1 and returns the code of its reply.
func inTransaction(t *testing.T, c *conn.Conn, name string, add func(*bson.Builder)) int64 {
	t.Helper()
	reply := run(t, c, nil, func(b *bson.Builder) {
		b.String(name, "c").OpenDocument("lsid").Binary("id", 4, make([]byte, 16)).Close()
		b.Int64("txnNumber", 1).Bool("autocommit", false)
		if add != nil {
			add(b)
		}
	})
	v, _ := reply.Lookup("code")
	code, _ := v.AsInt64()
	return code
}

func start(b *bson.Builder) { b.Bool("startTransaction", true) }

func token(b *bson.Builder) { b.OpenDocument("recoveryToken").Close() }

// TestTransactions has each host know only the transactions that it may know.
func TestTransactions(t *testing.T) {
	const unknown = 251
	synctest.Test(t, func(t *testing.T) {
		dialHost := func(c *fakemongo.Cluster, i int) *conn.Conn {
			return dial(t, c.Host(i).Server)
		}
		ok := fakemongo.Always(fakemongo.OK(nil))
		routers := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Mongos,
			fakemongo.Mongos)
		set := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary)
		for _, c := range []*fakemongo.Cluster{routers, set} {
			for _, h := range c.Hosts() {
				h.Handle("commitTransaction", ok)
			}
		}
		a, b := dialHost(routers, 0), dialHost(routers, 1)
		first, second := dialHost(set, 0), dialHost(set, 1)
		for i, step := range []struct {
			on   *conn.Conn
			name string
			add  func(*bson.Builder)
			want int64
			then func()
		}{
			{on: a, name: "find", want: unknown},
			{on: a, name: "insert", add: start},
			{on: a, name: "find"},
			{on: b, name: "find", want: unknown},
			{on: b, name: "commitTransaction", want: unknown},
			{on: b, name: "commitTransaction", add: token},
			{on: b, name: "abortTransaction", add: token, want: unknown},
			{on: a, name: "commitTransaction"},

			{on: first, name: "insert", add: start, then: set.Host(1).Elect},
			{on: second, name: "insert", want: unknown},
			{on: second, name: "insert", add: start},
			{on: second, name: "commitTransaction", then: set.Host(0).Elect},
			{on: first, name: "commitTransaction"},
		} {
			if code := inTransaction(t, step.on, step.name, step.add); code != step.want {
				t.Errorf("%d: %s has the code %d, want %d", i, step.name, code, step.want)
			}
			if step.then != nil {
				step.then()
			}
		}
	})
}
