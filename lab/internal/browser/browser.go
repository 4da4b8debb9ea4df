// Package browser runs pages in Chromium, for tests of what a browser makes of the gateway. It is
// Debian's Chromium, without a window, over the pipe of its debugging protocol.
package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/proc"
)

// names lists what the program is called.
var names = []string{"chromium", "chromium-browser", "google-chrome"}

// Missing is the message of tests that are skipped where there is no browser.
const Missing = "chromium is not installed: apt-get install chromium"

// Installed reports whether there is a browser to start.
func Installed() bool { return find() != "" }

func find() string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Browser represents a running browser.
type Browser struct {
	t    testing.TB
	to   *os.File
	in   *os.File
	from *bufio.Reader // reads in

	mu   sync.Mutex // guards to, from and the fields below
	last int
	errs map[string][]string // of the console, by session
}

// Start starts a browser, which ends with the test. It skips the test if there is none. args are
// more flags.
func Start(t testing.TB, args ...string) *Browser {
	t.Helper()
	path := find()
	if path == "" {
		t.Skip(Missing)
	}
	// A browser that has ended may have children that still write there.
	profile, err := os.MkdirTemp("", "mooring-browser-") //nolint:usetesting // it may not be empty
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(profile) })
	theirIn, ourOut := pipe(t)
	ourIn, theirOut := pipe(t)
	p, err := proc.Start(proc.Config{
		Path: path, Files: []*os.File{theirIn, theirOut}, // which it has as 3 and 4
		Args: append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
			"--disable-dev-shm-usage", "--disable-background-networking", "--no-proxy-server",
			"--user-data-dir=" + profile, "--remote-debugging-pipe", "about:blank",
		}, args...),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	t.Cleanup(func() {
		_ = ourOut.Close() // it ends then
		_ = p.Stop(10 * time.Second)
		_ = ourIn.Close()
	})
	return &Browser{
		t: t, to: ourOut, in: ourIn, from: bufio.NewReader(ourIn), errs: map[string][]string{},
	}
}

func pipe(t testing.TB) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return read, write
}

// Page represents an open page.
type Page struct {
	browser *Browser
	session string
}

// Open opens a page. It waits until the page has its address, and not for what the page loads.
func (b *Browser) Open(url string) *Page {
	b.t.Helper()
	var target struct {
		ID string `json:"targetId"`
	}
	b.call("", "Target.createTarget", map[string]any{"url": url}, &target)
	var attached struct {
		ID string `json:"sessionId"`
	}
	b.call("", "Target.attachToTarget",
		map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	p := &Page{b, attached.ID}
	for _, domain := range []string{"Runtime.enable", "Log.enable"} {
		b.call(p.session, domain, map[string]any{}, &struct{}{})
	}
	// Until then expressions would run in the empty page before it, or, between the two, nowhere.
	for deadline := time.Now().Add(time.Minute); ; {
		var at string
		if err := p.Try("location.href", &at); err == nil && at != "about:blank" {
			return p
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s has not been opened", url)
		}
	}
}

// Evaluate runs an expression in the page and puts its value into a variable.
func (p *Page) Evaluate(expression string, into any) {
	p.browser.t.Helper()
	if err := p.Try(expression, into); err != nil {
		p.browser.t.Fatal(err)
	}
}

// Try does what Evaluate does. Its error is that of a page on its way to another address.
func (p *Page) Try(expression string, into any) error {
	var reply struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	if err := p.browser.try(p.session, "Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}, &reply); err != nil {
		return err
	}
	if reply.Exception != nil {
		return fmt.Errorf("%s: %s", expression, reply.Exception)
	}
	if err := json.Unmarshal(reply.Result.Value, into); err != nil {
		return fmt.Errorf("%s = %s: %w", expression, reply.Result.Value, err)
	}
	return nil
}

// Errors returns what the page's console has shown as errors, and forgets it: exceptions, calls of
// console.error, and what the browser itself reports, such as a request that it refuses.
func (p *Page) Errors() []string {
	p.browser.t.Helper()
	var none int
	p.Evaluate("0", &none) // what came before its reply is there now
	p.browser.mu.Lock()
	defer p.browser.mu.Unlock()
	errs := p.browser.errs[p.session]
	delete(p.browser.errs, p.session)
	return errs
}

// Emulate has the page drawn for a screen of that size, in a colour scheme: light or dark. It waits
// until the page has the size.
func (p *Page) Emulate(width, height int, scheme string) {
	p.browser.t.Helper()
	p.browser.call(p.session, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	}, &struct{}{})
	p.browser.call(p.session, "Emulation.setEmulatedMedia", map[string]any{
		"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}},
	}, &struct{}{})
	p.Evaluate(fmt.Sprintf(`new Promise(done => {
		const look = () => innerWidth === %d ? done(0) : setTimeout(look, 10);
		look() })`, width), new(int))
}

// Reload begins to load the page anew.
func (p *Page) Reload() {
	p.browser.t.Helper()
	p.browser.call(p.session, "Page.reload", map[string]any{}, &struct{}{})
}

// SetOffline cuts the page off the network, or ends that. Requests in flight are cut, too, if they
// began after the first call.
func (p *Page) SetOffline(offline bool) {
	p.browser.t.Helper()
	p.browser.call(p.session, "Network.enable", map[string]any{}, &struct{}{})
	p.browser.call(p.session, "Network.emulateNetworkConditions", map[string]any{
		"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1,
	}, &struct{}{})
}

// Screenshot returns what the page looks like, as a PNG.
func (p *Page) Screenshot() []byte {
	p.browser.t.Helper()
	var taken struct {
		Data []byte `json:"data"` // base64
	}
	p.browser.call(p.session, "Page.captureScreenshot", map[string]any{"format": "png"}, &taken)
	return taken.Data
}

// Click presses and releases the mouse's first button at a point of the window.
func (p *Page) Click(x, y float64) { p.click(x, y, 1) }

// DoubleClick clicks a second time where Click has just clicked.
func (p *Page) DoubleClick(x, y float64) { p.click(x, y, 2) }

func (p *Page) click(x, y float64, count int) {
	p.browser.t.Helper()
	for _, event := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		p.browser.call(p.session, "Input.dispatchMouseEvent", map[string]any{
			"type": event, "x": x, "y": y, "button": "left", "clickCount": count,
		}, &struct{}{})
	}
}

// Type types a text where the focus is.
func (p *Page) Type(text string) {
	p.browser.t.Helper()
	p.browser.call(p.session, "Input.insertText", map[string]any{"text": text}, &struct{}{})
}

// SelectAll selects all of the text where the focus is.
func (p *Page) SelectAll() {
	p.browser.t.Helper()
	for _, event := range []string{"rawKeyDown", "keyUp"} {
		p.browser.call(p.session, "Input.dispatchKeyEvent", map[string]any{
			"type": event, "key": "a", "code": "KeyA", "windowsVirtualKeyCode": 65,
			"modifiers": 2, "commands": []string{"selectAll"}, // Ctrl
		}, &struct{}{})
	}
}

// Press presses and releases a key, such as Tab.
func (p *Page) Press(key string) {
	p.browser.t.Helper()
	for _, event := range []string{"rawKeyDown", "keyUp"} {
		p.browser.call(p.session, "Input.dispatchKeyEvent", map[string]any{
			"type": event, "key": key, "code": key, "windowsVirtualKeyCode": keyCodes[key],
		}, &struct{}{})
	}
}

// keyCodes has what Chromium wants beside the name of a key.
var keyCodes = map[string]int{
	"Tab": 9, "Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40,
}

// event describes what a page reports by itself, as far as it is an error.
type event struct {
	Type  string `json:"type"` // of a call of console
	Entry struct {
		Level, Text, URL string
	} `json:"entry"` // of the browser
}

// note keeps the errors of a page.
func (b *Browser) note(session, method string, params json.RawMessage) {
	var e event
	_ = json.Unmarshal(params, &e) // other events have other parameters
	if method == "Runtime.exceptionThrown" ||
		method == "Runtime.consoleAPICalled" && e.Type == "error" ||
		method == "Log.entryAdded" && e.Entry.Level == "error" {
		b.errs[session] = append(b.errs[session], string(params))
	}
}

// call runs a command of the protocol and waits for its reply.
func (b *Browser) call(session, method string, params map[string]any, into any) {
	b.t.Helper()
	if err := b.try(session, method, params, into); err != nil {
		b.t.Fatal(err)
	}
}

func (b *Browser) try(session, method string, params map[string]any, into any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	command := map[string]any{"id": b.last, "method": method, "params": params}
	if session != "" {
		command["sessionId"] = session
	}
	if err := b.exchange(command, into); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// frozen is how long a page may take for one command.
const frozen = 3 * time.Minute

// exchange writes a command and reads up to its reply. Messages end with a zero byte.
func (b *Browser) exchange(command map[string]any, into any) error {
	text, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if err := b.in.SetReadDeadline(time.Now().Add(frozen)); err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		message, err := b.from.ReadBytes(0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("the page has been frozen for %v", frozen)
		}
		if err != nil {
			return fmt.Errorf("the browser has ended: %w", err)
		}
		var reply struct {
			ID      int             `json:"id"`
			Session string          `json:"sessionId"`
			Method  string          `json:"method"` // of an event
			Params  json.RawMessage `json:"params"`
			Result  json.RawMessage `json:"result"`
			Error   json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(bytes.TrimSuffix(message, []byte{0}), &reply); err != nil {
			return err
		}
		switch {
		case reply.ID != b.last:
			b.note(reply.Session, reply.Method, reply.Params)
		case reply.Error != nil:
			return errors.New(string(reply.Error))
		default:
			return json.Unmarshal(reply.Result, into)
		}
	}
}
