package main

import (
	"os/exec"
	"strings"
	"testing"
)

// scene runs the page's script against a page and a network of its own: the stream is interrupted,
// and another one tells of all documents again.
const scene = `
const elements = {state: {}, orders: {replaceChildren: (...items) => { shown = items; }}};
const sources = [];
let shown = [], again;
globalThis.document = {getElementById: id => elements[id], createElement: () => ({})};
globalThis.fetch = async () => ({json: () => ({url: "/stream"})});
globalThis.EventSource = class {
  static CLOSED = 2;
  constructor() { this.on = {}; sources.push(this); }
  addEventListener(name, f) { this.on[name] = f; }
  says(name, ...documents) {
    for (const d of documents) this.on[name]({data: JSON.stringify(d)});
  }
};
globalThis.setTimeout = f => { again = f; };
const texts = [];
const look = () => texts.push(shown.map(item => item.textContent).join(", "));
eval(script);
(async () => {
  await new Promise(setImmediate);
  const [first] = sources;
  first.onopen();
  first.says("added", {_id: 1, customer: "a"}, {_id: 2, customer: "b"});
  look();
  first.says("ready", {});
  look();
  first.says("changed", {_id: 1, customer: "a", status: "paid"});
  first.says("added", {_id: 3, customer: "c"});
  look();
  first.readyState = 0; // it connects again
  first.onerror();
  first.onopen();
  first.says("added", {_id: 3, customer: "d"});
  look();
  first.says("ready", {});
  first.says("removed", {_id: 3});
  look();
  globalThis.fetch = async () => ({ok: true, json: () => ({url: "/stream"})});
  first.readyState = 2; // the ticket has expired
  first.onerror();
  again();
  await new Promise(setImmediate);
  process.stdout.write(texts.join("; ") + "; " + sources.length);
})();
`

// refused runs the page's script where the stream is refused: by a status, and by an event.
const refused = `
const elements = {state: {}, orders: {replaceChildren() {}}};
const sources = [];
globalThis.document = {getElementById: id => elements[id], createElement: () => ({})};
globalThis.fetch = async url => url === "/ticket" ? {json: () => ({url: "/stream"})}
  : {ok: false, json: async () => ({error: {message: "no change streams"}})};
globalThis.EventSource = class {
  static CLOSED = 2;
  constructor() { this.on = {}; sources.push(this); }
  addEventListener(name, f) { this.on[name] = f; }
};
let again;
globalThis.setTimeout = f => { again = f; };
const wait = () => new Promise(setImmediate);
const texts = [];
eval(script);
(async () => {
  await wait();
  sources[0].readyState = 2;
  sources[0].onerror();
  await wait();
  texts.push(elements.state.textContent);
  again();
  await wait();
  sources[1].on.failure({data: JSON.stringify({error: {message: "not a replica set"}})});
  sources[1].readyState = 0;
  sources[1].onerror();
  texts.push(elements.state.textContent);
  process.stdout.write(texts.join("; "));
})();
`

// TestPageSaysWhy checks that the page shows why it is not live, on a server without change
// streams.
func TestPageSaysWhy(t *testing.T) {
	const want = "connecting: no change streams; connecting: not a replica set"
	if got := runPage(t, refused); got != want {
		t.Errorf("the page shows %q, want %q", got, want)
	}
}

// runPage runs a scene with the page's script, and returns what it prints.
func runPage(t *testing.T, scene string) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	_, script, _ := strings.Cut(string(page), "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	node := exec.CommandContext(
		t.Context(), "node", "-e", "const script = process.argv[1];"+scene, script,
	)
	out, err := node.CombinedOutput()
	if err != nil {
		t.Fatalf("node: %v, %s", err, out)
	}
	return string(out)
}

// TestPage checks what the page shows, and that it opens another stream with a new ticket.
func TestPage(t *testing.T) {
	const want = "; a: new, b: new; a: paid, b: new, c: new; a: paid, b: new, c: new; ; 2"
	if got := runPage(t, scene); got != want {
		t.Errorf("the page shows %q, want %q", got, want)
	}
}
