package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/browser"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/registry"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

const patience = time.Minute

// scene holds a gateway whose console is open in a browser.
type scene struct {
	t          *testing.T
	deployment *deployment.Deployment
	gateway    *gatewaytest.Gateway
	browser    *browser.Browser
	page       *browser.Page
	// operator and reader are API keys: of a principal that may call DeploymentService, and of one
	// that may not.
	operator, reader string
}

// newScene starts a replica set and a gateway that authenticates, and opens the console.
func newScene(t *testing.T) *scene {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	s := &scene{t: t, browser: browser.Start(t)}
	s.deployment = deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	var lines [2]string
	s.operator, lines[0] = suite.Key(t, "ops")
	s.reader, lines[1] = suite.Key(t, "reader")
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(strings.Join(lines[:], "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.gateway = suite.Start(t, s.deployment.URI(false, nil),
		"--console-enabled", "--auth-api-keys-file", keys, "--auth-operators", "key:ops")
	s.page = s.browser.Open(s.gateway.REST + "/console/")
	s.page.Emulate(1280, 900, "light")
	return s
}

// eventually waits until an expression is true in the page. One that fails is not true yet: what it
// looks for is not there.
func (s *scene) eventually(expression string) {
	s.t.Helper()
	gatewaytest.Eventually(s.t, patience, func() error {
		var ok bool
		tried := "(() => { try { return Boolean(" + expression + ") } catch { return false } })()"
		if err := s.page.Try(tried, &ok); err != nil {
			return err
		}
		if !ok {
			var text string
			// while it loads, there is none
			_ = s.page.Try("document.body?.innerText ?? \"\"", &text)
			return fmt.Errorf("%s is false; the page shows:\n%s", expression, text)
		}
		return nil
	})
}

// shows waits until the page shows a text.
func (s *scene) shows(text string) {
	s.t.Helper()
	s.eventually("document.body.innerText.includes(" + quote(text) + ")")
}

// do runs statements in the page.
func (s *scene) do(statements string) {
	s.t.Helper()
	s.page.Evaluate("(() => {"+statements+"; return 0})()", new(int))
}

// click clicks the button or the link with a text.
func (s *scene) click(text string) {
	s.t.Helper()
	found := "[...document.querySelectorAll('button, a, summary')].find(e => !e.disabled && " +
		"e.textContent.trim() === " + quote(text) + ")"
	s.eventually(found)
	s.do(found + ".click()")
}

// fill puts a text where the focus is after a click on an element.
func (s *scene) fill(selector, text string) {
	s.t.Helper()
	at := "document.querySelector(" + quote(selector) + ")"
	s.eventually(at)
	s.do(at + ".focus(); " + at + ".select?.()")
	s.page.Type(text)
}

func (s *scene) signIn(key string) {
	s.t.Helper()
	s.fill("#key", key)
	s.click("Sign in")
}

// isClean checks that nothing in the page went wrong: no error on the console, which has the
// violations of its policy, too, and no request to another origin.
func (s *scene) isClean() {
	s.t.Helper()
	if errs := s.page.Errors(); len(errs) > 0 {
		s.t.Errorf("the console of the page has %q", errs)
	}
	var foreign []string
	s.page.Evaluate(`performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith(location.origin + "/"))`, &foreign)
	if len(foreign) > 0 {
		s.t.Errorf("requests to other origins: %q", foreign)
	}
}

func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// shoot writes what the page looks like to the directory of LAB_CONSOLE_SHOTS, if it is set: in
// both colour schemes, and as wide as a phone.
func (s *scene) shoot(name string) {
	s.t.Helper()
	dir := os.Getenv("LAB_CONSOLE_SHOTS")
	if dir == "" {
		return
	}
	defer s.page.Emulate(1280, 900, "light")
	for _, as := range []struct {
		suffix        string
		width, height int
		scheme        string
	}{{"light", 1280, 900, "light"}, {"dark", 1280, 900, "dark"}, {"phone", 360, 844, "light"}} {
		s.page.Emulate(as.width, as.height, as.scheme)
		// plots are drawn again
		s.page.Evaluate("new Promise(r => setTimeout(() => r(0), 400))", new(int))
		if err := os.WriteFile(filepath.Join(dir, name+"-"+as.suffix+".png"), s.page.Screenshot(),
			0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// judge has axe-core look at the page, and wants no finding.
func (s *scene) judge(what string) {
	s.t.Helper()
	axe, err := os.ReadFile(filepath.Join(judges(s.t), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.page.Evaluate("(() => {"+string(axe)+"; return 0})()", new(int))
	for _, scheme := range []string{"light", "dark"} {
		s.page.Emulate(1280, 900, scheme)
		var found []string
		s.page.Evaluate(`axe.run().then(r => r.violations.map(
			v => v.impact + " " + v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("\n")))`, &found)
		for _, f := range found {
			s.t.Errorf("axe, %s, %s: %s", what, scheme, f)
		}
	}
	s.page.Emulate(1280, 900, "light")
	var wide int
	s.page.Emulate(360, 844, "light")
	s.page.Evaluate("document.documentElement.scrollWidth", &wide)
	if wide > 360 {
		s.t.Errorf("%s is %d pixels wide on a phone, of 360", what, wide)
	}
	s.page.Emulate(1280, 900, "light")
}

// judges installs the npm project, once for each test.
func judges(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		text, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	registry.Fetch(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-progress", "--no-audit",
		"--no-fund")
	return dir
}

// knowsAll waits until the gateway knows the kinds of all servers: none shows as a change then.
func (s *scene) knowsAll() {
	s.t.Helper()
	gatewaytest.Eventually(s.t, patience, func() error {
		seen := string(s.gateway.Do(s.t, http.MethodGet, "/v1/deployment/topology", "",
			gatewaytest.Header{Name: "Authorization", Value: "Bearer " + s.operator}).Body)
		if strings.Count(seen, `"RSPrimary"`) != 1 || strings.Count(seen, `"RSSecondary"`) != 2 {
			return fmt.Errorf("the gateway sees %s", seen)
		}
		return nil
	})
}

// TestDeployment has an operator sign in, and see the servers, an election and the loss of a server
// as they happen.
func TestDeployment(t *testing.T) {
	s := newScene(t)
	s.shows("Sign in to Mooring")
	s.shoot("sign-in")
	s.judge("the sign-in")
	s.isClean()
	s.knowsAll()
	s.signIn(s.operator)
	hosts := s.deployment.Cluster().Hosts()
	for _, h := range hosts {
		s.shows(string(h.Address()))
	}
	s.shows("changes show as they happen")
	s.shows("Nothing has changed")
	s.deployment.Cluster().Elect(hosts[1])
	s.shows(string(hosts[1].Address()) + " is the primary, after " + string(hosts[0].Address()))
	hosts[2].SetDown(true)
	s.shows(string(hosts[2].Address()) + " is lost")
	s.eventually(`document.querySelectorAll(".card.Unknown").length === 1`)
	s.isClean()
	s.shoot("deployment")
	s.judge("the deployment")
	s.click("Sign out")
	s.shows("Sign in to Mooring")
	s.isClean()
}

// TestRefusedKey checks what the user sees whose key does not count, or has no permission.
func TestRefusedKey(t *testing.T) {
	s := newScene(t)
	s.signIn("mk_wrong")
	s.shows("The gateway did not let you in")
	s.signIn(s.reader)
	s.shows("The deployment is for operators to see")
	s.shows("auth.operators")
	s.shoot("refused")
	s.judge("a refusal")
}

// TestWithoutSignIn checks that nothing is asked for where the API asks for nothing.
func TestWithoutSignIn(t *testing.T) {
	s := &scene{t: t, browser: browser.Start(t)}
	s.deployment = deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0])
	s.gateway = suite.Start(t, s.deployment.URI(false, nil), "--console-enabled")
	s.page = s.browser.Open(s.gateway.REST + "/console/")
	s.shows("changes show as they happen")
	s.isClean()
}

// TestSizes checks how much a browser loads until the first view is there.
func TestSizes(t *testing.T) {
	s := newScene(t)
	s.signIn(s.operator)
	s.shows("changes show as they happen")
	const most = 120 << 10
	if n := s.loaded(); n > most {
		t.Errorf("the first view is %d bytes, want %d at most", n, most)
	} else {
		t.Logf("the first view is %d bytes", n)
	}
}

// loaded returns how many bytes of the console the page has loaded, as they were sent.
func (s *scene) loaded() (n int) {
	s.t.Helper()
	s.page.Evaluate(`[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
		.filter(e => e.name.includes("/console/")).reduce((n, e) => n + e.encodedBodySize, 0)`, &n)
	return n
}

// TestOtherOrigins checks that a page of another origin can neither frame the console nor read its
// files, and that a name that is not the gateway's leads nowhere.
func TestOtherOrigins(t *testing.T) {
	s := newScene(t)
	s.shows("Sign in to Mooring")
	// localhost is another origin than 127.0.0.1.
	other := s.browser.Open(strings.Replace(s.gateway.REST, "127.0.0.1", "localhost", 1) +
		"/healthz")
	var framed string
	other.Evaluate(fmt.Sprintf(`new Promise(done => {
		const f = document.createElement("iframe");
		f.onload = () => { try { done(f.contentDocument === null ? "refused" : "framed: " + f.contentDocument.body.innerText) } catch (e) { done(String(e)) } };
		f.src = %s; document.body.append(f) })`, quote(s.gateway.REST+"/console/")), &framed)
	if errs := strings.Join(other.Errors(), "\n"); !strings.Contains(errs, "frame-ancestors") {
		t.Errorf("the frame: %s; the page complains of %q", framed, errs)
	}
	var read string
	other.Evaluate(fmt.Sprintf(`fetch(%s).then(r => r.text(), e => "refused")`,
		quote(s.gateway.REST+"/console/")), &read)
	if read != "refused" {
		t.Errorf("another origin reads %q", read)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.gateway.REST+"/console/",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "evil.example"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another name is answered with %d", resp.StatusCode)
	}
}
