package tools_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages returns the texts of the documentation by path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"docs/*.md", "*.md", "deploy/*.md", "clients/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(path, "../")] = string(text)
		}
	}
	if len(texts) < 25 {
		t.Fatalf("%d pages", len(texts))
	}
	return texts
}

var (
	fenced     = regexp.MustCompile("(?ms)^```.*?^```")
	heading    = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor   = regexp.MustCompile(`[^\pL\pN_ -]`)
	anchorLink = regexp.MustCompile(`\]\(([^)#\s:]*)#([^)\s]+)\)`)
)

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		name := strings.ToLower(linkText.ReplaceAllString(strings.TrimSpace(m[1]), "$1"))
		all = append(all, strings.ReplaceAll(noAnchor.ReplaceAllString(name, ""), " ", "-"))
	}
	return all
}

// TestAnchors checks that each link to a heading of a page leads to one.
func TestAnchors(t *testing.T) {
	texts, links := pages(t), 0
	for path, text := range texts {
		for _, m := range anchorLink.FindAllStringSubmatch(text, -1) {
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			page, ok := texts[target]
			if !ok {
				continue // a file of another kind
			}
			if links++; !slices.Contains(anchors(page), m[2]) {
				t.Errorf("%s links to %s#%s, which has no such heading", path, target, m[2])
			}
		}
	}
	if links < 100 {
		t.Errorf("%d links were checked", links)
	}
}

// TestRunbookNeedsNoShell checks that no command of the runbook runs in the container of a gateway,
// whose image has neither a shell nor curl.
func TestRunbookNeedsNoShell(t *testing.T) {
	inside := regexp.MustCompile(`(kubectl|docker|podman)\b.*\bexec\b`)
	for number, line := range strings.Split(pages(t)["docs/runbook.md"], "\n") {
		if inside.MatchString(line) {
			t.Errorf("docs/runbook.md:%d: %s", number+1, line)
		}
	}
}

// TestREADMESaysThingsOnce checks that no two items of the README's lists begin alike.
func TestREADMESaysThingsOnce(t *testing.T) {
	const alike = 30
	seen := map[string]bool{}
	for line := range strings.Lines(pages(t)["README.md"]) {
		item, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !ok || len(item) < alike {
			continue
		}
		if seen[item[:alike]] {
			t.Errorf("README.md says twice: %s", item)
		}
		seen[item[:alike]] = true
	}
}
