package console_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// post makes a call of REST with a key.
func (s *scene) post(key, path, body string) (status int, answer string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.gateway.REST+path,
		strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestHeld has an operator find a cursor of another principal and kill it.
func TestHeld(t *testing.T) {
	s := newScene(t)
	var orders []bson.Raw
	for i := range 10 {
		orders = append(orders, document(t, fmt.Sprintf(`{"_id":%d}`, i)))
	}
	s.deployment.SetDocuments("shop.orders", orders...)
	s.signIn(s.operator)
	s.visit("#/held", "Held")
	s.shows("Clients hold no cursors now.")
	status, page := s.post(s.reader, "/v1/databases/shop/collections/orders/documents:find",
		`{"batchSize":2}`)
	_, cursor, found := strings.Cut(page, `"cursor":"`)
	if cursor, _, _ = strings.Cut(cursor, `"`); status != http.StatusOK || !found {
		t.Fatalf("%d %s", status, page)
	}
	s.click("List")
	s.shows("1 cursor: key:reader 1")
	s.shoot("held")
	s.judge("what is held")
	s.click("Kill")
	s.shows("Kill this cursor?")
	s.judge("a confirmation")
	s.shoot("kill")
	s.click("Cancel")
	if n := s.deployment.OpenCursors(); n != 1 {
		t.Errorf("%d cursors are open after Cancel", n)
	}
	s.click("Kill")
	s.click("Kill it")
	s.shows("The cursor on shop.orders has ended.")
	s.shows("Clients hold no cursors now.")
	if n := s.deployment.OpenCursors(); n != 0 {
		t.Errorf("%d cursors are open after it was killed", n)
	}
	if status, answer := s.post(s.reader, "/v1/cursors:next",
		`{"cursor":"`+cursor+`"}`); status != http.StatusNotFound {
		t.Errorf("its next page: %d %s", status, answer)
	}
	s.isClean()
}

// quiet has streams of changes begin with the empty line that comes while nothing changes.
const quiet = `
	const real = fetch;
	globalThis.fetch = async (url, options) => {
		const answer = await real(url, options);
		if (!new URL(url, location.href).pathname.endsWith("/orders:watch")) return answer;
		const empty = new TransformStream({start: c => c.enqueue(new TextEncoder().encode("\n"))});
		return new Response(answer.body.pipeThrough(empty), answer);
	};`

// TestTail follows the changes of a collection, of which there are none at first, pauses, and goes
// on.
func TestTail(t *testing.T) {
	s := newScene(t)
	s.visit("#/tail?db=shop&in=orders", "Sign in to Mooring")
	s.signIn(s.reader)
	s.do(quiet)
	s.click("Follow")
	s.eventually(`document.querySelector(".live")?.textContent === "following"`)
	insert := func(id string) {
		t.Helper()
		if status, answer := s.post(s.reader,
			"/v1/databases/shop/collections/orders/documents:insertOne",
			`{"document":{"_id":`+quote(id)+`}}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	insert("one")
	s.shows(`shop.orders "one"`)
	s.click("Pause")
	insert("two")
	s.shows("paused, 1 since then")
	var shown int
	if s.page.Evaluate(`document.querySelectorAll(".changes li").length`, &shown); shown != 1 {
		t.Errorf("%d changes show while it is paused", shown)
	}
	s.click("Resume")
	s.shows(`shop.orders "two"`)
	s.do(`document.querySelector(".changes summary").click()`)
	s.shows("operationType")
	s.isClean()
	s.shoot("tail")
	s.judge("a live tail")
	s.click("Stop")
	s.shows("not following")
	s.isClean()
}

// corpus has texts that would run a script if they were anything but text, in a page or in an
// attribute of it.
var corpus = []string{
	`<script>globalThis.ran = 1</script>`, `<img src=x onerror="globalThis.ran = 1">`, `"><svg onload=globalThis.ran=1>`,
	`' onmouseover='globalThis.ran=1`, `javascript:globalThis.ran=1`, `{{constructor.constructor("globalThis.ran=1")()}}`,
	"${globalThis.ran=1}", `</script><script>globalThis.ran=1</script>`, `<iframe srcdoc="<script>parent.ran=1</script>">`,
	`<style>*{background:url(http://evil.example/)}</style>`, `<a href="javascript:globalThis.ran=1">x</a>`, `__proto__`, `constructor`,
	"\u202e<b>\u2028\u2029",
}

// TestNothingRuns puts texts that would run into every place that a database and a client can set,
// and looks at each view.
func TestNothingRuns(t *testing.T) {
	s := newScene(t)
	var docs []bson.Raw
	for i, text := range corpus {
		text := strings.ReplaceAll(text, "$", "＄") // a field's name may not begin with it
		docs = append(docs,
			document(t,
				fmt.Sprintf(`{"_id":%d,%s:{%s:[%[3]s]},"r":{"$regularExpression":{"pattern":%[3]s,"options":""}},"c":{"$code":%[3]s}}`,
					i, quote(text), quote(text))))
	}
	name := corpus[1]
	s.deployment.SetDocuments("shop."+name, docs...)
	s.deployment.Cluster().Host(0).SetTags("<img src=x onerror=globalThis.ran=1>", corpus[1])
	s.signIn(s.operator)
	s.shows("changes show as they happen")
	for _, view := range []string{"JSON", "Table"} {
		s.visit("#/deployment", "Deployment")
		s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: ` + quote(name) +
			`})`)
		s.click("Run")
		s.shows(fmt.Sprintf("Documents 1 to %d", len(corpus)))
		s.click(view)
		s.shows("onmouseover")
	}
	s.visit("#/held", "Held")
	s.post(s.operator, "/v1/databases/shop/collections/~"+base64url(name)+"/documents:find",
		`{"batchSize":2}`)
	s.click("List")
	s.shows("onerror")
	s.goTo(`"#/tail?" + new URLSearchParams({db: "shop", in: ` + quote(name) + `})`)
	s.click("Follow")
	s.eventually(`document.querySelector(".live")?.textContent === "following"`)
	for i, text := range corpus {
		if status, answer := s.post(s.operator,
			"/v1/databases/shop/collections/~"+base64url(name)+"/documents:insertOne",
			`{"document":{"_id":`+quote(fmt.Sprint(i, text))+`}}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	s.shows(`"13`)
	s.do(`document.querySelectorAll(".changes details").forEach(d => d.open = true)`)
	s.isClean()
	s.texts(name)
	// What the gateway says of a refused call has the client's words in it.
	for _, text := range corpus {
		s.visit("#/deployment", "Deployment")
		s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: "orders", q: JSON.stringify({[` + quote("$"+text) + `]: 1})})`)
		s.click("Run")
		s.shows("The query was refused")
	}
	var ran bool
	if s.page.Evaluate(`"ran" in globalThis`, &ran); ran {
		t.Error("a text of the database has run")
	}
	var made int
	s.page.Evaluate(`document.querySelectorAll("main script, main img, main iframe, main style, main svg").length`, &made)
	if made > 0 {
		t.Errorf("texts became %d elements", made)
	}
	for _, e := range s.page.Errors() {
		if !strings.Contains(e, "the server responded with a status of 400") {
			t.Errorf("the console of the page has %s", e)
		}
	}
}

// texts puts the corpus into a plan, an edit, an explanation of a request, and the palette.
func (s *scene) texts(collection string) {
	s.t.Helper()
	var stages, fields []string
	for i, text := range corpus {
		stages = append(stages,
			fmt.Sprintf(`{"stage":%s,"indexName":%[1]s,"filter":{%[1]s:%[1]s}}`, quote(text)))
		fields = append(fields, fmt.Sprintf(`"%d":%s`, i, quote(text)))
	}
	for _, h := range s.deployment.Cluster().Hosts() {
		h.Handle("explain", func(*fakemongo.Command) fakemongo.Reply {
			return fakemongo.Document(document(s.t,
				`{"ok":1,"executionStats":{"executionStages":{"stage":"OR","inputStages":[`+
					strings.Join(stages, ",")+`]}}}`))
		})
	}
	s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: ` + quote(collection) +
		`, limit: "1"})`)
	s.click("Explain")
	s.eventually(fmt.Sprintf(`document.querySelectorAll(".stage").length === %d`, 1+len(corpus)))
	s.click("Run")
	s.shows("Documents 1 to 1")
	s.openEditor()
	s.shows("onerror") // the name of the collection
	s.shows("You have changed nothing.")
	s.click("Close")

	s.goTo(`"#/why?" + new URLSearchParams({principal: ` +
		quote(corpus[0]+corpus[1]) + `, groups: ` + quote(corpus[1]) + `, claims: ` +
		quote("{"+strings.Join(fields, ",")+"}") + `})`)
	s.click("Explain")
	s.shows("Allowed by no policy")
	s.shows("onmouseover")
	s.do(`dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true}))`)
	s.shows("Query shop." + collection)
	s.page.Press("Escape")
	s.isClean()
}

func base64url(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }
