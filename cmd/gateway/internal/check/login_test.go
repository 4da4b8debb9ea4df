package check_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func status(*fakemongo.Command) fakemongo.Reply {
	privilege := func(b *bson.Builder, db, collection string, actions ...string) {
		b.OpenDocument("").OpenDocument("resource").String("db", db).
			String("collection", collection).Close().OpenArray("actions")
		for _, a := range actions {
			b.String("", a)
		}
		b.Close().Close()
	}
	return fakemongo.OK(func(b *bson.Builder) {
		b.OpenDocument("authInfo")
		b.OpenArray("authenticatedUsers").OpenDocument("").String("user", "app").
			String("db", "admin").Close().Close()
		b.OpenArray("authenticatedUserRoles").OpenDocument("").String("role", "readWrite").
			String("db", "shop").Close().
			OpenDocument("").String("role", "read").String("db", "logs").Close().Close()
		b.OpenArray("authenticatedUserPrivileges")
		privilege(b, "shop", "", "find", "insert", "update")
		privilege(b, "shop", "system.js", "find", "remove")
		privilege(b, "logs", "today", "find")
		b.OpenDocument("").OpenDocument("resource").Bool("cluster", true).Close().
			OpenArray("actions").String("", "find").Close().Close()
		b.Close().Close()
	})
}

func TestLogin(t *testing.T) {
	s := fakemongo.NewTCPServer(t, fakemongo.Handlers{"connectionStatus": status})
	s.RequireAuth(&fakemongo.Auth{Users: []fakemongo.User{
		{Name: "app", Password: "hunter2"}, {Name: "old", Password: "hunter2", Mechanisms: []string{"SCRAM-SHA-1"}},
	}})
	var n names
	n.add(s, "HOST")
	const advice = "Check the user name and the password, and that the user is defined in the " +
		"database admin (option authSource), for the mechanism of the option authMechanism if " +
		"that is set."
	const may = `
                   as app@admin
                   with the roles readWrite@shop, read@logs
  may              find on shop, logs.today
                   insert on shop
                   update on shop
                   remove nowhere
`
	for _, row := range []struct{ name, user, options, want, failure string }{
		{"negotiated", "app:hunter2", "", "  login            SCRAM-SHA-256: the server lists it for the user" + may, ""},
		{"SHA-1", "old:hunter2", "", "  login            SCRAM-SHA-1: the server does not list SCRAM-SHA-256 for the user" + may, ""},
		{
			"configured", "app:hunter2", "&authMechanism=SCRAM-SHA-1",
			"  login            SCRAM-SHA-1: as configured (authMechanism)" + may, "",
		},
		{
			"wrong password", "app:hunter3", "",
			"  login            failed: authenticate on HOST (SCRAM-SHA-256, authSource admin): " +
				"command failed on HOST: " +
				"Authentication failed. (AuthenticationFailed, code 18)\n                   " +
				advice + "\n",
			"cannot log in: authenticate on HOST (SCRAM-SHA-256, authSource admin): command " +
				"failed on HOST: " +
				"Authentication failed. (AuthenticationFailed, code 18). " + advice,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			report, text := run(t, fmt.Sprintf("mongodb://%s@%s/?directConnection=true%s", row.user, s.Address(), row.options), n)
			if !strings.Contains(text, row.want) || strings.Contains(text, "hunter") {
				t.Errorf("Print() wrote\n%s\nwant\n%s", text, row.want)
			}
			if got := n.replace(report.Error); got != row.failure {
				t.Errorf("Error = %q, want %q", got, row.failure)
			}
		})
	}
}

// A server that does not know connectionStatus, or does not report privileges, still accepts the
// user.
func TestLoginWithoutStatus(t *testing.T) {
	s := fakemongo.NewTCPServer(t, nil)
	s.RequireAuth(&fakemongo.Auth{Users: []fakemongo.User{{Name: "app", Password: "hunter2"}}})
	report, text := run(t, fmt.Sprintf("mongodb://app:hunter2@%s/?directConnection=true", s.Address()), nil)
	if report.Error != "" || !strings.Contains(text, "SCRAM-SHA-256: the server lists it") ||
		!strings.Contains(text, "connectionStatus: command failed") {
		t.Errorf("Error = %q, Print() wrote\n%s", report.Error, text)
	}
	s.Handle("connectionStatus", fakemongo.Always(fakemongo.OK(func(b *bson.Builder) {
		b.OpenDocument("authInfo").Close()
	})))
	report, text = run(t, fmt.Sprintf("mongodb://app:hunter2@%s/?directConnection=true", s.Address()), nil)
	if report.Error != "" || strings.Contains(text, "  may ") ||
		strings.Contains(text, "connectionStatus") {
		t.Errorf("Error = %q, Print() wrote\n%s", report.Error, text)
	}
}
