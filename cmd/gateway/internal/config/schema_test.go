package config_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
)

// chartOwns are the keys of the configuration file that the chart sets itself, so that its values
// cannot.
var chartOwns = map[string]bool{
	"uriFile": true, "addressesFile": true, "allowPlaintext": true, "allowUnauthenticated": true,
	"tls.certificateFile": true, "tls.keyFile": true, "tls.clientAuthorityFile": true,
	"handle": true, "idempotency": true, "replica": true, "drain": true,
	"grpc.address": true, "rest.address": true, "admin.address": true, "policy.file": true,
	"auth.apiKeysFile": true, "mongodb.usernameFile": true, "mongodb.passwordFile": true,
}

// TestChartSchema compares the schema of config in the chart's values with the table of options. To
// rewrite it: MOORING_REWRITE=1 go test ./cmd/gateway/internal/config
func TestChartSchema(t *testing.T) {
	const file = "../../../../deploy/helm/mooring/values.schema.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	want := chartConfig(t)
	values["properties"].(map[string]any)["config"] = want
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(values); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(out.Bytes(), text) {
		return
	}
	if os.Getenv("MOORING_REWRITE") == "" {
		t.Fatalf("%s is not what the table of options says; MOORING_REWRITE=1 rewrites it", file)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// chartConfig returns the schema of the options that the chart leaves to its values.
func chartConfig(t *testing.T) map[string]any {
	t.Helper()
	var text bytes.Buffer
	if err := config.WriteSchema(&text); err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(text.Bytes(), &root); err != nil {
		t.Fatal(err)
	}
	delete(root, "$schema")
	delete(root, "title")
	found := map[string]bool{}
	prune(root, "", found)
	for name := range chartOwns {
		if !found[name] {
			t.Errorf("the chart owns %s, which is not an option", name)
		}
	}
	return root
}

// prune removes the properties that are secret or the chart's, and groups that have none left. It
// reports whether s has properties or is none.
func prune(s map[string]any, path string, found map[string]bool) bool {
	delete(s, "description") // docs/configuration.md has it
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		return true
	}
	for name, p := range properties {
		property := p.(map[string]any)
		below := name
		if path != "" {
			below = path + "." + name
		}
		switch {
		case chartOwns[below]:
			found[below] = true
			delete(properties, name)
		case property["writeOnly"] == true, !prune(property, below, found):
			delete(properties, name)
		}
	}
	return len(properties) > 0
}

func TestSchemaOfKinds(t *testing.T) {
	var text bytes.Buffer
	if err := config.WriteSchema(&text); err != nil {
		t.Fatal(err)
	}
	type property struct {
		Type                 any
		Enum                 []any
		Pattern              string
		AnyOf                []property
		WriteOnly            bool
		AdditionalProperties *bool
		Properties           map[string]property
	}
	var root property
	if err := json.Unmarshal(text.Bytes(), &root); err != nil {
		t.Fatal(err)
	}
	at := func(names ...string) property {
		p := root
		for _, name := range names {
			next, ok := p.Properties[name]
			if !ok {
				t.Fatalf("the schema lacks %q", names)
			}
			p = next
		}
		return p
	}
	if p := at("log"); p.AdditionalProperties == nil || *p.AdditionalProperties {
		t.Error("a misspelled option of the group log passes")
	}
	levels := []any{"debug", "info", "warn", "error"}
	if p := at("log", "level"); !reflect.DeepEqual(p.Enum, levels) {
		t.Errorf("log.level is %+v", p)
	}
	if p := at("log", "format"); !reflect.DeepEqual(p.Enum, []any{"text", "json"}) {
		t.Errorf("log.format is %+v", p)
	}
	if p := at("policy", "javaScript"); p.Type != "boolean" {
		t.Errorf("policy.javaScript is %+v", p)
	}
	if p := at("requests", "maxInFlight"); len(p.AnyOf) != 2 || p.AnyOf[0].Type != "integer" ||
		!reflect.DeepEqual(p.AnyOf[1].Enum, []any{"auto", "none"}) {
		t.Errorf("requests.maxInFlight is %+v", p)
	}
	for _, secret := range [][]string{
		{"uri"}, {"mongodb", "password"}, {"handle", "keys"}, {"idempotency", "key"}, {"mongodb", "options", "proxyPassword"},
	} {
		if !at(secret...).WriteOnly {
			t.Errorf("%q is not marked as a secret", secret)
		}
	}
	for _, open := range [][]string{
		{"uriFile"}, {"mongodb", "passwordFile"}, {"mongodb", "options", "tlsCAFile"},
	} {
		if at(open...).WriteOnly {
			t.Errorf("%q is marked as a secret", open)
		}
	}
	if _, ok := root.Properties["config"]; ok {
		t.Error("the file has the option config, which names the file")
	}
}

// TestSchemaOfValues checks that the schema and the gateway agree on values, as YAML reads them: on
// the default of each option, and on others.
func TestSchemaOfValues(t *testing.T) {
	var text bytes.Buffer
	if err := config.WriteSchema(&text); err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(&text)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("config.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(option, value string, want bool) {
		t.Helper()
		file := ""
		for i, name := range strings.Split(option, ".") {
			file += "\n" + strings.Repeat(" ", i) + name + ":"
		}
		file += " " + value + "\n"
		var read any
		if err := yaml.Unmarshal([]byte(file), &read); err != nil {
			t.Fatal(err)
		}
		asJSON, err := json.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(instance); (err == nil) != want {
			t.Errorf("%s: %s: the schema says %v", option, value, err)
		}
		_, err = load(t, []string{"--uri", uri, "--config", write(t, "mooring.yaml", file)}, nil)
		if (err == nil) != want {
			t.Errorf("%s: %s: the gateway says %v", option, value, err)
		}
	}
	for option, value := range allDefaults(t) {
		if value != "" && option != "option" {
			check(option, value, true)
		}
	}
	for _, row := range []struct {
		option, value string
		want          bool
	}{
		{"tracing.sampling", "0.05%", true},
		{"tracing.sampling", "1%", true},
		{"tracing.sampling", "percentage", false},
		{"tracing.sampling", "1", false},
		{"cursors.maxPinned", "50%", true},
		{"cursors.maxPinned", "0.5%", false},
		{"dataApi.insertStatus", "200", true},
		{"dataApi.insertStatus", "201", true},
		{"dataApi.insertStatus", `"200"`, true},
		{"dataApi.insertStatus", "202", false},
		{"log.driver", "command", true},
		{"log.driver", "command, topology", true},
		{"log.driver", "[command, topology]", true},
		{"auth.jwt.algorithms", "[RS256, ES256]", true},
		{"log.level", "debug", true},
		{"log.level", "loud", false},
		{"requests.maxTimeout", "30s", true},
		{"requests.maxTimeout", "never", false},
		{"requests.maxInFlight", "7", true},
		{"requests.maxInFlight", "many", false},
		{"memory.budget", "1GiB", true},
		{"memory.budget", "33554432", true},
		{"memory.budget", "all", false},
		{"errors.serverTexts", "hide", true},
		{"errors.serverTexts", "some", false},
		{"audit.file", "log", true},
		{"tls.clientCertificates", "never", false},
		{"policy.javaScript", "maybe", false},
	} {
		check(row.option, row.value, row.want)
	}
}
