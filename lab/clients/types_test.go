package clients_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// ordersSchema is the validator of the collection from which the tests make types.
const ordersSchema = `{"name": "orders", "options": {"validator": {"$jsonSchema": {
	"required": ["_id", "customer", "status", "placed"], "properties": {
		"_id": {"bsonType": "objectId"},
		"customer": {"bsonType": "string"},
		"status": {"enum": ["open", "paid"]},
		"placed": {"bsonType": "date"},
		"total": {"bsonType": ["double", "null"]},
		"views": {"bsonType": "long"},
		"price": {"bsonType": "decimal"},
		"picture": {"bsonType": "binData"},
		"gift-note": {"bsonType": "string"},
		"items": {"items": {"required": ["sku"], "properties": {"sku": {"bsonType": "string"}}}}
	}}}}}`

// typesOf returns what mooring types prints of a collection with this validator.
func typesOf(t *testing.T, args ...string) string {
	t.Helper()
	info, err := extjson.Parse(nil, []byte(ordersSchema))
	if err != nil {
		t.Fatal(err)
	}
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{
		"listCollections": fakemongo.Always(fakemongo.OK(func(b *bson.Builder) {
			b.OpenDocument("cursor").Int64("id", 0).String("ns", "shop.$cmd.listCollections")
			b.OpenArray("firstBatch").Document("", info).Close().Close()
		})),
	})
	args = append([]string{"types", "shop", "--address", mongo.URI()}, args...)
	return run(t, t.TempDir(), nil, suite.Gateway(t), args...)
}

// TestTypesOfTypeScript checks that tsc takes what is right, and refuses a wrong field.
func TestTypesOfTypeScript(t *testing.T) {
	dir, tools := t.TempDir(), installTools(t)
	compile := func(name string) (string, error) {
		return output(t, dir, nil, filepath.Join(tools, "node_modules", ".bin", "tsc"), "--strict",
			"--noEmit", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", name)
	}
	installClient(t, dir)
	bson := filepath.Join("node_modules", "bson")
	if err := os.CopyFS(filepath.Join(dir, bson),
		os.DirFS(filepath.Join(tools, bson))); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "shop.ts", typesOf(t, "--language", "ts"))
	write(t, dir, "shop_bson.ts", typesOf(t, "--language", "ts", "--bson"))
	for _, name := range []string{"uses.ts", "uses_bson.ts"} {
		copyFile(t, dir, name)
		if out, err := compile(name); err != nil {
			t.Errorf("tsc %s: %v\n%s", name, err, out)
		}
	}
	// What uses.ts marks as wrong is told when it is not marked.
	text, err := os.ReadFile(filepath.Join("testdata", "types", "uses.ts"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "wrong.ts", strings.ReplaceAll(string(text), "@ts-expect-error", "wrong:"))
	out, err := compile("wrong.ts")
	if err == nil {
		t.Error("tsc takes wrong fields")
	}
	want(t, out, "'totl' does not exist in type", `"lost"' is not assignable to type`,
		"'DateTime'", "Property 'sku' is missing in type")
	errors, marks := strings.Count(out, "error TS"), strings.Count(string(text), "@ts-expect-error")
	if errors != marks {
		t.Errorf("tsc has %d errors, want %d:\n%s", errors, marks, out)
	}
}

// TestTypesOfGo checks that the go command takes what is right, and refuses a wrong field.
func TestTypesOfGo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "lab", name))
		if err != nil {
			t.Fatal(err)
		}
		// The replacement of the product by its directory.
		write(t, dir, name, strings.ReplaceAll(string(text), "=> ../", "=> "+root(t)))
	}
	write(t, dir, "models.go", typesOf(t, "--language", "go", "--package", "main"))
	copyFile(t, dir, "uses.go.txt")
	run(t, dir, nil, "go", "vet", "-mod=mod", ".")
	out := run(t, dir, nil, "go", "run", "-mod=mod", ".")
	want(t, out, `{"customer":"Ada","status":"open","placed":{"$date":"2026-01-02T03:04:05Z"},`+
		`"gift-note":"for Eve","items":[{"sku":"a"}]}`)
	write(t, dir, "wrong.go", `package main

var _ = Order{Totl: 5}
`)
	out, err := output(t, dir, nil, "go", "vet", "-mod=mod", ".")
	if err == nil {
		t.Error("the go command takes a wrong field")
	}
	want(t, out, "unknown field Totl")
}

// TestTypesOfPython checks that Python takes the types, and that pyright finds what is wrong.
func TestTypesOfPython(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(root(t), "clients", "python")
	write(t, dir, "shop.py", typesOf(t, "--language", "python"))
	write(t, dir, "with_bson.py", typesOf(t, "--language", "python", "--bson"))
	copyFile(t, dir, "uses.py")
	t.Run("python", func(t *testing.T) {
		const python = "/usr/bin/python3"
		if missing := lacks(t, python, "httpx", "bson"); missing != "" {
			t.Skipf("%s has no %s", python, missing)
		}
		env := []string{"PYTHONPATH=" + source, "PYTHONDONTWRITEBYTECODE=1"}
		out := run(t, dir, env, python, "-c",
			"import shop, with_bson; print(sorted(shop.Order.__required_keys__))")
		want(t, out, "['customer', 'placed', 'status']")
	})
	t.Run("pyright", func(t *testing.T) {
		settings, err := json.Marshal(map[string]any{
			"extraPaths": []string{source}, "include": []string{"uses.py", "shop.py"},
		})
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, "pyrightconfig.json", string(settings))
		// It exits with 1 if it finds anything.
		out, _ := output(t, dir, nil, installPyright(t), "--outputjson")
		wantWrong(t, out, filepath.Join(dir, "uses.py"))
	})
}

// wantWrong checks that pyright complains of the lines that end with "# wrong", and of no others.
func wantWrong(t *testing.T, out, file string) {
	t.Helper()
	var found struct {
		GeneralDiagnostics []struct {
			File, Message string
			Range         struct{ Start struct{ Line int } }
		}
	}
	if err := json.Unmarshal([]byte(out[max(strings.Index(out, "{"), 0):]), &found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var wrong, got []int
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasSuffix(line, "# wrong") {
			wrong = append(wrong, i)
		}
	}
	for _, d := range found.GeneralDiagnostics {
		got = append(got, d.Range.Start.Line)
		t.Logf("%s:%d: %s", filepath.Base(d.File), d.Range.Start.Line+1, d.Message)
	}
	slices.Sort(got)
	if len(wrong) == 0 || !slices.Equal(slices.Compact(got), wrong) {
		t.Errorf("pyright complains of the lines %v, want %v (from 0)", got, wrong)
	}
}

// installClient packs the TypeScript client and installs it into a directory.
func installClient(t *testing.T, dir string) {
	t.Helper()
	source := filepath.Join(root(t), "clients", "typescript")
	packed := strings.TrimSpace(run(t, dir, nil, "npm", "pack", "--silent", source))
	write(t, dir, "package.json", `{"type": "module"}`)
	run(t, dir, nil, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--offline",
		"./"+packed)
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyFile copies a file of testdata/types; uses.go.txt becomes uses.go.
func copyFile(t *testing.T, dir, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "types", name))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, strings.TrimSuffix(name, ".txt"), string(text))
}
