// Package lines reads the commands out of pages, with what the pages say that they print. It runs
// nothing.
package lines

import (
	"os/exec"
	"regexp"
	"strings"
)

// Line holds one command of a page: what a reader pastes.
type Line struct {
	Number  int    // in the page, counted from 1
	Command string // may be several lines
	Shown   string // what the page says that it prints; may be empty
	Setup   bool   // it only sets variables, or writes a file
	Needs   string // what it needs besides `make run`, as the page says; empty: nothing
}

// needs marks a command that does not work on the embedded database. It is a comment of the shell
// at the end of a command, or on the line before it.
var needs = regexp.MustCompile(`# needs (.+)$`)

var (
	calls = regexp.MustCompile(`(^|[\s(|/])(curl|grpcurl)[\s@]|` +
		`(?m)^\s*([A-Z0-9_]+=\S+\s+(\\\n\s*)?)*(bin/)?(mooring|make|helm|kubectl|docker)\s`)
	setting = regexp.MustCompile(`^(export )?[A-Z_]+=\S*( [A-Z_]+=\S*)*$|^[A-Z]+=\$\(|` +
		`^printf .* > \S+$`)
)

// Read returns the lines of a page that call curl, grpcurl, mooring, make, helm, kubectl or docker,
// and those that set variables for them. They are in blocks that are indented, or fenced as sh,
// console or bash.
func Read(page string) []Line {
	var found []Line
	for _, b := range blocks(page) {
		found = append(found, b.lines()...)
	}
	return found
}

// block holds lines of code without their indentation.
type block struct {
	first int // the number of the first
	text  []string
}

func blocks(page string) []block {
	var all []block
	var current block
	fence := ""
	flush := func() {
		if len(current.text) > 0 {
			all = append(all, current)
		}
		current = block{}
	}
	indent := ""
	for i, text := range strings.Split(page, "\n") {
		if name, isFence := strings.CutPrefix(strings.TrimSpace(text), "```"); isFence {
			flush()
			if fence != "" {
				fence = ""
			} else if fence = name; name == "" {
				fence = "text"
			}
			indent = text[:len(text)-len(strings.TrimLeft(text, " "))]
			continue
		}
		switch {
		case fence == "sh" || fence == "console" || fence == "bash":
			text = strings.TrimPrefix(text, indent)
		case fence != "":
			continue
		case strings.TrimSpace(text) == "":
			if len(current.text) == 0 {
				continue
			}
			text = ""
		case strings.HasPrefix(text, "    "):
			if len(current.text) == 0 {
				indent = text[:len(text)-len(strings.TrimLeft(text, " "))]
			}
			text = strings.TrimPrefix(text, indent)
		default:
			flush()
			continue
		}
		if len(current.text) == 0 {
			current.first = i + 1
		}
		current.text = append(current.text, text)
	}
	flush()
	return all
}

// lines returns the commands of a block. If none has a prompt, the block is a script.
func (b block) lines() []Line {
	prompted := false
	for _, text := range b.text {
		prompted = prompted || strings.HasPrefix(text, "$ ")
	}
	var found []Line
	marked := ""
	for i := 0; i < len(b.text); i++ {
		command, isCommand := b.text[i], !prompted
		if prompted {
			command, isCommand = strings.CutPrefix(command, "$ ")
		}
		mark := needs.FindStringSubmatch(b.text[i])
		if mark != nil && strings.HasPrefix(command, "#") {
			marked = mark[1]
			continue
		}
		if !isCommand || strings.TrimSpace(command) == "" {
			continue
		}
		number := b.first + i
		for !isWhole(command) && i+1 < len(b.text) {
			i++
			command += "\n" + b.text[i]
		}
		var shown []string
		for prompted && i+1 < len(b.text) && !strings.HasPrefix(b.text[i+1], "$ ") &&
			!strings.HasPrefix(b.text[i+1], "# needs ") {
			i++
			shown = append(shown, b.text[i])
		}
		l := Line{
			Number: number, Command: command, Needs: marked,
			Setup: isSetting(command) && !calls.MatchString(command),
			Shown: strings.TrimSpace(strings.Join(shown, "\n")),
		}
		if mark := needs.FindStringSubmatch(command); mark != nil {
			l.Needs = mark[1]
		}
		marked = ""
		if l.Setup || calls.MatchString(command) {
			found = append(found, l)
		}
	}
	return found
}

func isSetting(command string) bool {
	words := strings.Fields(strings.ReplaceAll(command, "\\\n", " "))
	return setting.MatchString(strings.Join(words, " "))
}

// isWhole reports whether the shell would run a command now, and not ask for more of it.
func isWhole(command string) bool {
	if strings.HasSuffix(command, "\\") {
		return false
	}
	out, err := exec.Command("bash", "-n", "-c", command).CombinedOutput()
	return err == nil || !strings.Contains(string(out), "unexpected EOF") &&
		!strings.Contains(string(out), "unexpected end of file")
}

// elided are the parts of output that differ each time.
var elided = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|127\.0\.0\.1:\d+|[0-9a-f]{24,32}|` +
	`"requestId":"[^"]*"|mooring_\w{8}_[\w-]+|\b[\w-]{8} [\w-]+…?\.[\w-]+…?`)

// Matches reports whether output is what a page shows: piece by piece, where the page has … for
// what it leaves out, without white space and without what differs each time.
func Matches(shown, output string) bool {
	output = plain(output)
	if shown == "" {
		return !strings.Contains(output, `"error":{`)
	}
	for i, piece := range strings.Split(plain(shown), "…") {
		at := strings.Index(output, piece)
		if at < 0 || i == 0 && at > 0 && !strings.HasPrefix(output, "HTTP/") {
			return false
		}
		output = output[at+len(piece):]
	}
	return true
}

func plain(text string) string {
	return strings.Join(strings.Fields(elided.ReplaceAllString(text, "…")), "")
}
