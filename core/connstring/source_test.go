package connstring_test

import (
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/connstring"
)

func TestUserBesideTheString(t *testing.T) {
	app, secret, empty := "app@home", "p/w:d@", ""
	tests := []struct {
		name, uri          string
		username, password *string
		user, pass, source string
		want               string // of the error
	}{
		{"both", "mongodb://a/shop", &app, &secret, app, secret, "shop", ""},
		{"only the password", "mongodb://bob@a/", nil, &secret, "bob", secret, "admin", ""},
		{"with a mechanism", "mongodb://a/?authMechanism=PLAIN", &app, &secret, app, secret, "$external", ""},
		{"empty password", "mongodb://a/", &app, &empty, app, "", "admin", ""},
		{"empty name", "mongodb://a/", &empty, &secret, "", "", "", "needs a user name"},
		{"no name", "mongodb://a/", nil, &secret, "", "", "", "needs a user name"},
		{"two names", "mongodb://bob@a/", &app, &secret, "", "", "", "it has a user name, but another one is configured"},
		{"two passwords", "mongodb://bob:pw@a/", nil, &secret, "", "", "", "it has a password, but another one is configured"},
		{"a password without use", "mongodb://a/?authMechanism=MONGODB-X509", nil, &secret, "", "", "", "takes no password"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := connstring.Source{
				URI: tt.uri, Username: tt.username, Password: tt.password,
			}.Parse()
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) ||
					strings.Contains(err.Error(), secret) {
					t.Errorf("Parse() = %v, want an error with %q", err, tt.want)
				}
				return
			}
			if err != nil || c.Username != tt.user || c.Password != tt.pass || !c.HasPassword ||
				c.AuthSource != tt.source {
				t.Errorf("Parse() = %s, %v, want %s", c, err, tt.user)
			}
		})
	}
}
