package deployment

import "github.com/mooringdb/mooring/internal/fakemongo"

// Login names the mechanism by which clients have to log in.
type Login string

// The logins that deployments can demand. With MONGODB-OIDC, clients that do not configure it log
// in by SCRAM.
const (
	NoLogin Login = ""
	SCRAM   Login = "SCRAM-SHA-256"
	OIDC    Login = "MONGODB-OIDC"
)

// Logins are all of them, in the order in which tests try them.
var Logins = []Login{NoLogin, SCRAM, OIDC}

// The user of a deployment, and the access token that it accepts.
const (
	user     = "admin"
	password = "pencil"
	Token    = "token of the deployment"
)

// RequireLogin makes the servers demand logins.
func (d *Deployment) RequireLogin(l Login) {
	d.login = l
	if l == NoLogin {
		return
	}
	auth := &fakemongo.Auth{Users: []fakemongo.User{{Name: user, Password: password}}}
	if l == OIDC {
		var tokens fakemongo.OIDC
		tokens.Accept(Token, user)
		auth.SASL = map[string]func(*fakemongo.Command) fakemongo.SASL{string(OIDC): tokens.SASL}
	}
	for _, h := range d.hosts {
		h.RequireAuth(auth)
	}
}

// userinfo returns what stands before the hosts of a connection string.
func (d *Deployment) userinfo(options map[string][]string) string {
	if d.login == NoLogin || isSet(options, "authMechanism", "") {
		return ""
	}
	return user + ":" + password + "@"
}
