package check

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Login holds the outcome of the credential on one server.
type Login struct {
	Error     string `json:"error,omitempty"`
	Advice    string `json:"advice,omitempty"` // what to change
	Mechanism string `json:"mechanism,omitempty"`
	Why       string `json:"why,omitempty"` // why that mechanism was chosen
	// Users are as the server reports them: name@database.
	Users     []string     `json:"users,omitempty"`
	Roles     []string     `json:"roles,omitempty"`
	Privilege []Permission `json:"privileges,omitempty"` // for the actions of the gateway
}

// Permission says where one action is allowed.
type Permission struct {
	Action string `json:"action"`
	// On has databases, collections, "every database" or "everything"; empty means nowhere.
	On []string `json:"on"`
}

// needed lists the actions of the gateway's services.
var needed = []string{"find", "insert", "update", "remove"}

// login logs in on a separate connection.
func (a *asking) login(ctx context.Context, host address.Address) *Login {
	cfg := a.conn
	cfg.Auth = a.auth
	c, err := conn.Dial(ctx, host, cfg)
	if err != nil {
		return failedLogin(err)
	}
	defer func() { _ = c.Close() }()
	l := &Login{}
	l.Mechanism, l.Why = c.Mechanism()
	command := bson.NewBuilder(nil).Int32("connectionStatus", 1).Bool("showPrivileges",
		true).Finish()
	reply, err := c.Run(ctx, "admin", command)
	if err == nil {
		err = mongoerr.FromReply(host, reply)
	}
	if err != nil {
		l.Error = oneLine("connectionStatus: " + err.Error())
		return l
	}
	l.read(reply)
	return l
}

func failedLogin(err error) *Login {
	l := &Login{Error: oneLine(err.Error())}
	if failed, ok := errors.AsType[*auth.Error](err); ok {
		l.Advice = failed.Advice()
	}
	return l
}

// read takes the users, roles and privileges from a reply to connectionStatus.
func (l *Login) read(reply bson.Raw) {
	v, _ := reply.Lookup("authInfo")
	info, _ := v.Document()
	l.Users = named(info, "authenticatedUsers", "user")
	l.Roles = named(info, "authenticatedUserRoles", "role")
	v, ok := info.Lookup("authenticatedUserPrivileges")
	privileges, isArray := v.Array()
	if !ok || !isArray {
		return
	}
	for _, action := range needed {
		p := Permission{Action: action, On: []string{}}
		for privilege := range privileges.Documents() {
			if on := resource(privilege); allows(privilege, action) && on != "" &&
				!slices.Contains(p.On, on) {
				p.On = append(p.On, on)
			}
		}
		l.Privilege = append(l.Privilege, p)
	}
}

// named returns a list of users or roles as name@database.
func named(info bson.Raw, list, name string) (all []string) {
	v, _ := info.Lookup(list)
	array, _ := v.Array()
	for d := range array.Documents() {
		who := text(d, name)
		if db := text(d, "db"); db != "" { // FerretDB 2 names none
			who += "@" + db
		}
		all = append(all, oneLine(who))
	}
	return all
}

func text(d bson.Raw, path ...string) string {
	v, _ := d.Lookup(path...)
	s, _ := v.Str()
	return s
}

func allows(privilege bson.Raw, action string) bool {
	v, _ := privilege.Lookup("actions")
	actions, _ := v.Array()
	for _, v := range actions.All() {
		if s, _ := v.Str(); s == action {
			return true
		}
	}
	return false
}

// resource describes what a privilege applies to; "" if that is not a user's data.
func resource(privilege bson.Raw) string {
	v, _ := privilege.Lookup("resource")
	d, _ := v.Document()
	anything, _ := d.Lookup("anyResource")
	database, hasDatabase := d.Lookup("db")
	name, _ := database.Str()
	collection := text(d, "collection")
	switch {
	case anything.Truthy():
		return "everything"
	case !hasDatabase || strings.HasPrefix(collection, "system."):
		return ""
	case name == "" && collection == "":
		return "every database"
	case collection == "":
		return oneLine(name)
	case name == "":
		return oneLine(collection + " in every database")
	}
	return oneLine(name + "." + collection)
}

func (l *Login) print(p printer) {
	if l.Mechanism == "" {
		p.list("login", appendText([]string{"failed: " + l.Error}, l.Advice))
		return
	}
	lines := []string{l.Mechanism + ": " + l.Why}
	if l.Error != "" {
		lines = append(lines, l.Error)
	}
	for _, user := range l.Users {
		lines = append(lines, "as "+user)
	}
	if len(l.Roles) > 0 {
		lines = append(lines, "with the roles "+strings.Join(l.Roles, ", "))
	}
	p.list("login", lines)
	lines = nil
	for _, privilege := range l.Privilege {
		on := "nowhere"
		if len(privilege.On) > 0 {
			on = "on " + strings.Join(privilege.On, ", ")
		}
		lines = append(lines, privilege.Action+" "+on)
	}
	p.list("may", lines)
}

func appendText(lines []string, text string) []string {
	if text == "" {
		return lines
	}
	return append(lines, text)
}

// loginVerdict returns the reason that operations cannot log in: no server accepts the user.
// Servers that were not asked do not count.
func (r *Report) loginVerdict() error {
	var first *Login
	for _, s := range r.Servers {
		switch {
		case s.Login == nil:
		case s.Login.Mechanism != "":
			return nil
		case first == nil:
			first = s.Login
		}
	}
	if first == nil {
		return nil
	}
	return errors.New(strings.Join(appendText([]string{"cannot log in: " + first.Error},
		first.Advice), ". "))
}
