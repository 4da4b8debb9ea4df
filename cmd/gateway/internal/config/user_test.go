package config_test

import (
	"fmt"
	"strings"
	"testing"
)

// The user comes from the connection string, options, files or the environment.
func TestUser(t *testing.T) {
	const uri = "--uri=mongodb://db.example/shop"
	for _, row := range []struct {
		name    string
		args    []string
		environ []string
		files   int
	}{
		{"connection string", []string{"--uri=mongodb://app:hunter2@db.example/shop"}, nil, 0},
		{"its file", []string{"--uri-file", write(t, "uri", "mongodb://app:hunter2@db.example/shop\n")}, nil, 1},
		{"options", []string{uri, "--mongodb-username=app", "--mongodb-password=hunter2"}, nil, 0},
		{"environment", []string{uri}, []string{"MOORING_MONGODB_USERNAME=app", "MOORING_MONGODB_PASSWORD=hunter2"}, 0},
		{
			"files",
			[]string{uri, "--mongodb-username-file", write(t, "n", "app\n"), "--mongodb-password-file", write(t, "p", "hunter2\n")},
			nil, 2,
		},
		{"name in the string", []string{"--uri=mongodb://app@db.example/shop", "--mongodb-password-file", write(t, "q", "hunter2")}, nil, 1},
		{
			"configuration file",
			[]string{"--config", write(t, "c.yaml", "uri: mongodb://app@db.example/shop\nmongodb:\n  passwordFile: "+write(t, "r", "hunter2")+"\n")},
			nil, 1,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, err := load(t, row.args, row.environ)
			if err != nil {
				t.Fatalf("Load = %v", err)
			}
			if u := c.User(); u.Name != "app" || u.Password != "hunter2" ||
				c.MongoDB.AuthSource != "shop" || len(c.UserFiles()) != row.files {
				t.Errorf("User() = %q of %s, files %v", u.Name, c.MongoDB.AuthSource, c.UserFiles())
			}
			var b strings.Builder
			if err := c.WriteEffective(&b); err != nil {
				t.Fatal(err)
			}
			shown := b.String() + fmt.Sprintf("%v %+v %v", c.MongoDB, c.MongoDB, c.User())
			if strings.Contains(shown, "hunter2") {
				t.Errorf("the password is shown: %s", shown)
			}
		})
	}
}

func TestUserRefused(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"--uri=mongodb://app:a@db", "--mongodb-password=hunter2"}, "it has a password, but another one is configured"},
		{[]string{"--uri=mongodb://app@db", "--mongodb-username=bob"}, "it has a user name, but another one is configured"},
		{[]string{"--uri=mongodb://app@db", "--mongodb-password-file", write(t, "e", "\n")}, "the file is empty"},
		{[]string{"--uri=mongodb://app@db", "--mongodb-password-file", "/no/such"}, "no such file"},
		{[]string{"--uri=mongodb://db", "--mongodb-password=hunter2"}, "needs a user name"},
		{[]string{"--uri=mongodb://app@db"}, "needs a password"},
	} {
		if _, err := load(t, row.args, nil); err == nil ||
			!strings.Contains(err.Error(), row.want) || strings.ContainsAny(err.Error(), "\n") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Load(%v) = %v, want one error with %q", row.args, err, row.want)
		}
	}
}

func TestReadUser(t *testing.T) {
	const options = "/?tls=true&proxyHost=p&proxyUsername=one&proxyPassword=two&" +
		"tlsCertificateKeyFilePassword=three"
	c, err := load(t, []string{
		"--uri-file", write(t, "u", "mongodb://app@db.example"+options), "--mongodb-password-file", write(t, "p", " hunter2\n"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.UserTexts(); len(got) != 2 || got[1] != "hunter2" {
		t.Errorf("UserTexts() = %q", got)
	}
	for _, row := range []struct {
		uri, password string
		name          string
		want          string // of the error
	}{
		{"mongodb://app@db.example" + options, "new", "app", ""},
		{"mongodb://bob@db.example" + options, "new", "bob", ""},
		{"mongodb://app@db.example" + options, "", "", "the file is empty"},
		{"mongodb://bob@other.example" + options, "new", "", "needs a restart"},
		{"mongodb://app@db.example" + strings.Replace(options, "three", "hunter3", 1), "new", "", "needs a restart"},
		{"mongodb://app@db.example" + strings.Replace(options, "two", "hunter3", 1), "new", "", "needs a restart"},
		{"mongodb://app@db.example" + strings.Replace(options, "one", "hunter3", 1), "new", "", "needs a restart"},
		{"mongodb://db.example" + options, "hunter3", "", "needs a user name"},
		{"nonsense hunter3", "hunter3", "", "does not begin with"},
	} {
		u, err := c.ReadUser([]string{row.uri, row.password})
		if row.want == "" && (err != nil || u.Name != row.name || u.Password != row.password) {
			t.Errorf("ReadUser(%s) = %v, %v", row.uri, u, err)
		}
		if row.want != "" &&
			(err == nil || !strings.Contains(err.Error(), row.want) ||
				strings.Contains(err.Error(), "hunter3")) {
			t.Errorf("ReadUser(%s) = %v, want an error with %q", row.uri, err, row.want)
		}
	}
	if c.User().Password != "hunter2" {
		t.Error("ReadUser changes the configuration")
	}
	none, err := load(t, []string{"--uri-file", write(t, "v", "mongodb://db.example")}, nil)
	if err != nil || len(none.UserFiles()) != 0 {
		t.Errorf("UserFiles() without a user = %v, %v", none.UserFiles(), err)
	}
}

// A configuration that is printed shows no secret, whatever the source of that.
func TestConfigPrintsNoSecret(t *testing.T) {
	const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	for _, args := range [][]string{
		{"--uri=mongodb://app:hunter2@db"},
		{"--uri=mongodb://app@db", "--mongodb-password-file", write(t, "p", "hunter2\n")},
		{"--uri=mongodb://db", "--mongodb-options=proxyHost=p\nproxyUsername=u\nproxyPassword=hunter2"},
	} {
		c, err := load(t, append(args, "--handle-keys="+key, "--idempotency-key="+key), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
			for _, v := range []any{c, *c} {
				text := fmt.Sprintf(verb, v)
				if strings.Contains(text, "hunter2") ||
					strings.Contains(text, fmt.Sprintf("%x", "hunter2")) ||
					strings.Contains(text, key) || strings.Contains(text, "48 49 50") {
					t.Errorf("%s of %T shows a secret of %q", verb, v, args)
				}
			}
		}
	}
}
