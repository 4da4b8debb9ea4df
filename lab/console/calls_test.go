package console_test

import (
	"net/http"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

const findOrders = "/v1/databases/shop/collections/orders/documents:find"

// callSlowlyAndRefused makes a find that takes longer than log.slowRequest, and a refused one.
func (s *scene) callSlowlyAndRefused() {
	s.t.Helper()
	late := document(s.t, `{"configureFailPoint":"failCommand","mode":{"times":1},
		"data":{"failCommands":["find"],"blockConnection":true,"blockTimeMS":1200}}`)
	primary := s.deployment.Cluster().Primary().Address()
	if err := s.deployment.SetFailPoint(primary, bson.ObjectID{}, late); err != nil {
		s.t.Fatal(err)
	}
	for _, c := range []struct {
		body string
		want int
	}{
		{`{"filter":{"total":{"$gt":1}}}`, http.StatusOK},
		{`{"filter":{"secret":1}}`, http.StatusForbidden},
	} {
		if status, answer := s.post(s.reader, findOrders, c.body); status != c.want {
			s.t.Fatalf("%s: %d %s, want %d", c.body, status, answer, c.want)
		}
	}
}

// showsServerTime waits until the page says that the time of a call, or most of it, went by at its
// server: 1,200 ms or more.
func (s *scene) showsServerTime() {
	s.t.Helper()
	s.eventually(`[...document.querySelectorAll(".said")].some(
		e => /(^|, )server (\d{4} ms|\d{2,}\.\d s)/.test(e.textContent))`)
}

// TestCalls has a call that its server answers late, and one that the policy refuses. An operator
// sees where the time of the first one went, and why the second was refused.
func TestCalls(t *testing.T) {
	s := newRuledScene(t, deployment.ReplicaSet)
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":1,"tenant":"acme","total":5}`))
	s.signIn(s.operator)
	s.visit("#/calls", "Slow and refused")
	s.shows("No call took as long as log.slowRequest")
	s.shows("No call was refused by the policy or by a limit.")
	s.judge("no calls")

	s.callSlowlyAndRefused()
	s.click("List again")
	// The shape is of what the server was sent.
	s.shows("total: {$gt: ?}")
	s.showsServerTime()
	s.shows("PolicyRefused")
	s.judge("calls")
	s.shoot("calls")
	s.page.Emulate(360, 844, "light")
	s.eventually(
		`[...document.querySelectorAll(".scroll")].every(e => e.scrollWidth <= e.clientWidth)`)
	s.page.Emulate(1280, 900, "light")
	s.click("Why?")
	s.eventually(`document.querySelector("h1")?.textContent === "Why"`)
	const refused = "the request names a field that the caller may not use"
	s.shows(refused)
	var why string
	s.page.Evaluate("location.hash", &why)
	s.shows("What is known of it is allowed by tenant") // its filter is not known
	s.eventually(`[...document.querySelectorAll(".properties > div")].some(d => d.textContent === "Hidden fieldssecret")`)
	s.judge("a refusal whose filter is not known")
	s.shoot("why-part")
	s.fill("#why-call", "/v1/databases/other/collections/orders/documents:find")
	s.eventually(`document.querySelector("div.editor").shadowRoot.textContent.includes('"other"')`)
	s.shows("What is known of it is allowed by tenant") // the verdict is of what was explained
	s.edit(`{"database":"shop","collection":"orders","filter":{"secret":1}}`)
	s.click("Explain")
	s.shows("Refused by tenant")
	s.page.Errors() // Chromium notes the status of the refused call
	// An address says that a call was refused, and not why: it can come from a stranger.
	s.visit("#/why?call=DocumentService/Find&q=%7B%7D&refused=Call+me&said=Call+me", "Why")
	s.shows("The call was refused")
	var told bool
	if s.page.Evaluate(`document.body.innerText.includes("Call me")`, &told); told {
		t.Error("the page shows a text of the address")
	}
	s.isClean()
	s.visit(why, "Why")
	s.shows(refused)
	s.click("Sign out")
	s.signIn(s.reader)
	s.shows("key:reader")
	s.shows("The call was refused")
	if s.page.Evaluate(`document.body.innerText.includes(`+quote(refused)+`)`, &told); told {
		t.Error("the page shows the next principal why another one's call was refused")
	}
}
