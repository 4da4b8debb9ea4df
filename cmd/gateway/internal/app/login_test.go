package app_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
)

// readiness asks /readyz.
func (g *gateway) readiness() (int, string) {
	g.t.Helper()
	resp, err := g.http.Get("http://" + g.Addresses().REST + "/readyz")
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// await waits until /readyz has that status and text.
func (g *gateway) await(status int, text string) {
	g.t.Helper()
	g.until(func() (bool, string) {
		got, body := g.readiness()
		is := fmt.Sprintf("/readyz = %d %q, want %d with %q", got, body, status, text)
		return got == status && strings.Contains(body, text), is
	})
}

// until waits until done is true. On failure it reports the text of done.
func (g *gateway) until(done func() (bool, string)) {
	g.t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	late := time.After(waitTime)
	for {
		ok, is := done()
		if ok {
			return
		}
		select {
		case <-again.C:
		case <-late:
			g.t.Fatal(is)
		}
	}
}

// A gateway with a wrong password says so, and becomes ready once the file has the right one. New
// connections use a password that changes later; existing ones continue.
func TestPasswordFile(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	demand := func(password string) {
		mongo.RequireAuth(&fakemongo.Auth{
			Users: []fakemongo.User{{Name: "app", Password: password}},
		})
	}
	demand("hunter2-right")
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("hunter2-wrong")
	g := start(t, strings.Replace(mongo.URI(), "mongodb://", "mongodb://app@", 1), "--mongodb-password-file", file)
	g.await(http.StatusServiceUnavailable,
		"Authentication failed. (AuthenticationFailed, code 18). Check the user name and "+
			"the password")
	const path, find = "/v1/databases/db/collections/c/documents:find", "{}"
	if status, body := g.post(path, find); status < 400 ||
		!strings.Contains(body, "AuthenticationFailed") {
		t.Errorf("find = %d %s, want the reason", status, body)
	}
	write("")
	g.Reload() // Reload only requests it
	g.until(func() (bool, string) {
		return strings.Contains(g.log.String(), "the file is empty"),
			"the log lacks that the file is empty"
	})
	write("hunter2-right")
	g.Reload()
	g.await(http.StatusOK, "")
	if status, body := g.post(path, find); status != http.StatusOK {
		t.Errorf("find = %d %s", status, body)
	}

	// The password changes on the server; the existing connection continues.
	demand("hunter2-next")
	if status, body := g.post(path, find); status != http.StatusOK {
		t.Errorf("find on an old connection = %d %s", status, body)
	}
	mongo.CutConnections()
	for body := ""; !strings.Contains(body, "AuthenticationFailed"); {
		_, body = g.post(path, find) // the first request finds that the connection is cut
	}
	g.await(http.StatusServiceUnavailable, "AuthenticationFailed")
	write("hunter2-next")
	g.Reload()
	g.await(http.StatusOK, "")
	g.stop()
	for _, want := range []string{
		"cannot log in to MongoDB", "logged in to MongoDB", "the MongoDB user was read",
	} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}
