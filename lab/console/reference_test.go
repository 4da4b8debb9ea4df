package console_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/bson"
)

// TestReference opens the reference at /docs, finds a call, and tries it.
func TestReference(t *testing.T) {
	s := newScene(t)
	s.deployment.SetDocuments("shop.orders",
		[]bson.Raw{document(t, `{"_id":7,"customer":"Ada"}`)}...)
	s.page = s.browser.Open(s.gateway.REST + "/docs")
	s.page.Emulate(1280, 900, "light")
	s.signIn(s.reader)
	s.shows("MongoDB's own helpers")
	var tags string
	s.page.Evaluate(`[...document.querySelectorAll(".group > h2")].map(h => h.textContent).slice(0, 2).join()`, &tags)
	if tags != "Document,DocumentResource" {
		t.Errorf("it begins with %s", tags)
	}
	s.judge("the reference")
	s.fill("#search", "findOne first")
	s.eventually(`document.querySelectorAll(".call").length < 5`)
	s.do(`[...document.querySelectorAll(".call summary")].find(e => e.textContent.includes("documents:findOne ")).click()`)
	s.shows("Try it")
	s.judge("a call of the reference")
	s.shoot("reference")
	s.do(`document.querySelector(".try textarea").select()`)
	s.fill(".try textarea", `{"filter":{"_id":7}}`)
	s.click("Send")
	s.shows("Status 200")
	s.shows(`"customer": "Ada"`)
	s.isClean()
}
