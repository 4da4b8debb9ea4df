package console_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// document makes a document of Extended JSON.
func document(t *testing.T, text string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// visit goes to a view, and waits until its heading is there.
func (s *scene) visit(fragment, title string) {
	s.t.Helper()
	s.goTo(quote(fragment))
	s.eventually(`document.querySelector("h1")?.textContent === ` + quote(title))
}

// goTo goes to the fragment that an expression gives, and waits until the view of before is gone:
// what is clicked then, or waited for, is not of that one.
func (s *scene) goTo(expression string) {
	s.t.Helper()
	s.page.Evaluate(`new Promise(done => {
		const was = location.hash;
		// the page hears of it first, or at the same time, and draws at the end of its turn
		addEventListener("hashchange", () => setTimeout(() => done(0)), {once: true});
		location.hash = `+expression+`;
		if (location.hash === was) done(0) })`, new(int))
}

// edit replaces the text of the editor, which is in a shadow root.
func (s *scene) edit(text string) {
	s.t.Helper()
	const content = `document.querySelector("div.editor")?.shadowRoot?.querySelector(".cm-content")`
	s.eventually(content)
	s.do(content + ".focus()")
	s.page.SelectAll()
	s.page.Type(text)
}

// TestQuery reads 500 documents in pages, aggregates, and copies a query as a line of curl, which
// then gives the same documents.
func TestQuery(t *testing.T) {
	s := newScene(t)
	var orders []bson.Raw
	for i := range 500 {
		orders = append(orders,
			document(t,
				fmt.Sprintf(`{"_id":%d,"customer":"c%d","total":{"$numberDecimal":"%d.50"},"2":1,"1":2}`, i, i%7, i)))
	}
	s.deployment.SetDocuments("shop.orders", orders...)
	s.visit("#/query?db=shop&in=orders", "Sign in to Mooring")
	s.signIn(s.reader)
	s.shows("key:reader")
	s.click("Run")
	for page := range 5 {
		s.shows(fmt.Sprintf("Documents %d to %d", 100*page+1, 100*page+100))
		var first string
		s.page.Evaluate(`document.querySelector("tbody td").textContent`, &first)
		if want := fmt.Sprintf("%d Int32", 100*page); first != want {
			t.Errorf("page %d begins with %q, want %q", page+1, first, want)
		}
		s.click("Next page") // after the last one it finds that there is none
	}
	s.eventually(`[...document.querySelectorAll("button")].find(b => b.textContent === "Next page").disabled`)
	s.shows("the last ones")
	var columns string
	s.page.Evaluate(`[...document.querySelectorAll("th")].map(h => h.textContent).join()`, &columns)
	// JavaScript's objects would move 1 and 2 to the front
	if columns != "_id,customer,total,2,1,Action" {
		t.Errorf("the columns are %s", columns)
	}
	s.isClean()
	s.shoot("query")
	s.judge("a result as a table")
	s.click("JSON")
	s.shows("Decimal128")
	s.judge("a result as JSON")

	s.visit("#/held", "Held")
	s.shows("What clients hold is for operators to see")
	s.page.Errors() // Chromium notes the status of the call
	s.visit("#/query?db=shop&in=orders&kind=aggregate&q="+
		`[{"$match":{"_id":{"$lt":3}}},{"$project":{"customer":1}}]`, "Query")
	s.click("Run")
	s.shows("Documents 1 to 3, the last ones")
	s.isClean()

	s.click("curl")
	var line string
	s.page.Evaluate(`document.querySelector(".code").textContent`, &line)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Env = append(cmd.Environ(), "MOORING_KEY="+s.reader)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), `"customer"`) != 3 {
		t.Errorf("the line of curl: %v\n%s\n%s", err, line, out)
	}
	if strings.Contains(line, s.reader) {
		t.Error("the line has the key in it")
	}
}

// TestWideTable checks that a table wider than the window says what it leaves out, and has its
// buttons within the window.
func TestWideTable(t *testing.T) {
	s := newScene(t)
	fields := make([]string, 45)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"field%d":"a value"`, i)
	}
	s.deployment.SetDocuments("shop.wide", document(t, `{"_id":1,`+strings.Join(fields, ",")+`}`))
	s.visit("#/query?db=shop&in=wide", "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Run")
	s.shows("The first 40 of 46 fields.")
	s.page.Emulate(360, 844, "light")
	s.eventually(
		`document.querySelector("td.action button").getBoundingClientRect().right < innerWidth`)
	s.judge("a wide table")
	s.isClean()
}

// TestRefusedQuery checks that an error says what and where.
func TestRefusedQuery(t *testing.T) {
	s := newScene(t)
	s.visit(`#/query?db=shop&in=orders&q={"total":{"$gtt":1}}`, "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Run")
	s.shows("The query was refused")
	s.shows("$gtt")
	s.eventually(`document.querySelector("[role=alert] .facts").innerText.includes("Request")`)
	s.shoot("refused-query")
	s.judge("a refused query")
	s.page.Errors() // Chromium notes the status of the call
	s.edit(`{"total":`)
	s.click("Run")
	s.shows("filter: ")
	s.isClean() // it is not sent
}

// TestEditorSize checks how much is loaded once the editor is.
func TestEditorSize(t *testing.T) {
	s := newScene(t)
	s.visit("#/query", "Sign in to Mooring")
	s.signIn(s.reader)
	s.eventually(`document.querySelector("div.editor")?.shadowRoot?.querySelector(".cm-content")`)
	const most = 250 << 10
	if n := s.loaded(); n > most {
		t.Errorf("with the editor it is %d bytes, want %d at most", n, most)
	} else {
		t.Logf("with the editor it is %d bytes", n)
	}
	s.isClean()
}

// TestCode checks that a name and a text with everything that shells give a meaning to are only
// text in the line of curl.
func TestCode(t *testing.T) {
	s := newScene(t)
	const odd = `it's "$(x)" \ ` + "`y`"
	s.deployment.SetDocuments("shop."+odd, document(t, `{"_id":1,"a":`+quote(odd)+`}`))
	s.signIn(s.reader)
	s.visit("#/deployment", "Deployment")
	s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: ` + quote(odd) +
		`, q: ` + quote(`{"a":`+quote(odd)+`}`) + `})`)
	s.click("Run")
	s.shows("Documents 1 to 1")
	s.click("curl")
	var line string
	s.page.Evaluate(`document.querySelector(".code").textContent`, &line)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Env = append(cmd.Environ(), "MOORING_KEY="+s.reader)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), `"_id":1`) {
		t.Errorf("the line of curl: %v\n%s\n%s", err, line, out)
	}
}

// runTypeScript waits until the code for TypeScript that the page shows has a text, runs it with
// the client in the tree, and returns its output.
func (s *scene) runTypeScript(text string) string {
	s.t.Helper()
	s.click("TypeScript")
	s.eventually(`document.querySelector(".code").textContent.includes(` + quote(text) + `)`)
	var code string
	s.page.Evaluate(`document.querySelector(".code").textContent`, &code)
	source, err := filepath.Abs(filepath.Join("..", "..", "clients", "typescript"))
	if err != nil {
		s.t.Fatal(err)
	}
	dir := s.t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "node_modules"), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(source, filepath.Join(dir, "node_modules", "mooring-client")); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "code.mjs"), []byte(code), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(s.t.Context(), "node", "code.mjs")
	cmd.Dir, cmd.Env = dir, append(cmd.Environ(), "MOORING_KEY="+s.reader)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v\n%s\n%s", err, code, out)
	}
	return string(out)
}

// TestCodeInTypeScript checks that code for TypeScript writes and sorts by what the query has, also
// where literals of JavaScript are something else.
func TestCodeInTypeScript(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	const odd = `{"_id":1,"large":9007199254740993,"even":1152921504606846976,"least":-9223372036854775808,
		"beyond":9223372036854775808,"whole":12.0,"power":1E2,"huge":1e21,"zero":-0.0,"none":-0,"half":0.50,"int":7,
		"text":"\"12.0\", -0","list":[3.0,4,{"x":5.0}],"date":{"$date":{"$numberLong":"1700000000123"}},"__proto__":{"x":1}}`
	s := newScene(t)
	s.visit("#/query", "Sign in to Mooring") // a reader may not see the deployment, the first view
	s.signIn(s.reader)
	s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: "odd", kind: "insertOne", q: ` +
		quote(odd) + `})`)
	s.runTypeScript("__proto__")
	after, _ := s.deployment.Documents("shop.odd")
	if want := document(t, odd); len(after) != 1 || !bytes.Equal(after[0], want) {
		t.Errorf("the document is\n%s, want\n%s", after, want)
	}
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":"a","1":1,"2":2}`),
		document(t, `{"_id":"b","1":2,"2":1}`))
	s.goTo(`"#/query?" + new URLSearchParams({db: "shop", in: "orders", sort: '{"2": 1.0, "1": 1}'})`)
	if out := s.runTypeScript("sort"); strings.Index(out, "'b'") > strings.Index(out, "'a'") {
		t.Errorf("sorted by another key first:\n%s", out)
	}
	s.isClean()
}

// TestFormAfterSignIn signs out, as a credential that does not count any more does, and in again.
func TestFormAfterSignIn(t *testing.T) {
	s := newScene(t)
	s.visit("#/query?db=shop&in=orders", "Sign in to Mooring")
	s.signIn(s.reader)
	s.edit(`{"total":5}`)
	s.click("Run")
	s.shows("No documents")
	s.click("Sign out")
	s.signIn(s.reader)
	s.eventually(`document.querySelector("div.editor").shadowRoot.textContent.includes('{"total":5}')`)
	s.isClean()
}
