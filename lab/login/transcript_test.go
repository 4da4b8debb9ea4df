package login_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

const waitTime = 30 * time.Second

// clients log in and send one ping.
var clients = map[string]func(ctx context.Context, uri string) error{
	"mooring": func(ctx context.Context, uri string) error {
		cfg, err := connstring.Parse(uri)
		if err != nil {
			return err
		}
		c, err := client.New(cfg, client.Options{})
		if err != nil {
			return err
		}
		if err := c.Start(ctx); err != nil {
			return err
		}
		return errors.Join(c.Ping(ctx), c.Close(ctx))
	},
	"official": func(ctx context.Context, uri string) error {
		c, err := mongo.Connect(options.Client().ApplyURI(uri))
		if err != nil {
			return err
		}
		return errors.Join(c.Ping(ctx, nil), c.Disconnect(ctx))
	},
	"pymongo": func(ctx context.Context, uri string) error {
		script := "import sys, pymongo\nc = " +
			"pymongo.MongoClient(sys.argv[1])\nc.admin.command('ping')\nc.close()\n"
		out, err := exec.CommandContext(ctx, python(), "-c", script, uri).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	},
}

// python returns an interpreter that has pymongo, "" if there is none. Debian's own may not be
// the first in the path.
func python() string {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import pymongo").Run() == nil {
			return name
		}
	}
	return ""
}

// nonces and proofs differ each time.
var changing = regexp.MustCompile(`([rpv])=[^,]+`)

// transcript writes what the connection that has logged in has said for that.
func transcript(commands []fakemongo.Command) (lines []string) {
	i := slices.IndexFunc(commands, func(c fakemongo.Command) bool { return c.Name == "ping" })
	if i < 0 {
		return nil
	}
	for _, c := range commands {
		if c.Connection != commands[i].Connection {
			continue
		}
		begun, _ := c.Body.Lookup("speculativeAuthenticate")
		doc, speculates := begun.Document()
		switch {
		case speculates:
			mechanisms, _ := c.Body.Lookup("saslSupportedMechs")
			user, _ := mechanisms.Str()
			lines = append(lines, "hello saslSupportedMechs="+user, describe(doc))
		case strings.HasPrefix(c.Name, "sasl"):
			lines = append(lines, c.Database+" "+describe(c.Body))
		}
	}
	return lines
}

// describe writes a command's fields, without those that each client has for itself.
func describe(d bson.Raw) string {
	var fields []string
	for key, v := range d.All() {
		switch key {
		case "payload":
			_, payload, _ := v.Binary()
			fields = append(fields, "payload="+changing.ReplaceAllString(string(payload), "$1=…"))
		case "saslStart", "saslContinue", "conversationId":
			n, _ := v.AsInt64()
			fields = append(fields, fmt.Sprintf("%s=%d", key, n))
		case "options":
			doc, _ := v.Document()
			skip, _ := doc.Lookup("skipEmptyExchange")
			fields = append(fields, fmt.Sprintf("skipEmptyExchange=%v", skip.Truthy()))
		case "mechanism", "db":
			text, _ := v.Str()
			fields = append(fields, key+"="+text)
		case "autoAuthorize", "$db", "lsid", "$readPreference", "$clusterTime", "maxTimeMS":
		default:
			fields = append(fields, key)
		}
	}
	slices.Sort(fields[1:])
	return strings.Join(fields, " ")
}

// Three clients log in on one server by the same messages, but for nonces and proofs.
func TestClientsSendTheSameMessages(t *testing.T) {
	if python() == "" {
		t.Skip("pymongo is not installed (Debian: python3-pymongo)")
	}
	tests := []struct {
		name, user, password, stored, options string
		auth                                  fakemongo.Auth
		mechanisms                            []string
	}{
		{"negotiated", "app", "pencil", "pencil", "", fakemongo.Auth{}, nil},
		{"SASLprep", "app", "I\u00ADX", "IX", "", fakemongo.Auth{}, nil},
		{"name with = and ,", "a=b,c", "pencil", "pencil", "", fakemongo.Auth{}, nil},
		{"no speculation", "app", "pencil", "pencil", "", fakemongo.Auth{NoSpeculation: true}, nil},
		{"empty exchange", "app", "pencil", "pencil", "", fakemongo.Auth{EmptyExchange: true}, nil},
		{"SCRAM-SHA-1 only", "app", "pencil", "pencil", "", fakemongo.Auth{}, []string{"SCRAM-SHA-1"}},
		{"SCRAM-SHA-1 configured", "app", "pencil", "pencil", "&authMechanism=SCRAM-SHA-1", fakemongo.Auth{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			said := map[string]string{}
			for name, login := range clients {
				s := fakemongo.NewTCPServer(t, nil)
				a := tt.auth
				a.Users = []fakemongo.User{
					{Name: tt.user, Password: tt.stored, Mechanisms: tt.mechanisms},
				}
				s.RequireAuth(&a)
				uri := fmt.Sprintf("mongodb://%s@%s/?directConnection=true&serverSelectionTimeoutMS=10000%s",
					url.UserPassword(tt.user, tt.password), s.Address(), tt.options)
				ctx, cancel := context.WithTimeout(t.Context(), waitTime)
				defer cancel()
				if err := login(ctx, uri); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if got := s.LoggedIn(); len(got) == 0 || got[0] != "admin."+tt.user {
					t.Errorf("%s: logged in are %v", name, got)
				}
				said[name] = strings.Join(transcript(s.Commands()), "\n")
			}
			for name, got := range said {
				if got != said["mooring"] || got == "" {
					t.Errorf("%s says\n%s\nMooring says\n%s", name, got, said["mooring"])
				}
			}
		})
	}
}
