// Command prose checks what a linter does not: lines that end after column 100, doc comments that
// do not begin with the name and a verb, and words that name no actor.
//
//	go run ./tools/prose core/wire docs     # prints each finding, fails if there is one
//	go run ./tools/prose -count core/...    # prints a table of packages, never fails
//
// A column is a character; a tab counts for four. Exempt are generated files and testdata. Too long
// may be lines with a URL, tables in Markdown, in tests rows of tables and lines with a text that
// cannot be broken, what a directive for a linter adds, and in protos everything but comments.
// Words count in comments of Go and protos and in all of Markdown.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const columns = 100

func main() {
	count := flag.Bool("count", false, "print a table of packages instead of the findings")
	flag.Parse()
	failed, err := run(os.Stdout, *count, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// tally counts what was found in one folder.
type tally struct{ documented, unlike, long, vague int }

func run(out io.Writer, count bool, roots []string) (failed bool, err error) {
	tallies := map[string]tally{}
	for _, root := range roots {
		files, err := list(root)
		if err != nil {
			return false, err
		}
		for _, path := range files {
			source, err := os.ReadFile(path)
			if err != nil {
				return false, err
			}
			findings, t, err := check(path, source)
			if err != nil {
				return false, err
			}
			sum := tallies[filepath.Dir(path)]
			sum.documented += t.documented
			sum.unlike += t.unlike
			sum.long += t.long
			sum.vague += t.vague
			tallies[filepath.Dir(path)] = sum
			for _, f := range findings {
				if !count {
					failed = true
					fmt.Fprintln(out, f)
				}
			}
		}
	}
	if count {
		table(out, tallies)
	}
	return failed, nil
}

func table(out io.Writer, tallies map[string]tally) {
	var names []string
	var sum tally
	for name, t := range tallies {
		names = append(names, name)
		sum.documented += t.documented
		sum.unlike += t.unlike
		sum.long += t.long
		sum.vague += t.vague
	}
	slices.Sort(names)
	fmt.Fprintln(out, "documented  not name and verb  lines over 100  vague words")
	for _, name := range append(names, "all") {
		t, ok := tallies[name]
		if !ok {
			t = sum
		}
		fmt.Fprintf(out, "%10d  %17d  %14d  %11d  %s\n",
			t.documented, t.unlike, t.long, t.vague, name)
	}
}

var endings = []string{".go", ".md", ".proto"}

// list returns the Go, proto and Markdown files of a root: a file, a folder, or with /... all below
// it.
func list(root string) ([]string, error) {
	dir, deep := strings.CutSuffix(root, "/...")
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir &&
			(!deep || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !d.IsDir() && slices.Contains(endings, filepath.Ext(path)):
			files = append(files, filepath.Clean(path))
		}
		return nil
	})
	return files, err
}

// check returns the findings of one file, in the form that editors know, and counts them.
func check(path string, source []byte) (findings []string, t tally, err error) {
	switch filepath.Ext(path) {
	case ".md":
		isTable := func(_ int, line string) bool { return strings.HasPrefix(line, "|") }
		findings, t = checkText(path, string(source), isTable)
		return findings, t, nil
	case ".proto":
		findings, t = checkText(path, code.ReplaceAllString(string(source), ""), isNoComment)
		return findings, t, nil
	}
	files := token.NewFileSet()
	mode := parser.ParseComments | parser.SkipObjectResolution
	tree, err := parser.ParseFile(files, path, source, mode)
	if err != nil || ast.IsGenerated(tree) {
		return nil, t, err
	}
	isTest := strings.HasSuffix(path, "_test.go")
	data := map[int]bool{}
	if isTest {
		data = dataOf(tree, files)
	}
	findings = long(path, string(source), func(n int, line string) bool { return data[n] })
	t.long = len(findings)
	for _, group := range tree.Comments {
		var lines []string
		for _, c := range group.List {
			lines = append(lines, c.Text)
		}
		more := vague(path, files.Position(group.Pos()).Line, strings.Join(lines, "\n"))
		findings = append(findings, more...)
		t.vague += len(more)
	}
	if isTest {
		return findings, t, nil
	}
	for _, d := range documented(tree) {
		t.documented++
		if beginsWell(d.name, d.text) {
			continue
		}
		t.unlike++
		first, _, _ := strings.Cut(d.text, "\n")
		findings = append(findings,
			fmt.Sprintf("%s: not name and verb: %s", files.Position(d.pos), first))
	}
	return findings, t, nil
}

// code matches the lines of a proto that are not comments.
var code = regexp.MustCompile(`(?m)^ *([^/ \n]|/[^/]).*$`)

func isNoComment(_ int, line string) bool {
	return !strings.HasPrefix(strings.TrimSpace(line), "//")
}

// checkText returns the findings of a file that is not Go.
func checkText(
	path, text string, exempt func(n int, line string) bool,
) ([]string, tally) {
	lines, words := long(path, text, exempt), vague(path, 1, text)
	return append(lines, words...), tally{long: len(lines), vague: len(words)}
}

// dataOf returns the lines of a test that are data: rows of tables, which have an element of a list
// or map each, and lines with a text that cannot be broken: a raw one, or one without spaces.
func dataOf(tree *ast.File, files *token.FileSet) map[int]bool {
	data := map[int]bool{}
	line := func(p token.Pos) int { return files.Position(p).Line }
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			isRaw := n.Value[0] == '`'
			for i := line(n.Pos()); isRaw && i <= line(n.End()); i++ {
				data[i] = true
			}
			if len(n.Value) > columns/2 && !strings.Contains(n.Value, " ") {
				data[line(n.Pos())] = true
			}
		case *ast.CompositeLit:
			switch n.Type.(type) {
			case *ast.ArrayType, *ast.MapType, nil:
			default:
				return true // a struct's fields are no rows
			}
			for _, row := range n.Elts {
				first := line(row.Pos())
				data[first] = data[first] || first == line(row.End()) && first > line(n.Lbrace)
			}
		}
		return true
	})
	return data
}

// directive matches a remark for a linter at the end of a line, which must stand there.
var directive = regexp.MustCompile(` *//nolint:.*$`)

// long returns the lines that end after the last column and are not exempt.
func long(path, text string, exempt func(n int, line string) bool) []string {
	var findings []string
	for i, line := range strings.Split(text, "\n") {
		line = directive.ReplaceAllString(line, "")
		width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
		if width > columns && !strings.Contains(line, "://") && !exempt(i+1, line) {
			findings = append(findings, fmt.Sprintf("%s:%d: %d columns", path, i+1, width))
		}
	}
	return findings
}

// vagueWords matches words that name no actor, or that speak of data as of a person.
var vagueWords = regexp.MustCompile(`(?i)\b(he|she|him|his|himself|nobody|somebody|anybody|` +
	`everybody|whoever|whomever|the[\s/]+ones?[\s/]+(that|who)|(those|all)[\s/]+who|` +
	`stands[\s/]+in|lest|gladly|farewell|befell|is at it)\b`)

// vague returns the vague words of a text that begins on a line of a file.
func vague(path string, line int, text string) []string {
	var findings []string
	for _, at := range vagueWords.FindAllStringIndex(text, -1) {
		findings = append(findings, fmt.Sprintf("%s:%d: %q names no actor",
			path, line+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]]))
	}
	return findings
}

// comment holds the doc comment of one function, method or type.
type comment struct {
	name, text string
	pos        token.Pos
}

func documented(tree *ast.File) []comment {
	var found []comment
	add := func(name string, doc *ast.CommentGroup) {
		if text := doc.Text(); text != "" {
			found = append(found, comment{name, text, doc.Pos()})
		}
	}
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Name.Name, d.Doc)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok && !d.Lparen.IsValid() {
					add(s.Name.Name, d.Doc)
				} else if ok {
					add(s.Name.Name, s.Doc)
				}
			}
		}
	}
	return found
}

// notVerbs end like verbs of the third person. They are none, or only say that something is
// something.
var notVerbs = []string{"is", "was", "as", "this", "its", "has,"}

// beginsWell reports whether a doc comment begins with the name and a verb.
func beginsWell(name, text string) bool {
	words := strings.Fields(text)
	if len(words) < 2 || words[0] != name || slices.Contains(notVerbs, words[1]) {
		return len(words) > 0 && words[0] == "Deprecated:"
	}
	verb := strings.TrimRight(words[1], ",;")
	return strings.HasSuffix(verb, "s") && strings.ToLower(verb) == verb
}
