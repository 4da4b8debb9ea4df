package console_test

import (
	"fmt"
	"unicode/utf8"
)

// hand does what a person does with a mouse and a keyboard, at what the window shows, and counts
// it.
type hand struct {
	*scene
	clicks, keys, scrolls int
	steps                 []string
	x, y                  float64 // of the last click
}

// visible has the functions that find what a person sees: an element that has a size and is drawn.
const visible = `
	const drawn = e =>
		e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().width > 1;
	const inWindow = r => r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth;
	const inReach = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document;
	const controls = "button, a, summary, label, select, th, option";
	const control = text => [...inReach.querySelectorAll(controls)].find(
		e => !e.disabled && drawn(e) && e.innerText.trim() === text);
`

// clickAt clicks on the middle of the element that an expression finds, which has to be there. What
// is out of the window costs a scroll.
func (h *hand) clickAt(what, expression string) {
	h.t.Helper()
	find := "(() => {" + visible + "return " + expression + "})()"
	h.eventually(find)
	h.reveal(find)
	h.rests(find)
	var at struct {
		X, Y float64
		Hit  string
	}
	h.page.Evaluate(`(() => { const e = `+find+`, r = e.getClientRects()[0];
		const x = r.left + r.width / 2, y = r.top + r.height / 2, hit = document.elementFromPoint(x, y);
		return {X: x, Y: y, Hit: e.contains(hit) || hit?.shadowRoot?.contains(e) ? "" : hit?.outerHTML ?? "nothing"} })()`, &at)
	if at.Hit != "" {
		h.t.Fatalf("%s is under %s", what, at.Hit)
	}
	h.page.Click(at.X, at.Y)
	h.x, h.y = at.X, at.Y
	h.clicks++
	h.steps = append(h.steps, what)
}

// rests waits until an element stays where it is for some frames, as a person would.
func (h *hand) rests(find string) {
	h.t.Helper()
	h.page.Evaluate(`new Promise(done => { let was, same = 0; const look = () => {
		const r = (`+find+`)?.getBoundingClientRect(), is = r && r.x + " " + r.y + " " + r.width;
		same = is && is === was ? same + 1 : 0; was = is;
		same > 5 ? done(0) : requestAnimationFrame(look) }; look() })`, new(int))
}

// reveal scrolls to an element, if the window does not show it.
func (h *hand) reveal(find string) {
	h.t.Helper()
	var shown bool
	h.page.Evaluate(`(() => {`+visible+` const e = `+find+`; const was = inWindow(e.getClientRects()[0] ?? e.getBoundingClientRect());
		if (!was) e.scrollIntoView({block: "center"}); return was })()`, &shown)
	if !shown {
		h.scrolls++
		h.steps = append(h.steps, "scroll")
	}
}

// clicksOn clicks the button, the link or the label with a text.
func (h *hand) clicksOn(text string) {
	h.t.Helper()
	h.clickAt(text, "control("+quote(text)+")")
}

// types types a text where the focus is.
func (h *hand) types(text string) {
	h.t.Helper()
	h.page.Type(text)
	h.keys += utf8.RuneCountInString(text)
	h.steps = append(h.steps, fmt.Sprintf("%q", text))
}

// sees waits until the window shows a text, which costs a scroll if it is below.
func (h *hand) sees(text string) {
	h.t.Helper()
	find := `(() => {` + visible + ` const of = inReach === document ? document.body : inReach;
		const all = document.createTreeWalker(of, NodeFilter.SHOW_ELEMENT);
		let found; for (let e = all.nextNode(); e; e = all.nextNode())
			if (drawn(e) && e.innerText?.includes(` + quote(text) + `)) found = e;
		return found })()`
	h.eventually(find)
	h.reveal(find)
}

// selects selects a word of the dialog's editor by a double click on it.
func (h *hand) selects(word string) {
	h.t.Helper()
	h.eventually(inDialog)
	h.clickAt("a double click on "+word, `[...document.querySelector("dialog div.editor").shadowRoot.querySelectorAll(".cm-line span")]
		.find(e => e.textContent === `+quote(word)+`)`)
	h.page.DoubleClick(h.x, h.y)
}
