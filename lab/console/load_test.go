package console_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// many has the page get answers of its own from now on: 1,000 servers, of which one changes its
// place every 50 ms, their pools, and 10,000 handles.
const many = `
	const real = globalThis.real = fetch, now = () => new Date().toISOString();
	const address = i => "db" + String(i).padStart(4, "0") + ".example:27017";
	const servers = turn => Array.from({length: 1000}, (_, i) => ({address: address(i), kind: i === turn % 1000 ? "RSPrimary" : "RSSecondary",
		averageRTTMicros: String(500 + (i * 37 + turn) % 900), lastUpdateTime: now(), minWireVersion: 0, maxWireVersion: 25, hosts: [], tags: {rack: String(i % 9)}}));
	const topology = turn => ({topology: {kind: "ReplicaSetWithPrimary", setName: "rs", servers: servers(turn)}});
	const pools = () => Array.from({length: 1000}, (_, i) => ({address: address(i), state: "ready", generation: "0", total: "20", available: "9",
		inUse: String(1 + Math.floor(Math.random() * 9)), cursors: "1", transactions: "0", pending: "0", waiting: "0", maxSize: "100"}));
	const handle = i => ({id: "h" + i, kind: "cursor", principal: "key:client" + i % 50, namespace: "shop.orders" + i % 7, server: address(i % 1000),
		pinned: i % 3 === 0, busy: false, pages: String(i), openTime: now(), lastUseTime: now(), expireTime: now()});
	const json = o => new Response(JSON.stringify(o), {headers: {"Content-Type": "application/json"}});
	globalThis.turns = 0;
	globalThis.fetch = async (url, options) => {
		const u = new URL(url, location.href);
		if (u.pathname.endsWith("/topology:watch")) {
			const encoder = new TextEncoder();
			return new Response(new ReadableStream({async pull(c) {
				await new Promise(r => setTimeout(r, 50));
				c.enqueue(encoder.encode(JSON.stringify(topology(globalThis.turns++)) + "\n"));
			}}));
		}
		if (u.pathname.endsWith("/deployment/topology")) return json(topology(globalThis.turns));
		if (u.pathname.endsWith("/deployment/pools")) return json({pools: pools()});
		if (u.pathname.endsWith("/deployment/handles")) {
			const from = Number(u.searchParams.get("cursor") ?? 0), size = Number(u.searchParams.get("batchSize"));
			return json({handles: Array.from({length: Math.min(size, 10000 - from)}, (_, i) => handle(from + i)), ...(from + size < 10000 ? {cursor: String(from + size)} : {})});
		}
		return real(url, options);
	};`

// frames measures for four seconds, while a statement is run at each frame: the times between
// frames, the tasks over 50 ms, and how far what is drawn has moved by itself.
const frames = `new Promise(done => {
	const gaps = [], tasks = []; let shift = 0;
	const watch = (type, note) => { const o = new PerformanceObserver(l => l.getEntries().forEach(note)); o.observe({type}); return o };
	const observers = [watch("longtask", e => tasks.push(e.duration)),
		watch("layout-shift", e => e.hadRecentInput || (shift += e.value))];
	let last = performance.now(), began = last;
	const step = t => {
		gaps.push(t - last); last = t; work(gaps.length);
		if (t - began < 4000) return requestAnimationFrame(step);
		observers.forEach(o => o.disconnect());
		done({Gaps: gaps.slice(1), Tasks: tasks, Shift: shift});
	};
	requestAnimationFrame(step) })`

// smooth reports how long frames take while work is done, and wants none that lasts as long as a
// person notices. The bound leaves room for a busy machine, which can be late once or twice: a page
// that freezes by itself does so in each of three measurements.
func (s *scene) smooth(what, work string) {
	s.t.Helper()
	for range 3 {
		var seen struct {
			Gaps, Tasks []float64 // in milliseconds
			Shift       float64
		}
		s.page.Evaluate("(() => { const work = n => {"+work+"}; return "+frames+" })()", &seen)
		slices.Sort(seen.Gaps)
		n := len(seen.Gaps)
		if n == 0 {
			s.t.Logf("%s: one frame in 4 s", what)
			continue
		}
		longest := seen.Gaps[n-1]
		s.t.Logf("%s: %d frames in 4 s: median %.1f ms, p95 %.1f ms, longest %.0f ms; tasks over "+
			"50 ms: %.0f; shift %.3f",
			what, n, seen.Gaps[n/2], seen.Gaps[n*95/100], longest, seen.Tasks, seen.Shift)
		if n >= 40 && longest <= 1000 {
			return
		}
	}
	s.t.Errorf("%s: the page freezes: fewer than 40 frames in 4 s, or one of over a second", what)
}

// TestMany has 1,000 servers and 10,000 handles on a page.
func TestMany(t *testing.T) {
	s := newScene(t)
	s.visit("#/tail", "Sign in to Mooring")
	s.do(many)
	s.signIn(s.operator)
	s.eventually(`document.querySelector("h1")?.textContent === "Live tail"`)
	s.visit("#/deployment", "Deployment")
	s.shows("60 of 1000, lost ones first")
	s.smooth("1,000 servers, 20 changes a second", "")
	s.smooth("1,000 servers, 20 changes a second, scrolled", `scrollTo(0, 40 * n % 8000)`)
	var turns int
	if s.page.Evaluate("globalThis.turns", &turns); turns < 20 {
		t.Errorf("%d changes came", turns)
	}
	s.fill("#servers", "db0999")
	s.eventually(`document.querySelectorAll(".card").length === 1`)
	s.shoot("many-servers")
	s.judge("servers that were searched")

	s.visit("#/held", "Held")
	s.clickMore()
	s.shows("10000 cursors")
	var drawn int
	if s.page.Evaluate(`document.querySelectorAll(".list tbody tr").length`, &drawn); drawn > 100 {
		t.Errorf("%d rows are drawn", drawn)
	}
	s.smooth("10,000 handles, scrolled", `document.querySelector(".long").scrollTop = 600 * n`)
	s.smooth("10,000 handles, 5 more lists a second",
		`if (n % 12 === 0) [...document.querySelectorAll("button")].find(b => b.textContent === "List").click()`)
	s.clickMore()
	s.shows("10000 cursors")
	s.do(`document.querySelector(".long").scrollTop = 1e9`)
	s.eventually(
		`[...document.querySelectorAll("[aria-rowindex]")].at(-1).ariaRowIndex === "10001"`)
	s.shoot("many-handles")
	s.judge("10,000 handles")
	s.isClean()
}

// clickMore lists the handles after the first 1,000, up to the last ones.
func (s *scene) clickMore() {
	s.t.Helper()
	for i := range 9 {
		s.shows(fmt.Sprintf("%d or more cursors", 1000*(i+1)))
		s.click("More")
	}
}

// TestPlots has more servers than a plot has lines: those with the highest values are drawn.
func TestPlots(t *testing.T) {
	s := newScene(t)
	s.shows("Sign in to Mooring")
	s.do(many + `
		const others = globalThis.fetch, few = () => pools().slice(0, 8).map((p, i) => ({...p, inUse: String(i)}));
		globalThis.fetch = async (url, options) =>
			String(url).endsWith("/deployment/pools") ? json({pools: few()}) : others(url, options);`)
	s.signIn(s.operator)
	const want = "db0002 2,db0003 3,db0004 4,db0005 5,db0006 6,db0007 7,and 2 more"
	s.eventually(`[...document.querySelector(".legend").children].map(
		l => l.textContent.replace(".example:27017", "")).join() === ` + quote(want))
	s.eventually(`[...document.querySelectorAll(".legend")].at(-1).textContent.endsWith("and 994 more")`)
	s.isClean()
}

// TestNextPrincipal has another principal sign in where an operator has signed out. It sees nothing
// of what the operator has seen, before the gateway has answered.
func TestNextPrincipal(t *testing.T) {
	s := newScene(t)
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":1}`))
	s.shows("Sign in to Mooring")
	s.do(many)
	s.signIn(s.operator)
	s.shows("db0000.example")
	s.visit("#/query", "Query")
	s.eventually(`[...document.querySelectorAll("datalist option")].some(o => o.value === "shop")`)
	s.click("Sign out")
	s.do(`globalThis.fetch = (url, options) =>
		String(url).includes("/v1/") ? new Promise(() => {}) : real(url, options);`)
	s.signIn(s.reader)
	s.shows("key:reader")
	s.eventually(`document.querySelectorAll("datalist option").length === 0`)
	s.visit("#/deployment", "Deployment")
	s.shows("Asking the gateway")
	s.isClean()
}

// TestLateAnswers has answers to one principal come when the next one has signed in. They lead to
// no more calls, and a key that does not count any more signs its own principal out, and no other.
func TestLateAnswers(t *testing.T) {
	s := newScene(t)
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":1}`))
	s.visit("#/query", "Sign in to Mooring")
	s.do(`
		const real = fetch, refusal = {status: "UNAUTHENTICATED", reason: "InvalidToken", code: 16, message: "expired"};
		globalThis.refuse = go => go(new Response(JSON.stringify({error: refusal}), {status: 401}));
		globalThis.held = [];
		globalThis.asked = [];
		globalThis.fetch = async (url, options) => {
			asked.push(new URL(url).pathname);
			const answer = await real(url, options);
			const isHeld = new URL(url).pathname === "/v1/databases";
			return (isHeld && await new Promise(go => held.push(go))) || answer;
		};`)
	s.signIn(s.operator)
	s.eventually("held.length === 2") // the form and the list of collections ask
	s.click("Sign out")
	s.signIn(s.reader)
	s.eventually("held.length === 4")
	s.do("held[0](); refuse(held[1])")
	s.page.Evaluate("new Promise(r => setTimeout(() => r(0)))", new(int))
	s.do("held[2](); held[3]()")
	s.shows("shop.orders")
	s.shows("key:reader")
	var lists int
	s.page.Evaluate(`asked.filter(p => p === "/v1/databases/shop/collections").length`, &lists)
	if lists != 1 {
		t.Errorf("the collections were listed %d times, want once, for the reader", lists)
	}
	s.isClean()
}

// TestSignOutGivesBack signs out while a result has more pages.
func TestSignOutGivesBack(t *testing.T) {
	s := newScene(t)
	var orders []bson.Raw
	for i := range 150 {
		orders = append(orders, document(t, fmt.Sprintf(`{"_id":%d}`, i)))
	}
	s.deployment.SetDocuments("shop.orders", orders...)
	s.visit("#/query?db=shop&in=orders", "Sign in to Mooring")
	s.signIn(s.reader)
	s.click("Run")
	s.shows("Documents 1 to 100")
	s.click("Sign out")
	s.shows("Sign in to Mooring")
	gatewaytest.Eventually(t, patience, func() error {
		if n := s.deployment.OpenCursors(); n > 0 {
			return fmt.Errorf("%d cursors are open", n)
		}
		return nil
	})
	s.isClean()
}

// TestInteractive reports how soon the page can be used. Its script is a module, so the event
// DOMContentLoaded comes when it has run, and has drawn the first view.
func TestInteractive(t *testing.T) {
	s := newScene(t)
	var interactive, painted []float64 // in milliseconds
	for range 7 {
		s.page = s.browser.Open(s.gateway.REST + "/console/")
		s.eventually(`performance.getEntriesByName("first-contentful-paint").length === 1 &&
			document.readyState === "complete" &&
			document.querySelector("h1")?.textContent === "Sign in to Mooring"`)
		var at [2]float64
		s.page.Evaluate(`[performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
			performance.getEntriesByName("first-contentful-paint")[0].startTime]`, &at)
		interactive, painted = append(interactive, at[0]), append(painted, at[1])
	}
	slices.Sort(interactive)
	slices.Sort(painted)
	t.Logf("of 7 loads on loopback: interactive after %.0f ms, at most %.0f; painted after %.0f "+
		"ms, at most %.0f",
		interactive[3], interactive[6], painted[3], painted[6])
	s.isClean()
}

// TestPalette goes to views and collections by the keyboard alone.
func TestPalette(t *testing.T) {
	s := newScene(t)
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":1}`))
	s.signIn(s.operator)
	s.shows("changes show as they happen")
	open := func() {
		s.do(`dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true}))`)
		s.eventually(`document.activeElement?.getAttribute("role") === "combobox"`)
	}
	open()
	s.shows("Query shop.orders")
	s.judge("the palette")
	s.shoot("palette")
	s.page.Type("follow ord")
	s.eventually(`document.querySelectorAll("[role=option]").length === 1`)
	s.page.Press("Enter")
	s.eventually(`document.querySelector("h1")?.textContent === "Live tail"`)
	var hash string
	if s.page.Evaluate("location.hash", &hash); hash != "#/tail?db=shop&in=orders" {
		t.Errorf("it leads to %s", hash)
	}
	open()
	s.page.Press("ArrowDown")
	s.eventually(`document.querySelector("[aria-selected=true]").textContent === "Held"`)
	s.page.Press("Escape")
	s.eventually(`!document.querySelector("dialog")`)
	open()
	s.page.Type("no such thing")
	s.shows("Nothing has these words.")
	s.page.Press("Escape")
	s.isClean()
}

// TestPermalinks opens each view by an address that has all of it.
func TestPermalinks(t *testing.T) {
	s := newScene(t)
	s.signIn(s.operator)
	s.shows("changes show as they happen")
	for _, link := range []struct{ hash, title, holds string }{
		{"#/held?principal=key%3Aann&namespace=shop&pinned=1", "Held", `document.querySelector("#principal")?.value === "key:ann" && document.querySelector("#pinned")?.checked`},
		{"#/query?db=shop&in=a&kind=updateOne&q=%7B%22a%22%3A1%7D&update=%7B%7D", "Query", `document.querySelector("#kind")?.value === "updateOne"`},
		{"#/tail?db=shop&in=a&full=1", "Live tail", `document.querySelector("#tail-in")?.value === "a" && document.querySelector("#tail-full")?.checked`},
		{"#/why?principal=key%3Aann&call=DocumentService%2FFind", "Why", `document.querySelector("#why-principal")?.value === "key:ann"`},
		{"#/api?find=findOne", "API", `document.querySelector("#search")?.value === "findOne"`},
	} {
		s.visit(link.hash, link.title)
		s.eventually(link.holds)
		var hash string
		if s.page.Evaluate("location.hash", &hash); hash != link.hash {
			t.Errorf("%s becomes %s", link.hash, hash)
		}
	}
	s.isClean()
}
