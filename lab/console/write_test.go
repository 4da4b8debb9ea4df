package console_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// everyType has a value of each BSON type, and some whose text could be read as another value:
// doubles without a fraction, -0, a NaN, numbers beyond those of JavaScript, names that JavaScript
// moves, an array of arrays.
const everyType = `{"_id":{"$oid":"56e1fc72e0c917e9c4714161"},"double":{"$numberDouble":"1.5"},"whole":{"$numberDouble":"3.0"},
	"zero":{"$numberDouble":"-0.0"},"nan":{"$numberDouble":"NaN"},"inf":{"$numberDouble":"-Infinity"},"large":{"$numberDouble":"1e+300"},
	"string":"a\u0000b\"\\\u2028é","document":{"2":{"$numberInt":"1"},"1":{"$numberInt":"2"},"":{"$numberInt":"3"},"a.b":true,"$c":null},
	"array":[{"$numberInt":"1"},[],{},[[{"$numberLong":"1"}]]],"binary":{"$binary":{"base64":"AQID","subType":"00"}},
	"old":{"$binary":{"base64":"AQID","subType":"02"}},"own":{"$binary":{"base64":"","subType":"80"}},
	"vector":{"$binary":{"base64":"JwAAAIA/","subType":"09"}},"uuid":{"$binary":{"base64":"c//SZESzTGmQ6OfR38A11A==","subType":"04"}},
	"undefined":{"$undefined":true},"bool":false,"date":{"$date":{"$numberLong":"1700000000123"}},"ancient":{"$date":{"$numberLong":"-99999999999999"}},
	"null":null,"regex":{"$regularExpression":{"pattern":"^a/\"","options":"im"}},
	"pointer":{"$dbPointer":{"$ref":"a.b","$id":{"$oid":"56e1fc72e0c917e9c4714161"}}},"code":{"$code":"function() { return \"x\" }"},
	"symbol":{"$symbol":"s"},"scope":{"$code":"f()","$scope":{"x":{"$numberInt":"1"}}},"int32":{"$numberInt":"-2147483648"},
	"timestamp":{"$timestamp":{"t":4294967295,"i":1}},"int64":{"$numberLong":"9223372036854775807"},"small":{"$numberLong":"5"},
	"decimal":{"$numberDecimal":"1.50E+3"},"min":{"$minKey":1},"max":{"$maxKey":1},"last":{"$numberInt":"7"}}`

// openEditor opens a document of the result in the dialog, and waits for its text.
func (s *scene) openEditor() {
	s.t.Helper()
	s.click("Edit")
	s.eventually(inDialog)
}

// inDialog is true when the editor has drawn its last line: before it has measured its lines, it
// draws the first ones only.
const inDialog = `[...document.querySelector("dialog div.editor")?.shadowRoot?.querySelectorAll(".cm-line") ?? []]
	.at(-1)?.textContent === "}"`

// replace replaces a part of the text in the dialog's editor.
func (s *scene) replace(old, now string) {
	s.t.Helper()
	const content = `document.querySelector("dialog div.editor").shadowRoot.querySelector(".cm-content")`
	var text string
	s.page.Evaluate(`[...`+content+
		`.querySelectorAll(".cm-line")].map(l => l.textContent).join("\n")`, &text)
	if strings.Count(text, old) != 1 {
		s.t.Fatalf("%s is not once in\n%s", old, text)
	}
	s.do(content + ".focus()")
	s.page.SelectAll()
	s.page.Type(strings.Replace(text, old, now, 1))
}

// TestEditEveryType changes one field of a document that has every BSON type. The other bytes stay.
func TestEditEveryType(t *testing.T) {
	s := newScene(t)
	before := document(t, everyType)
	s.deployment.SetDocuments("shop.things", before)
	s.page.Emulate(1280, 2600, "light") // the editor draws the lines that can be seen
	s.visit("#/query?db=shop&in=things", "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Run")
	s.shows("Documents 1 to 1")

	for _, edit := range []struct{ name, old, now, change, want string }{
		{
			"an int", `"last": 7`, `"last": 8`, "last 7 8",
			strings.Replace(everyType, `"last":{"$numberInt":"7"}`, `"last":{"$numberInt":"8"}`, 1),
		},
		{
			"an int of an array", "\"array\": [\n    1,", "\"array\": [\n    100,", "array.0 1 100",
			strings.NewReplacer(`"array":[{"$numberInt":"1"}`, `"array":[{"$numberInt":"100"}`, `"last":{"$numberInt":"7"}`, `"last":{"$numberInt":"8"}`).Replace(everyType),
		},
		{
			"beside names that no update can have", `"1": 2,`, `"1": 20,`, "document.1 2 20",
			strings.NewReplacer(`"array":[{"$numberInt":"1"}`, `"array":[{"$numberInt":"100"}`,
				`"last":{"$numberInt":"7"}`, `"last":{"$numberInt":"8"}`,
				`"1":{"$numberInt":"2"}`, `"1":{"$numberInt":"20"}`).Replace(everyType),
		},
	} {
		t.Run(edit.name, func(t *testing.T) {
			s.openEditor()
			s.shows("You have changed nothing.")
			s.replace(edit.old, edit.now)
			s.eventually(`[...document.querySelectorAll(".differences li")].map(l => [...l.children].map(c => c.textContent).join(" ")).join() === ` + quote(edit.change))
			s.click("Save the change")
			s.shows("The document is changed.")
			after, _ := s.deployment.Documents("shop.things")
			if want := document(t, edit.want); len(after) != 1 || !bytes.Equal(after[0], want) {
				t.Errorf("the document is\n%x, want\n%x", after, want)
			}
		})
	}
	s.isClean()
}

// TestEdit looks at the dialog, and checks edits that no update can make, and a change by another.
func TestEdit(t *testing.T) {
	s := newScene(t)
	s.deployment.SetDocuments("shop.orders", document(t,
		`{"_id":1,"customer":"Ada","total":{"$numberDecimal":"12.50"},"items":[{"sku":"a","n":1},{"sku":"b","n":2}],"a.b":1,"at":{"$date":"2026-11-01T10:00:00Z"}}`))
	s.visit("#/query?db=shop&in=orders", "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Run")
	for _, refused := range []struct{ old, now, text string }{
		{`"_id": 1`, `"_id": 2`, "The _id of a document cannot be changed."},
		{`"a.b": 1`, `"a.b": 2`, `No update can name the field "a.b"`},
		{`"customer": "Ada",`, `"customer": "Ada", "customer": "Bob",`, "Two fields have the same name"},
		{`"customer": "Ada",`, `"new": 1, "customer": "Ada",`, "new ones come last"},
		{`"customer": "Ada",`, `"customer": `, "JSON"},
	} {
		s.openEditor()
		s.replace(refused.old, refused.now)
		s.shows(refused.text)
		s.eventually(`document.querySelector("dialog button.primary").disabled`)
		s.click("Close")
	}
	s.openEditor()
	s.replace(`10:00:00.000Z"`, `10:00:00.000"`) // of which zone?
	s.click("Save the change")
	s.shows("Nothing was changed")
	s.page.Errors() // Chromium notes the status of the call
	s.click("Close")
	s.openEditor()
	s.replace(`"n": 2`, `"n": 3, "gift": true`)
	s.shows("items.1.gift")
	s.shoot("edit")
	s.judge("an edit")
	s.page.Emulate(360, 640, "light")
	// it scrolls within its edge, which is whole
	s.eventually(`(host => {
		const editor = host.shadowRoot.querySelector(".cm-editor"), scroller = host.shadowRoot.querySelector(".cm-scroller");
		return scroller.scrollHeight > scroller.clientHeight && getComputedStyle(host).overflow === "visible" &&
			editor.getBoundingClientRect().bottom <= host.getBoundingClientRect().bottom;
	})(document.querySelector("dialog div.editor"))`)
	s.page.Emulate(1280, 900, "light")
	if status, answer := s.post(s.reader,
		"/v1/databases/shop/collections/orders/documents:updateOne",
		`{"filter":{"_id":1},"update":{"$set":{"customer":"Eve"}}}`); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	s.click("Save 2 changes")
	s.shows("Nothing was changed")
	s.shows("PreconditionFailed")
	s.judge("an edit that came late")
	s.page.Errors() // Chromium notes the status of the call
	s.click("Read it again")
	s.eventually(
		`document.querySelector("dialog div.editor").shadowRoot.textContent.includes("Eve")`)
	s.replace(`"customer": "Eve",`, ``)
	s.shows("is removed")
	s.click("Save the change")
	s.shows("The document is changed.")
	after, _ := s.deployment.Documents("shop.orders")
	if want := document(t,
		`{"_id":1,"total":{"$numberDecimal":"12.50"},"items":[{"sku":"a","n":1},{"sku":"b","n":2}],"a.b":1,"at":{"$date":"2026-11-01T10:00:00Z"}}`); !bytes.Equal(after[0], want) {
		t.Errorf("the document is %s", after[0])
	}
	s.isClean()
}

// TestWrites inserts, updates and deletes, each after a preview and a confirmation.
func TestWrites(t *testing.T) {
	s := newScene(t)
	var orders []bson.Raw
	for i := range 12 {
		orders = append(orders, document(t, fmt.Sprintf(`{"_id":%d,"status":"new","n":%d}`, i, i)))
	}
	s.deployment.SetDocuments("shop.orders", orders...)
	count := func(filter string) string {
		t.Helper()
		_, answer := s.post(s.reader,
			"/v1/databases/shop/collections/orders/documents:countDocuments",
			`{"filter":`+filter+`}`)
		return answer
	}
	s.visit("#/query", "Sign in to Mooring")
	s.signIn(s.reader)
	for _, write := range []struct {
		kind, q, update, preview, button, confirm, outcome, filter,
		before, after string
	}{
		{
			"updateMany", `{"n":{"$lt":7}}`, `{"$set":{"status":"old"}}`, "7 documents match.", "Update 7 documents…", "Update now",
			"Done: 7 documents matched, 7 documents changed.", `{"status":"old"}`, `{"count":0}`, `{"count":7}`,
		},
		{
			"updateOne", `{"n":{"$gte":7}}`, `{"$inc":{"n":100}}`, "5 documents match; the call changes one of them", "Update 1 document…", "Update now",
			"Done: 1 document matched, 1 document changed.", `{"n":{"$gte":100}}`, `{"count":0}`, `{"count":1}`,
		},
		{
			"deleteMany", `{"status":"old"}`, "", "7 documents match.", "Delete 7 documents…", "Delete now",
			"Done: 7 documents deleted.", `{}`, `{"count":12}`, `{"count":5}`,
		},
		{
			"insertMany", `[{"_id":"a"},{"_id":"b"}]`, "", "This inserts 2 documents:", "Insert 2 documents…", "Insert now",
			"Done: 2 documents inserted.", `{"_id":{"$in":["a","b"]}}`, `{"count":0}`, `{"count":2}`,
		},
		{
			"insertOne", `{"_id":"c","x":{"$numberLong":"5"}}`, "", "This inserts 1 document:", "Insert 1 document…", "Insert now",
			"Done: 1 document inserted.", `{"_id":"c"}`, `{"count":0}`, `{"count":1}`,
		},
		{
			"deleteOne", `{"_id":"c"}`, "", "1 document matches.", "Delete 1 document…", "Delete now",
			"Done: 1 document deleted.", `{"_id":"c"}`, `{"count":1}`, `{"count":0}`,
		},
	} {
		s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: "orders", kind: ` +
			quote(write.kind) + `, q: ` + quote(write.q) + `, update: ` + quote(write.update) +
			`})`)
		s.click("Preview")
		s.shows(write.preview)
		if write.kind == "deleteMany" {
			s.shoot("preview")
			s.judge("a preview")
		}
		s.click(write.button)
		if write.kind == "updateMany" {
			s.shoot("confirm-write")
			s.judge("a confirmation of a write")
		}
		s.click("Cancel")
		if got := count(write.filter); got != write.before {
			t.Errorf("%s: %s before it is confirmed, want %s", write.kind, got, write.before)
		}
		s.click(write.button)
		s.click(write.confirm)
		s.shows(write.outcome)
		if got := count(write.filter); got != write.after {
			t.Errorf("%s: %s after it, want %s", write.kind, got, write.after)
		}
	}
	s.visit(`#/query?db=shop&in=orders&kind=deleteMany&q={}`, "Query")
	s.click("Preview")
	s.shows("7 documents match.")
	s.edit(`{"n":12345}`)
	// it is not what was looked at
	s.eventually(`!document.body.innerText.includes("7 documents match.")`)
	s.isClean()
}

// TestFailedWrites has writes fail in part, and without an answer: the console says what was done
// and what may be, and offers the same write only after another preview.
func TestFailedWrites(t *testing.T) {
	s := newScene(t)
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":0,"n":1}`))
	s.visit("#/query", "Sign in to Mooring")
	s.signIn(s.reader)
	write := func(kind, q, update, button, confirm string) {
		t.Helper()
		s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: "orders", kind: ` +
			quote(kind) + `, q: ` + quote(q) + `, update: ` + quote(update) + `})`)
		s.click("Preview")
		s.click(button)
		s.click(confirm)
	}
	noButton := `!document.querySelector("section button.danger")`
	write("insertMany", `[{"_id":"p"},{"_id":0},{"_id":"q"}]`, "", "Insert 3 documents…",
		"Insert now")
	s.shows("Done in part: 1 document inserted.")
	s.shows("The rest was refused")
	s.eventually(noButton)

	for _, h := range s.deployment.Cluster().Hosts() {
		h.Handle("update", fakemongo.Always(fakemongo.Drop()))
	}
	unmet := fakemongo.Always(fakemongo.Document(document(t, `{"ok":1,"n":1,"value":{"_id":0,"n":2},
		"writeConcernError":{"code":64,"codeName":"WriteConcernTimeout","errmsg":"waited"}}`)))
	for _, h := range s.deployment.Cluster().Hosts() {
		h.Handle("delete", unmet)
		h.Handle("findAndModify", unmet)
	}
	write("deleteMany", `{"n":1}`, "", "Delete 1 document…", "Delete now")
	s.shows("Done: 1 document deleted. It is not acknowledged as the write concern asks, " +
		"and may be undone: 64 WriteConcernTimeout.")
	s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: "orders", q: ` +
		quote(`{"n":1}`) + `})`)
	s.click("Run")
	s.openEditor()
	s.replace(`"n": 1`, `"n": 2`)
	s.click("Save the change")
	s.shows("The document is changed. It is not acknowledged")
	for _, h := range s.deployment.Cluster().Hosts() {
		h.Handle("delete", fakemongo.Always(fakemongo.Document(document(t,
			`{"ok":1,"n":0,"writeErrors":[{"index":0,"code":11601,"errmsg":"stopped"}]}`))))
		h.Handle("findAndModify", fakemongo.Always(fakemongo.Drop()))
	}
	write("deleteMany", `{"n":1}`, "", "Delete 1 document…", "Delete now")
	s.shows("or a part of it")
	s.eventually(noButton)
	write("updateMany", `{"n":1}`, `{"$inc":{"n":0}}`, "Update 1 document…", "Update now")
	s.shows("It may or may not have been done")
	s.shows("WriteOutcomeUnknown")
	s.eventually(noButton)

	s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: "orders", q: ` +
		quote(`{"n":1}`) + `})`)
	s.click("Run")
	s.openEditor()
	s.replace(`"n": 1`, `"n": 2`)
	s.click("Save the change")
	s.shows("It may be changed")
	s.page.SetOffline(true)
	s.click("Read it again")
	s.shows("NoAnswer")
	s.shows("It may be changed")
	s.page.SetOffline(false)
	s.click("Read it again")
	s.shows("You have changed nothing.")
	s.page.Errors() // Chromium notes the status of the calls
}

// TestPreviewDuringAWrite checks that a write that is under way stays in sight, and says what has
// become of it.
func TestPreviewDuringAWrite(t *testing.T) {
	s := newScene(t)
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":0,"n":1}`))
	goOn := make(chan struct{})
	for _, h := range s.deployment.Cluster().Hosts() {
		h.Handle("delete", func(*fakemongo.Command) fakemongo.Reply {
			<-goOn
			return fakemongo.Document(document(t, `{"ok":1,"n":1}`))
		})
	}
	s.visit(`#/query?db=shop&in=orders&kind=deleteMany&q={"n":1}`, "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Preview")
	s.click("Delete 1 document…")
	s.click("Delete now")
	s.eventually(`document.querySelector("section button.danger").disabled`)
	s.do(`document.querySelector("form").requestSubmit()`) // as Ctrl-Enter does
	s.edit(`{"n":2}`)
	s.eventually(`document.querySelector("section button.danger").disabled`)
	close(goOn)
	s.shows("Done: 1 document deleted.")
	s.isClean()
}

// TestPreviewAgain previews the same write twice, with another document between.
func TestPreviewAgain(t *testing.T) {
	s := newScene(t)
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":0,"n":1}`))
	s.visit(`#/query?db=shop&in=orders&kind=deleteMany&q={"n":1}`, "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Preview")
	s.shows("1 document matches.")
	if status, answer := s.post(s.reader,
		"/v1/databases/shop/collections/orders/documents:insertOne",
		`{"document":{"_id":1,"n":1}}`); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	s.click("Preview")
	s.shows("2 documents match.")
	s.isClean()
}

// TestEditOfAResult opens a document of the result that shows while the form has another query.
func TestEditOfAResult(t *testing.T) {
	s := newScene(t)
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":0,"n":1}`))
	s.visit("#/query?db=shop&in=orders", "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Run")
	s.shows("Documents 1 to 1")
	s.do(`[...document.querySelectorAll("label")].find(
		l => l.textContent === "Collection").control.setAttribute("data-name", "collection")`)
	s.fill("[data-name=collection]", "others")
	s.openEditor()
	s.eventually(`document.querySelector("#edit").textContent.endsWith("of shop.orders")`)
	s.isClean()
}

// TestExplain shows the stages of a plan.
func TestExplain(t *testing.T) {
	s := newScene(t)
	for _, h := range s.deployment.Cluster().Hosts() {
		h.Handle("explain", func(*fakemongo.Command) fakemongo.Reply {
			return fakemongo.Document(document(t, `{"ok":1,"queryPlanner":{"winningPlan":{"stage":"SORT"}},"executionStats":{"nReturned":3,"totalDocsExamined":41,
				"totalKeysExamined":0,"executionTimeMillis":12,"executionStages":{"stage":"SORT","nReturned":3,"sortPattern":{"total":-1},
				"inputStage":{"stage":"OR","nReturned":3,"inputStages":[{"stage":"COLLSCAN","nReturned":2,"docsExamined":40,"filter":{"a":{"$eq":1}}},
				{"stage":"FETCH","nReturned":1,"docsExamined":1,"inputStage":{"stage":"IXSCAN","indexName":"b_1","keyPattern":{"b":1},"nReturned":1}}]}}}}`))
		})
	}
	s.visit(`#/query?db=shop&in=orders&q={"a":1}`, "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Explain")
	s.shows("How the server runs it")
	s.shows("reads the whole collection")
	var stages string
	s.page.Evaluate(`[...document.querySelectorAll(".plan strong")].map(e => e.textContent).join()`,
		&stages)
	if stages != "SORT,OR,COLLSCAN,FETCH,IXSCAN" {
		t.Errorf("the stages are %s", stages)
	}
	s.shoot("explain")
	s.judge("a plan")
	s.isClean()
}
