package config

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Usage writes the flag, the variable and the default of each option, for --help.
func Usage(w io.Writer) error {
	var b strings.Builder
	for _, row := range options {
		for _, o := range row.withFile() {
			fmt.Fprintf(&b, "  --%s %s   %s%s\n", o.flag(), strings.ReplaceAll(o.Kind, " ", "-"),
				o.env(), o.defaultNote())
			for _, line := range wrap(o.Doc, 94) {
				fmt.Fprintf(&b, "      %s\n", line)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (o option) defaultNote() string {
	if o.Default == "" {
		return ""
	}
	return " (" + o.Default + ")"
}

// wrap breaks text into lines of at most width bytes where words allow it.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// Markdown writes the table of options as docs/configuration.md has it. A secret has no row of its
// own for its file.
func Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| option | default | reload | what it does |\n|---|---|---|---|\n")
	for _, o := range options {
		name := "`" + o.Name + "`"
		if o.NoFile {
			name = "`--" + o.flag() + "`"
		}
		def := ""
		if o.Default != "" {
			def = "`" + o.Default + "`"
		}
		doc := strings.ReplaceAll(o.Doc, "|", `\|`)
		fmt.Fprintf(&b, "| %s | %s | %s | %s: %s |\n", name, def, o.reloadNote(), o.Kind, doc)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// reloadNote says what of an option can change while the gateway runs.
func (o option) reloadNote() string {
	switch {
	case o.Reload:
		return "yes"
	case readAgain[o.Name] || readAgain[o.Name+fileSuffix]:
		return "its file"
	}
	return ""
}

// readAgain names the options whose files are read again on their own.
var readAgain = map[string]bool{
	handleKeys + fileSuffix: true, idempotencyKey + fileSuffix: true,
	apiKeys + fileSuffix: true, policyFile: true,
	uriOption + fileSuffix: true, mongoUsername + fileSuffix: true,
	mongoPassword + fileSuffix: true, "mongodb.tokenFile": true,
	"tls.certificateFile": true, "tls.keyFile": true, "tls.clientAuthorityFile": true,
	"audit.file": true,
}

// mask replaces a secret.
const mask = "***"

// WriteEffective writes the configuration as YAML in the format of the file, with the source of
// each value as a comment. Secrets are masked.
func (c *Config) WriteEffective(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, v := range c.values {
		if v.text == "" || v.option.NoFile {
			continue
		}
		parent, name := root, v.option.Name
		for group, rest, ok := strings.Cut(name, "."); ok; group, rest, ok = strings.Cut(name,
			".") {
			parent, name = child(parent, group), rest
		}
		text := v.text
		switch {
		case v.option.shown != nil:
			text = v.option.shown(c)
		case v.option.Secret:
			text = mask
		}
		parent.Content = append(parent.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: name},
			&yaml.Node{Kind: yaml.ScalarNode, Value: text, LineComment: v.source})
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return err
	}
	return enc.Close()
}

// child returns the mapping below that key, and creates it if there is none.
func child(parent *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(parent.Content); i += 2 {
		if parent.Content[i].Value == key {
			return parent.Content[i+1]
		}
	}
	node := &yaml.Node{Kind: yaml.MappingNode}
	parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, node)
	return node
}
