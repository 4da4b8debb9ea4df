package console_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/browser"
)

// rules permit an operator everything, and tenants their own documents without the secret.
const rules = `
@id("operators") permit (principal == Principal::"key:ops", action, resource);
@id("tenant") @filter("{'tenant': {'$claim': 'tenant'}}") @hidden("secret")
permit (principal in Group::"key:tenants", action in Action::"read", resource in Database::"shop")
when { principal.claims has tenant };`

// newRuledScene is newScene with a policy, on a deployment of a topology. The reader is a tenant.
func newRuledScene(t *testing.T, topology deployment.Topology) *scene {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the gateway")
	}
	s := &scene{t: t, browser: browser.Start(t)}
	s.deployment = deployment.Listen(t, topology, deployment.Versions[0])
	var ops, reader string
	s.operator, ops = suite.Key(t, "ops")
	s.reader, reader = suite.Key(t, "reader")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"keys": ops + "\n" + reader + " groups=tenants claim.tenant=acme\n", "rules.cedar": rules,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	uri := s.deployment.URI(false, nil)
	if topology == deployment.LoadBalanced { // no balancer listens: the gateway takes a host for it
		uri = "mongodb://" + string(s.deployment.Cluster().Host(0).Address()) + "/?loadBalanced=true"
	}
	s.gateway = suite.Start(t, uri, "--console-enabled",
		"--auth-api-keys-file", filepath.Join(dir, "keys"), "--policy-file",
		filepath.Join(dir, "rules.cedar"))
	s.page = s.browser.Open(s.gateway.REST + "/console/")
	s.page.Emulate(1280, 900, "light")
	return s
}

// explained waits until the gateway has answered so many requests of the page to explain something.
func (s *scene) explained(n int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf(`performance.getEntriesByType("resource").filter(
		e => e.name.endsWith("policy:explain") && e.responseEnd > 0).length === %d`, n))
}

// TestWhy has a tenant be refused and hand the link to an operator, who sees why.
func TestWhy(t *testing.T) {
	s := newRuledScene(t, deployment.ReplicaSet)
	s.deployment.SetDocuments("shop.orders",
		document(t, `{"_id":1,"tenant":"acme","total":5,"secret":1}`))
	s.visit(`#/query?db=shop&in=orders&q={"secret":1}`, "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Run")
	s.shows("The query was refused")
	s.page.Errors() // Chromium notes the status of the call
	s.click("Why?")
	s.eventually(`document.querySelector("h1")?.textContent === "Why"`)
	var link string
	s.page.Evaluate("location.hash", &link)
	s.click("Explain")
	s.explained(2)                             // the view has asked by itself, too
	s.shows("The request cannot be explained") // the tenant is not an operator
	s.page.Errors()
	s.click("Sign out")
	s.signIn(s.operator)
	s.goTo(quote(link))
	s.click("Explain")
	s.explained(4)
	s.shows("Refused by tenant")
	s.eventually(`document.querySelector(".verdict .message").textContent.includes("(in filter)")`)
	s.shows("key:reader in key:tenants")
	s.shows("Hidden fields")
	s.shoot("why-refused")
	s.judge("a refusal that is explained")

	s.edit(`{"database":"shop","collection":"orders","filter":{"total":5}}`)
	s.click("Explain")
	s.shows("Allowed by tenant")
	s.eventually(`[...document.querySelectorAll(".differences li")].some(l => l.querySelector("ins").textContent === '{"tenant":"acme","total":5}')`)
	s.shoot("why")
	s.judge("a request that is allowed")
	s.page.Evaluate("location.hash", &link)
	if !strings.Contains(link, "total") {
		t.Errorf("the address is %s", link)
	}
	s.edit(`{"database":"other","collection":"orders"}`)
	s.click("Explain")
	s.shows("Refused by no rule")
	s.eventually(`[...document.querySelectorAll(".near li")].some(l => l.textContent.startsWith("tenant would allow it if resource in Database"))`)
	s.shows("This rule would allow it")
	s.shoot("why-no-rule")
	s.judge("a refusal that no rule decides")
	s.fill("#why-principal", "key:ops")
	s.click("Explain")
	s.shows("None: all documents, all fields.")
	s.fill("#why-call", "/v1/databases/shop/collections/orders/documents:deleteMany")
	s.eventually(`document.querySelector("#why-call")?.value === "DocumentService/DeleteMany"`)
	// the names of the path take the place of those that were there
	s.eventually(`document.querySelector("div.editor").shadowRoot.textContent.includes('"shop"')`)
	s.eventually(`!document.querySelector("div.editor").shadowRoot.textContent.includes('"other"')`)
	s.eventually(`document.querySelector(".verdict h3").textContent.endsWith("DocumentService/Find")`)
	s.click("Explain")
	s.eventually(
		`document.querySelector(".verdict h3").textContent.endsWith("DocumentService/DeleteMany")`)
	s.isClean()
}
