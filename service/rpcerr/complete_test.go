package rpcerr_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// Every error that core and the packages of handles export, as a type or as a value, has a line
// in the table.
func TestEveryErrorHasALine(t *testing.T) {
	have := rpcerr.Names()
	for dir, least := range map[string]int{
		"../../core": 10, "../handle": 4, "../paging": 8, "../payload": 1, "../caller": 1,
		"../admission": 1, "../policy": 1,
	} {
		found := errorsBelow(t, dir)
		if len(found) < least {
			t.Fatalf("only %d errors found in %s: %v", len(found), dir, found)
		}
		for _, name := range found {
			if !slices.Contains(have, name) {
				t.Errorf("%s has no line in rpcerr's table", name)
			}
		}
	}
}

// errorsBelow reads the sources: a package that the gateway does not import yet counts, too.
func errorsBelow(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "internal" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		found = append(found, errorsIn(file)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func errorsIn(file *ast.File) []string {
	var found []string
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if name := receiver(d); d.Name.Name == "Error" && name != "" {
				prefix := ""
				if strings.HasPrefix(name, "*") {
					prefix, name = "*", name[1:]
				}
				if ast.IsExported(name) {
					found = append(found, prefix+file.Name.Name+"."+name)
				}
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || d.Tok != token.VAR {
					continue
				}
				for _, name := range v.Names {
					if strings.HasPrefix(name.Name, "Err") && name.IsExported() {
						found = append(found, file.Name.Name+"."+name.Name)
					}
				}
			}
		}
	}
	return found
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) != 1 {
		return ""
	}
	switch x := d.Recv.List[0].Type.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.StarExpr:
		if id, ok := x.X.(*ast.Ident); ok {
			return "*" + id.Name
		}
	}
	return ""
}
