package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"math"
	"slices"
	"strings"
)

// mutant holds one change of one file: the bytes from start to end become text.
type mutant struct {
	pkg, file  string
	line       int
	start, end int
	text       string
	// name identifies the mutant across edits elsewhere in the file: the package, the function, and
	// what becomes of what.
	name string
}

// order returns the mutant's place in the sample of a seed. It depends on the name only, so that an
// edit elsewhere does not change it.
func (m mutant) order(seed string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed + "\x00" + m.name)) // never fails
	// FNV hardly moves its high bits for the last bytes of a name.
	x := h.Sum64()
	x ^= x >> 31
	x *= 0x9E3779B97F4A7C15
	return x ^ x>>29
}

// pick returns the mutants of a seed's sample in their order: about one in oneIn of all. Whether a
// mutant is picked does not depend on the others.
func pick(seed string, oneIn uint64, all []mutant) []mutant {
	picked := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool {
		return m.order(seed) > math.MaxUint64/oneIn
	})
	slices.SortFunc(picked, func(a, b mutant) int {
		return cmp.Or(cmp.Compare(a.order(seed), b.order(seed)), strings.Compare(a.name, b.name))
	})
	return picked
}

// apply returns source with the mutant's change.
func (m mutant) apply(source []byte) []byte {
	return slices.Concat(source[:m.start], []byte(m.text), source[m.end:])
}

var opposites = map[token.Token]string{
	token.EQL: "!=", token.NEQ: "==", token.LSS: "<=", token.LEQ: "<",
	token.GTR: ">=", token.GEQ: ">",
	token.LAND: "||", token.LOR: "&&", token.ADD: "-", token.SUB: "+",
}

// locks are calls whose removal only the race detector or a time-out notices.
var locks = []string{"Lock", "Unlock", "RLock", "RUnlock"}

// mutants returns all changes of a file's functions. Some do not compile, because types are not
// checked.
func mutants(pkg, file string, source []byte) ([]mutant, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := finder{files: files, source: source, pkg: pkg, file: file, seen: map[string]int{}}
	for _, d := range tree.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			f.function = functionName(d)
			f.body(d.Type, d.Body)
		}
	}
	return f.found, nil
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	switch t := of.(type) {
	case *ast.IndexExpr:
		of = t.X
	case *ast.IndexListExpr:
		of = t.X
	}
	return fmt.Sprint(of, ".", d.Name.Name)
}

// finder collects the mutants of one file.
type finder struct {
	files     *token.FileSet
	source    []byte
	pkg, file string
	function  string
	seen      map[string]int // how often a name was given
	found     []mutant
}

// body collects the mutants of a function's body. A function literal is visited with its own
// results.
func (f *finder) body(of *ast.FuncType, body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			f.body(n.Type, n.Body)
			return false
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.BinaryExpr:
			if with, ok := opposites[n.Op]; ok {
				at := f.offset(n.OpPos)
				f.add(n, at, at+len(n.Op.String()), with)
			}
		case *ast.IfStmt:
			if _, binary := n.Cond.(*ast.BinaryExpr); !binary {
				f.replace(n.Cond, "!("+f.text(n.Cond)+")")
			}
		case *ast.IncDecStmt:
			at := f.offset(n.TokPos)
			f.add(n, at, at+2, map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok])
		case *ast.Ident:
			if with := map[string]string{"true": "false", "false": "true"}[n.Name]; with != "" {
				f.replace(n, with)
			}
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok && !isLock(call) {
				f.replace(n, "")
			}
		case *ast.AssignStmt:
			if _, field := n.Lhs[0].(*ast.SelectorExpr); field && n.Tok == token.ASSIGN {
				f.replace(n, "")
			}
		case *ast.ReturnStmt:
			last := len(n.Results) - 1
			if last >= 0 && returnsError(of) && last+1 == of.Results.NumFields() &&
				f.text(n.Results[last]) != "nil" {
				f.replace(n.Results[last], "nil")
			}
		}
		return true
	})
}

func isLock(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(locks, s.Sel.Name)
}

func returnsError(of *ast.FuncType) bool {
	if of.Results.NumFields() == 0 {
		return false
	}
	last, ok := of.Results.List[len(of.Results.List)-1].Type.(*ast.Ident)
	return ok && last.Name == "error"
}

// replace adds the mutant that puts text in the place of a node.
func (f *finder) replace(n ast.Node, text string) {
	f.add(n, f.offset(n.Pos()), f.offset(n.End()), text)
}

// add adds a mutant that changes a part of a node.
func (f *finder) add(n ast.Node, start, end int, text string) {
	from, to := f.offset(n.Pos()), f.offset(n.End())
	before := string(f.source[from:to])
	after := string(f.source[from:start]) + text + string(f.source[end:to])
	name := fmt.Sprintf("%s %s: %s -> %s", f.pkg, f.function, line(before), line(after))
	f.seen[name]++
	if n := f.seen[name]; n > 1 {
		name = fmt.Sprintf("%s #%d", name, n)
	}
	at := f.files.Position(n.Pos()).Line
	f.found = append(f.found, mutant{f.pkg, f.file, at, start, end, text, name})
}

func (f *finder) offset(p token.Pos) int { return f.files.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

// line returns text as one line of at most 100 characters.
func line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "nothing"
	}
	if len(text) > 100 {
		text = text[:60] + " ... " + text[len(text)-30:]
	}
	return text
}
