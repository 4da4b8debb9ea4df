package main

import (
	"os/exec"
	"strings"
	"testing"
)

// late runs the page's script against a page and a network of its own: the first stream ends while
// its list is on the way, the second one shows its list, and then the first list arrives.
const late = `
const elements = {state: {}, orders: {appendChild: item => (shown.push(item), item)}};
const shown = [], lists = [], sources = [];
let again;
globalThis.document = {
  getElementById: id => elements[id],
  createElement: () => ({remove() { shown.splice(shown.indexOf(this), 1); }}),
};
globalThis.fetch = url => url === "/ticket"
  ? Promise.resolve({json: () => ({url: "/stream"})})
  : new Promise(answer => lists.push(documents => answer({json: () => ({documents})})));
globalThis.EventSource = class {
  constructor() { this.on = {}; sources.push(this); }
  addEventListener(name, f) { this.on[name] = f; }
  close() {}
};
const settle = () => new Promise(setImmediate);
globalThis.setTimeout = f => { again = f; };
eval(script);
(async () => {
  await settle();
  sources[0].onopen();
  sources[0].on.end();
  again();
  await settle();
  sources[1].onopen();
  lists[1]([{_id: 1, customer: "new"}]);
  await settle();
  lists[0]([{_id: 1, customer: "old"}, {_id: 2, customer: "old"}]);
  await settle();
  process.stdout.write(shown.map(item => item.textContent).join(", "));
})();
`

// TestLateList checks that the list of a stream that is over does not replace the newer list.
func TestLateList(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	_, script, _ := strings.Cut(string(page), "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	node := exec.CommandContext(t.Context(), "node", "-e", "const script = process.argv[1];"+late, script)
	out, err := node.CombinedOutput()
	if err != nil || string(out) != "new: new" {
		t.Errorf("the page shows %q, %v; want the newer list", out, err)
	}
}
